"""Dev in two halves: one picks the checkpoint, the other is reported."""

import hashlib
from collections.abc import Sequence
from typing import Any

from danseo.tasks.task import Task


def half_of(task: Task, example: Any) -> str:
    """select or report, by a fixed hash of the guid, or of the passage, premise or dialogue that examples share."""
    key = task.cluster(example) if task.cluster and _are_kept_together(task) else example.guid
    return "select" if hashlib.sha256(key.encode()).digest()[0] % 2 == 0 else "report"


def _are_kept_together(task: Task) -> bool:
    """Whether the task's rule looks at clusters; the first one did so for dialogues alone."""
    return task.halves >= 2 or task.kind == "track"


def in_half(task: Task, examples: Sequence[Any], half: str) -> list[int]:
    """The positions of the examples of one half; all of them for dev."""
    return [position for position, example in enumerate(examples) if half == "dev" or half_of(task, example) == half]
