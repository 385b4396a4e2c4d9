"""Corrupted data and prediction files are read, or refused with a DanseoError."""

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

from danseo.data.prediction_file import read_predictions, write_predictions
from danseo.errors import DanseoError
from danseo.scoring.score import baseline, score
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task

from .damage import HUB_DAMAGES, JSON_DAMAGES, TSV_DAMAGES, Damage, damaged
from .data.test_download import HUB, parquet_bytes

DATA_FILES = 120  # per task; `make attack` makes many more
HUB_FILES = 50
PREDICTION_FILES = 120
EXAMPLES = 4


def shorten(task: Task, path: Path) -> bytes:
    """Return the first few examples of a file."""
    text = path.read_text()
    if task.extension == ".tsv":
        return "".join(re.findall(r"## \S+\t.*\n(?:[^#\n].*\n|#\t.*\n)+\n?", text)[:EXAMPLES]).encode()
    document = json.loads(text)
    if isinstance(document, dict):
        document["data"] = document["data"][:EXAMPLES]
    else:
        document = document[: EXAMPLES // 2 if task.name == "wos" else EXAMPLES]
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def try_reading(path: Path, what: str, read: Callable[[], Any]) -> Any:
    """Return what was read, or None if it was refused in one line; fail on anything else."""
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


def check_usable(task: Task, examples: list[Any], path: Path, what: str) -> None:
    """Check that examples can be written, and that their gold answers can be read back and scored."""
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
        examples = try_reading(path, what, partial(task.read, path))
        if examples is not None:
            check_usable(task, examples, path.with_name("oracle.jsonl"), what)
        counts["refused" if examples is None else "read"] += 1
    return counts


@pytest.mark.parametrize("name", TASKS)
def test_corrupted_data_is_read_or_refused(name: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    content = shorten(task, sample / task.folder / task.file("dev"))
    path = tmp_path / task.file("dev")
    path.write_bytes(content)
    assert len(task.read(path)) >= EXAMPLES
    damages = TSV_DAMAGES if task.extension == ".tsv" else JSON_DAMAGES
    counts = fuzz(task, path, content, damages, DATA_FILES, f"data {name}")
    assert min(counts["read"], counts["refused"]) > DATA_FILES / 8  # else the damages would prove little


@pytest.mark.parametrize("name", ["ynat", "ner", "dp", "mrc"])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_corrupted_hub_files_are_read_or_refused(name: str, compression: str, tmp_path: Path) -> None:
    task = TASKS[name]
    path = tmp_path / "validation-00000-of-00001.parquet"
    pq.write_table(pq.read_table(pa.BufferReader(parquet_bytes(HUB[name]))), path, compression=compression)
    assert task.read(path)
    counts = fuzz(task, path, path.read_bytes(), HUB_DAMAGES, HUB_FILES, f"hub {name} {compression}")
    assert counts["refused"] > HUB_FILES / 4


@pytest.mark.parametrize("name", TASKS)
def test_corrupted_predictions_are_read_or_refused(name: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    examples = task.read(sample / task.folder / task.file("dev"))[:EXAMPLES]
    path = tmp_path / "predictions.jsonl"
    write_predictions(path, baseline("oracle", task, examples))
    content, counts = path.read_bytes(), Counter[str]()
    for number in range(PREDICTION_FILES):
        broken, what = damaged(content, JSON_DAMAGES, f"predictions {name}", number)
        path.write_bytes(broken)
        read = partial(read_predictions, path, task, examples, partial=number % 2 == 0)
        predictions = try_reading(path, what, read)
        counts["refused" if predictions is None else "read"] += 1
        if predictions:
            write_predictions(path, predictions)
            answered = [example for example in examples if example.guid in {p.guid for p in predictions}]
            score(task, answered, predictions, rounds=0)
    assert min(counts["read"], counts["refused"]) > PREDICTION_FILES / 8
