"""The built-in sample: a small KLUE of sentences made from templates, in the official formats and file names."""

import json
import random
from importlib import import_module
from pathlib import Path
from typing import Any

from danseo.files import write_atomically
from danseo.tasks import TASKS
from danseo.tasks.task import Task


def tasks_with_sample() -> list[Task]:
    """The tasks that the sample has examples of."""
    return [task for task in TASKS.values() if task.sample]


def sample_module(task: Task) -> Any:
    """The module that makes a task's sample: make(split, rng), DEMO and, with other files, companions(labels)."""
    return import_module(f"{__name__}.{task.sample}")


def write_sample(folder: Path) -> list[Path]:
    """Write all files of the sample; the same ones every time."""
    contents: dict[Path, Any] = {}
    for task in tasks_with_sample():
        module = sample_module(task)
        for split in ("train", "dev"):
            rng = random.Random(f"danseo sample {task.name} {split}")
            contents[folder / task.folder / task.file(split)] = module.make(split, rng)
        if task.companions:
            contents |= {folder / task.folder / name: made for name, made in module.companions(task.labels).items()}
    for path, content in contents.items():
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        write_atomically(path, text)
    return list(contents)
