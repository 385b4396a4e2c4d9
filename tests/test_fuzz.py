"""Damaged files: whatever happens to a data or prediction file, nothing but a DanseoError ever comes out."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from danseo.errors import DanseoError
from danseo.predictions.file import read_predictions, write_predictions
from danseo.scoring.baselines import baseline
from danseo.scoring.score import score
from danseo.tasks import TASKS
from danseo.tasks.ner import HUB_LABELS
from danseo.tasks.task import Task

from .damage import HUB_DAMAGES, JSON_DAMAGES, TSV_DAMAGES, Damage, damaged

DATA_FILES = 320  # per task, so 2,560 in all
HUB_FILES = 120
PREDICTION_FILES = 300
EXAMPLES = 4


def shortened(task: Task, path: Path) -> bytes:
    """The first few examples of a file."""
    text = path.read_text()
    if task.extension == ".tsv":
        return "".join(re.findall(r"## \S+\t.*\n(?:[^#\n].*\n|#\t.*\n)+\n?", text)[:EXAMPLES]).encode()
    document = json.loads(text)
    if isinstance(document, dict):
        document["data"] = document["data"][:EXAMPLES]
    else:
        document = document[: EXAMPLES // 2 if task.name == "wos" else EXAMPLES]
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def outcome(path: Path, what: str, read: Callable[[], Any]) -> Any:
    """What was read, or None for a proper refusal; anything else fails the test."""
    try:
        return read()
    except DanseoError as error:
        message = str(error)
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {str(error)[:300]}")
    assert str(path) in message, f"{what}: the message does not name the file: {message}"
    assert len(message.splitlines()) == 1, f"{what}: not one line: {message}"
    assert len(message) < 1500, f"{what}: too long: {message}"
    assert message.encode()
    return None


def use(task: Task, examples: list[Any], path: Path, what: str) -> None:
    """What everything else relies on: examples can be written, and their gold answers read back and score."""
    try:
        json.dumps([asdict(example) for example in examples], ensure_ascii=False, allow_nan=False).encode()
        predictions = baseline("oracle", task, examples)
        write_predictions(path, predictions)
        assert read_predictions(path, task, examples) == predictions
        values = [s.value for s in score(task, examples, predictions, rounds=0)]
        assert all(math.isnan(value) or value == pytest.approx(100) for value in values)
    except Exception as error:
        pytest.fail(f"{what}: read, but not usable: {type(error).__name__}: {str(error)[:300]}")


def fuzz(task: Task, path: Path, content: bytes, damages: tuple[Damage, ...], files: int, seed: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number in range(files):
        broken, what = damaged(content, damages, seed, number)
        path.write_bytes(broken)
        examples = outcome(path, what, partial(task.read, path))
        if examples is not None:
            use(task, examples, path.with_name("oracle.jsonl"), what)
        counts["refused" if examples is None else "read"] += 1
    return counts


@pytest.mark.parametrize("name", TASKS)
def test_damaged_data_is_read_or_refused(name: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    content = shortened(task, sample / task.folder / task.file("dev"))
    path = tmp_path / task.file("dev")
    path.write_bytes(content)
    assert len(task.read(path)) >= EXAMPLES
    damages = TSV_DAMAGES if task.extension == ".tsv" else JSON_DAMAGES
    counts = fuzz(task, path, content, damages, DATA_FILES, f"data {name}")
    assert min(counts["read"], counts["refused"]) > DATA_FILES / 8  # else the damages would prove little


def hub_table(name: str, examples: list[Any]) -> pa.Table:
    """The examples in the Hub's columns."""
    makers: dict[str, Callable[[Any], dict[str, Any]]] = {
        "ynat": lambda e: {"guid": e.guid, "title": e.text, "label": 0, "url": "", "date": ""},
        "ner": lambda e: {
            "sentence": "",
            "tokens": list(e.text),
            "ner_tags": [HUB_LABELS.index(tag) for tag in e.gold],
        },
        "dp": lambda e: {
            "sentence": e.text,
            "index": list(range(1, len(e.words) + 1)),
            "word_form": e.words,
            "lemma": e.lemmas,
            "pos": e.pos,
            "head": [head for head, _ in e.gold],
            "deprel": [relation for _, relation in e.gold],
        },
        "mrc": lambda e: {
            "guid": e.guid,
            "title": e.title,
            "context": e.text,
            "question": e.question,
            "is_impossible": not e.gold,
            "question_type": e.question_type,
            "answers": {"answer_start": e.starts, "text": e.gold},
        },
    }
    return pa.Table.from_pylist([makers[name](example) for example in examples])


@pytest.mark.parametrize("name", ["ynat", "ner", "dp", "mrc"])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_damaged_hub_files_are_read_or_refused(name: str, compression: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    path = tmp_path / "validation-00000-of-00001.parquet"
    examples = task.read(sample / task.folder / task.file("dev"))[:EXAMPLES]
    pq.write_table(hub_table(name, examples), path, compression=compression)
    assert len(task.read(path)) == EXAMPLES
    counts = fuzz(task, path, path.read_bytes(), HUB_DAMAGES, HUB_FILES, f"hub {name} {compression}")
    assert counts["refused"] > HUB_FILES / 4


@pytest.mark.parametrize("name", TASKS)
def test_damaged_predictions_are_read_or_refused(name: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    examples = task.read(sample / task.folder / task.file("dev"))[:EXAMPLES]
    path = tmp_path / "predictions.jsonl"
    write_predictions(path, baseline("oracle", task, examples))
    content, counts = path.read_bytes(), Counter[str]()
    for number in range(PREDICTION_FILES):
        broken, what = damaged(content, JSON_DAMAGES, f"predictions {name}", number)
        path.write_bytes(broken)
        read = partial(read_predictions, path, task, examples, partial=number % 2 == 0)
        predictions = outcome(path, what, read)
        counts["refused" if predictions is None else "read"] += 1
        if predictions:
            write_predictions(path, predictions)
            answered = [example for example in examples if example.guid in {p.guid for p in predictions}]
            score(task, answered, predictions, rounds=0)
    assert min(counts["read"], counts["refused"]) > PREDICTION_FILES / 8
