"""What holds for every metric of every task, on the bundled sample."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from danseo.metrics.tagging import list_entities
from danseo.records import Prediction
from danseo.scoring.breakdown import METRICS as SUBWORD_METRICS
from danseo.scoring.breakdown import measure_tokens
from danseo.scoring.score import baseline, example_clusters, measure, score
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task

NAMED = pytest.mark.parametrize("name", TASKS)
RANKED = TASKS["re"].needs_probabilities


@pytest.fixture(scope="session")
def dev(sample: Path) -> dict[str, list[Any]]:
    return {name: task.read(sample / task.folder / task.file("dev")) for name, task in TASKS.items()}


def make_predictions(examples: Sequence[Any], answers: Sequence[Any], task: Task) -> list[Prediction]:
    """Answers as predictions; where probabilities are asked for, all goes to the answer."""
    return [
        Prediction(example.guid, answer, {answer: 1.0} if task.needs_probabilities else None)
        for example, answer in zip(examples, answers, strict=True)
    ]


def make_worse(task: Task, example: Any, rng: random.Random) -> Any:
    """A wrong answer, near the gold one where there is room for degrees."""
    gold = example.gold
    if task.type.has_single_label:
        return rng.choice([label for label in task.labels if label != gold])
    if task.type.name == "regression":
        return 5 - gold
    if task.type.name == "tagging":
        return make_worse_tags(gold, rng)
    if task.type.name == "parsing":
        position = rng.randrange(len(gold))
        heads = [head for head in range(len(gold) + 1) if head != gold[position][0]]
        return (*gold[:position], (rng.choice(heads), rng.choice(task.labels)), *gold[position + 1 :])
    if task.type.name == "question_answering":
        return rng.choice(["", gold[0][:1] + "?", "아니다"]) if gold else "아니다"
    return gold[1:] if gold and rng.random() < 0.5 else (*gold[:-1], "식당-이름-없는 집")


def make_worse_tags(gold: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    """One entity missed, renamed or cut short; an invented one where there is none."""
    tags, spans = list(gold), list(list_entities(gold))
    if not spans:
        return ("B-PS", *tags[1:])
    start, end, name = rng.choice(spans)
    other = rng.choice([other for other in ("PS", "LC", "OG", "DT", "TI", "QT") if other != name])
    tags[start:end] = rng.choice(
        [
            ["O"] * (end - start),
            [f"B-{other}", *[f"I-{other}"] * (end - start - 1)],
            ["O", *([f"B-{name}", *[f"I-{name}"] * (end - start - 2)] if end - start > 1 else [])],
        ]
    )
    return tuple(tags)


def make_mixed(task: Task, examples: Sequence[Any], seed: int = 0) -> list[Prediction]:
    """Right and wrong answers; relations with probabilities of all labels."""
    rng = random.Random(seed)
    answers = [make_worse(task, e, rng) if rng.random() < 0.4 else a.answer for e, a in zip_oracle(task, examples)]
    predictions = make_predictions(examples, answers, task)
    if not task.needs_probabilities:
        return predictions
    rows = np.random.default_rng(seed).dirichlet(np.ones(len(task.labels)), len(examples)).round(2)
    graded = [dict(zip(task.labels, map(float, row), strict=True)) for row in rows]
    return [Prediction(p.guid, p.answer, {**g, p.answer: 0.9}) for p, g in zip(predictions, graded, strict=True)]


def zip_oracle(task: Task, examples: Sequence[Any]):
    return zip(examples, baseline("oracle", task, examples), strict=True)


def compute_values(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
    return {id_: statistic.value() for id_, statistic in measure(task, examples, predictions).items()}


@NAMED
def test_perfect_answers_score_100_with_an_interval(dev, name):
    """In every metric, and in every resample, so that the interval is about the examples that were not seen.

    No official definition stands in the way on the sample: all 30 relations occur in it, no answer is so long that
    difflib may miss it, and without a wrong head the LAS has no WRONG class.
    """
    task, examples = TASKS[name], dev[name]
    scores = score(task, examples, baseline("oracle", task, examples), rounds=50)
    assert [s.id for s in scores] == list(task.metrics)
    clusters = len(set(example_clusters(task, examples)))
    for s in scores:
        assert (s.value, s.high) == pytest.approx((100, 100), abs=1e-9), s.id
        assert s.low < 100 * 0.025 ** (1 / clusters) + 1e-9, s.id


@NAMED
def test_one_example_has_a_wide_interval(dev, name):
    """Whatever it scores: there is nothing to resample."""
    task, examples = TASKS[name], dev[name][:1]
    for answers in (baseline("oracle", task, examples), make_mixed(task, examples), make_mixed(task, examples, seed=1)):
        for s in score(task, examples, answers, rounds=50):
            assert math.isnan(s.value) or s.high - s.low > 95, s


@NAMED
def test_order_does_not_matter(dev, name):
    task, examples = TASKS[name], dev[name]
    predictions = make_mixed(task, examples)
    order = random.Random(1).sample(range(len(examples)), len(examples))
    moved = compute_values(task, [examples[k] for k in order], [predictions[k] for k in order])
    assert moved == pytest.approx(compute_values(task, examples, predictions), abs=1e-9)


@NAMED
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_repetitions(dev, name, seed):
    task, examples = TASKS[name], dev[name]
    predictions = make_mixed(task, examples, seed)
    weights = np.random.default_rng(seed).integers(0, 4, len(examples))
    rows = np.repeat(np.arange(len(examples)), weights)
    repeated = compute_values(task, [examples[row] for row in rows], [predictions[row] for row in rows])
    for id_, statistic in measure(task, examples, predictions).items():
        assert statistic.values(weights[None])[0] == pytest.approx(repeated[id_], abs=1e-9, nan_ok=True), id_


@NAMED
def test_swapped_answers(dev, name):
    """Comparisons swap the answers of two systems, which may have answered different labels."""
    task, examples = TASKS[name], dev[name][:60]
    systems = [baseline("oracle", task, examples), make_mixed(task, examples), baseline("random", task, examples)]
    swap = np.stack([np.zeros(60), np.ones(60), np.arange(60) % 2])
    for a, b in ((0, 1), (1, 2), (2, 0)):
        measured = [measure(task, examples, systems[k]) for k in (a, b)]
        changed = [
            [x if keep else y for x, y, keep in zip(systems[k], systems[j], swap[2] == 0, strict=True)]
            for k, j in ((a, b), (b, a))
        ]
        if task.name == "sts":  # standardised per system before they are swapped
            changed = []
        expected = [compute_values(task, examples, predictions) for predictions in changed]
        for id_, statistic in measured[0].items():
            found = statistic.swap_answers(measured[1][id_], swap)
            own = [statistic.value(), measured[1][id_].value()]
            assert [side[0] for side in found] == pytest.approx(own, abs=1e-9, nan_ok=True), id_
            assert [side[1] for side in found] == pytest.approx(own[::-1], abs=1e-9, nan_ok=True), id_
            for side, swapped in zip(found, expected, strict=False):
                assert side[2] == pytest.approx(swapped[id_], abs=1e-9, nan_ok=True), id_


@pytest.mark.parametrize(
    "name", [name for name, task in TASKS.items() if any("@official" not in id_ for id_ in task.metrics)]
)
@pytest.mark.parametrize("seed", range(3))
def test_worse_answers_never_score_higher(dev, name, seed):
    """One right answer after another goes wrong, and no corrected metric rises on the way.

    Areas under curves may rise with a single answer, in a label that is answered make_worse than by chance; they are
    looked at in steps of a quarter. The official macro forms promise nothing.
    """
    task, rng = TASKS[name], random.Random(seed)
    examples = rng.sample(dev[name], 40)
    answers = [prediction.answer for prediction in baseline("oracle", task, examples)]
    corrected = [id_ for id_ in task.metrics if "@official" not in id_]
    before = dict.fromkeys(corrected, 100.0)
    for done in range(len(examples) + 1):
        now = compute_values(task, examples, make_predictions(examples, answers, task))
        for id_ in corrected:
            if not math.isnan(now[id_]) and (id_ not in RANKED or done % 10 == 0):
                assert now[id_] <= before[id_] + 1e-9, (id_, done)
                before[id_] = now[id_]
        if done < len(examples):
            answers[done] = make_worse(task, examples[done], rng)
    assert all(before[id_] < 100 for id_ in corrected)


@NAMED
def test_intervals_hold_the_score_and_repeat(dev, name):
    task, examples = TASKS[name], dev[name]
    predictions = make_mixed(task, examples)
    first, second, other = (score(task, examples, predictions, rounds=200, seed=seed) for seed in (0, 0, 1))
    assert first == second != other
    for s in first:
        assert s.low <= s.value <= s.high
        assert s.n == len(examples)


def test_absent_labels_are_named(dev):
    task, examples = TASKS["re"], dev["re"][:5]
    scores = {s.id: s for s in score(task, examples, baseline("oracle", task, examples), rounds=20)}
    official = scores["re/auprc@official-1"]
    assert math.isnan(official.value)
    assert "labels do not occur in gold" in official.note
    assert official.as_dict()["value"] is official.as_dict()["interval"] is None
    assert scores["re/auprc@present-1"].value == 100


def test_skipping_and_order(dev):
    task, examples = TASKS["re"], dev["re"]
    predictions = [Prediction(p.guid, p.answer) for p in baseline("oracle", task, examples)]
    assert [s.id for s in score(task, examples, predictions, rounds=0)] == [m for m in task.metrics if m not in RANKED]
    kept = score(task, examples, predictions, rounds=0, skip=["re/accuracy@plain-1"])
    assert "re/accuracy@plain-1" not in [s.id for s in kept]
    with pytest.raises(ValueError, match="same order"):
        score(task, examples, predictions[::-1])


@dataclass
class Encoding:
    """What a tokenizer returns, as far as it is read."""

    offsets: list[tuple[int, int]]


class PairTokenizer:
    """Splits a text into tokens of two characters, between two special tokens."""

    def encode(self, text: str) -> Encoding:
        tokens = [(start, min(start + 2, len(text))) for start in range(0, len(text), 2)]
        return Encoding([(0, 0), *tokens, (0, 0)])


def test_scores_on_tokens(dev):
    """A wrong tag on the second character of a token is not seen, nor anything in the longest sentence of a batch."""
    task, examples = TASKS["ner"], sorted(dev["ner"], key=lambda example: len(example.text))
    right = baseline("oracle", task, examples)
    hidden = [
        Prediction(p.guid, tuple(tag if k % 2 == 0 else "O" for k, tag in enumerate(p.answer))) for p in right[:-1]
    ]
    blank = Prediction(right[-1].guid, ("O",) * len(right[-1].answer))
    extra = measure_tokens(examples, [*hidden, blank], PairTokenizer(), batch=len(examples))
    assert list(extra) == list(SUBWORD_METRICS)
    assert [statistic.value() for statistic in extra.values()] == pytest.approx([100, 100])
    scores = score(task, examples, [*hidden, blank], rounds=20, extra=extra)
    assert [s.id for s in scores] == [*task.metrics, *SUBWORD_METRICS]
    assert scores[0].value < 50
