"""Made-up members of every task, so that no test has to train anything."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from danseo.config.run import RunConfig
from danseo.config.train import TrainSettings
from danseo.data.dev_split import split_indices
from danseo.files import content_sha256
from danseo.records import Prediction
from danseo.runs.provenance import collect_environment
from danseo.runs.scores import score_splits
from danseo.runs.store import Run
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import decode_texts, find_best_tree, fit_no_answer_threshold, pack_npz
from danseo.tasktypes.question_answering import choose_answer

SKILL = 2.5  # how much better than noise the gold answer scores


def _rng(*parts: object) -> np.random.Generator:
    return np.random.default_rng(int(hashlib.sha256(repr(parts).encode()).hexdigest()[:8], 16))


def _softmax(table: np.ndarray) -> np.ndarray:
    grown = np.exp(table - table.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def answer(task: Task, example: Any, seed: int) -> tuple[Prediction, Any]:
    """A prediction that is right more often than not, and what a run keeps of it."""
    rng, labels = _rng(seed, example.guid), task.labels
    if task.type.has_single_label:
        logits = rng.normal(size=len(labels)) + SKILL * np.eye(len(labels))[labels.index(example.gold)]
        table = dict(zip(labels, _softmax(logits).round(6).tolist(), strict=True))
        return Prediction(example.guid, max(table, key=lambda k: table[k]), table), None
    if task.type.name == "regression":
        return Prediction(example.guid, round(float(example.gold + rng.normal()), 6)), None
    if task.type.name == "tagging":
        gold = np.eye(len(labels))[[labels.index(tag) for tag in example.gold]]
        rows = _softmax(rng.normal(size=gold.shape) + 2 * SKILL * gold).astype(np.float16)
        covered = np.array([not character.isspace() for character in example.text])
        rows[~covered] = 0
        return Prediction(example.guid, decode_texts([example.text], [rows], [covered], labels)[0]), rows
    if task.type.name == "parsing":
        words = len(example.words)
        gold = np.eye(words + 1)[[head for head, _ in example.gold]]
        arcs = np.log(_softmax(rng.normal(size=gold.shape) + SKILL * gold)).astype(np.float16)
        relations = rng.integers(0, 5, arcs.shape)
        heads = find_best_tree(arcs)
        named = tuple((int(h), labels[relations[k, h]]) for k, h in enumerate(heads))
        return Prediction(example.guid, named), (arcs, relations)
    if task.type.name == "question_answering":
        gold = example.gold[0] if example.gold else ""
        starts = rng.integers(0, max(1, len(example.text) - 12), 4)
        texts = dict.fromkeys([example.text[s : s + 8].strip() or "가" for s in starts] + ([gold] if gold else []))
        scores = {text: float(rng.normal()) + SKILL * (text == gold) for text in texts}
        spans = [*sorted(scores.items(), key=lambda pair: -pair[1]), ("", float(rng.normal()) + SKILL * (not gold))]
        best, bar = spans[0], spans[-1][1]
        none = round(float(1 / (1 + np.exp(best[1] - bar))), 6)
        return Prediction(example.guid, "" if bar > best[1] else best[0], {"": none}), spans
    dice = random.Random(f"{seed} {example.guid}")
    return Prediction(example.guid, tuple(item for item in example.gold if dice.random() < 0.8)), None


def keep(task: Task, rows: list[Any]) -> bytes | None:
    return None if rows[0] is None else pack_npz(task.type.pack_arrays(task, rows))


def settled(task: Task, examples: list[Any], answers: list[tuple[Prediction, Any]]) -> list[tuple[Prediction, Any]]:
    """The answers to questions with a threshold fitted on the select split, as encoders do."""
    positions = split_indices(task, examples, "select")
    threshold = fit_no_answer_threshold([examples[k].gold for k in positions], [answers[k][1] for k in positions])
    spans = [[*listed[:-1], ("", listed[-1][1] - threshold)] for _, listed in answers]
    return [
        (choose_answer(prediction.guid, listed), listed) for (prediction, _), listed in zip(answers, spans, strict=True)
    ]


def write_run(
    folder: Path,
    sample: Path,
    task: Task,
    seed: int,
    *,
    model: str = "tiny",
    kept: bool = True,
    select_on: str = "select",
    **settings: Any,
) -> Path:
    """A finished run as an encoder would have left it."""
    gold = sample / task.folder / task.file("dev")
    examples = task.read(gold)
    run = Run(folder / f"{task.name}--{model}--s{seed}--{_seed_of(model, 0, settings)}")
    train = TrainSettings(select_on=select_on, **settings)  # type: ignore[arg-type]
    run.start(RunConfig(task=task.name, model=model, seed=seed, train=train))
    answers = [answer(task, example, _seed_of(model, seed, settings)) for example in examples]
    if task.type.name == "question_answering":
        answers = settled(task, examples, answers)
    run.write_predictions("dev", [prediction for prediction, _ in answers])
    if kept and (content := keep(task, [side for _, side in answers])):
        run.write_bytes("predictions/dev.npz", content)
    run.write_json("environment.json", collect_environment({gold.name: content_sha256(gold)}, "cpu", 1.0))
    scores = score_splits(task, examples, [prediction for prediction, _ in answers], select_on, rounds=0)
    run.write_json("scores.json", scores)
    return run.path


def _seed_of(model: str, seed: int, settings: dict[str, Any]) -> int:
    return seed + 1000 * sum(map(ord, model)) + sum(map(ord, repr(settings)))


@pytest.fixture(scope="session")
def make_run(sample: Path) -> Callable[..., Path]:
    def make(folder: Path, task: str, seed: int, **options: Any) -> Path:
        return write_run(folder, sample, TASKS[task], seed, **options)

    return make


@pytest.fixture(scope="session")
def three(make_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Three runs of every task."""
    folder = tmp_path_factory.mktemp("members")
    return {task: [make_run(folder, task, seed) for seed in (1, 2, 3)] for task in TASKS}
