"""Which examples a run answered: nobody is to take a score on a sample, or on a part, for one on KLUE."""

import json
from collections.abc import Iterator
from contextlib import suppress

from danseo.runs.index import Record

SAMPLE = "danseo-sample"


def dataset_of(record: Record) -> str:
    """The dataset as the Hub calls it; the built-in sample and a user's own task are not there."""
    if record.run.task.own:
        return record.task
    return SAMPLE if is_of_sample(record) else "klue/klue"


def is_of_sample(record: Record) -> bool:
    """Whether the run answered the built-in sample, by the name of its first example."""
    return "-sample_" in next(_guids(record), "")


def part_of_dev(record: Record) -> str:
    """In words, how much of KLUE's dev set was answered, where it was not all; dialogues are not counted."""
    task, answered = record.run.task, sum(1 for _ in _guids(record))
    whole = task.official_rows.get("dev") if task.official_rows and task.kind != "track" else None
    return f"{answered:,} of {whole:,} examples of dev" if whole and answered and answered < whole else ""


def _guids(record: Record) -> Iterator[str]:
    """Of the examples that were answered, as far as the file can be read."""
    path, errors = record.run.path / "predictions" / "dev.jsonl", (OSError, ValueError, KeyError, TypeError)
    with suppress(*errors), path.open(encoding="utf-8") as file:
        for line in file:
            yield str(json.loads(line)["guid"])
