"""The table of tasks."""

from dataclasses import replace
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Any

from danseo.errors import UnknownTask
from danseo.rows import check_unique
from danseo.tasks import dp, mrc, ner, nli, relation, sts, wos, ynat
from danseo.tasks.own import own_task
from danseo.tasks.task import Task


def _guarded(task: Task) -> Task:
    """The task with a reader that also refuses files without examples and repeated guids."""

    @wraps(task.read)
    def read(path: Path) -> list[Any]:
        examples = task.read(path)
        check_unique([example.guid for example in examples], path)
        return examples

    return replace(task, read=read)


TASKS = {module.TASK.name: _guarded(module.TASK) for module in (ynat, sts, nli, ner, relation, dp, mrc, wos)}


def get_task(name: str) -> Task:
    """The task of this name, in danseo's or KLUE's spelling, re and RE, ynat and TC; or that of a user's TOML file."""
    if name.endswith(".toml"):
        task = own_task(Path(name))
        if task.name in TASKS:
            raise UnknownTask(f"{name}: {task.name} is the name of a KLUE task; rename the file")
        return task
    for task in TASKS.values():
        if name.casefold() in (task.name, task.short.casefold()):
            return task
    if Path(name, "config.toml").is_file():
        raise UnknownTask(f"{name} is a run, not a task; `danseo eval` scores runs")
    near = get_close_matches(name.casefold(), [*TASKS, *(task.short.casefold() for task in TASKS.values())], 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UnknownTask(f"no task named {name!r}; {hint}`danseo tasks` lists all")
