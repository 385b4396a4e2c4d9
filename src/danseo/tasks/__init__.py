"""The registry of tasks: those of KLUE by name, custom ones by their task files."""

from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from danseo.errors import DataError, UnknownTask, suggest
from danseo.files import find_path_fault, quote
from danseo.language import _
from danseo.rows import check_unique
from danseo.tasks.custom import list_bundled_tasks, load_custom_task
from danseo.tasks.klue import dp, explain_wrong_file, mrc, ner, nli, re, sts, wos, ynat
from danseo.tasktypes.base import Task


def _guard_reader(task: Task) -> Task:
    """Return the task with a reader that also refuses files without examples and repeated guids."""

    @wraps(task.read)
    def read(path: Path) -> list[Any]:
        try:
            examples = task.read(path)
        except DataError as error:
            raise explain_wrong_file(error, path, task.name) from None
        check_unique([example.guid for example in examples], path)
        return examples

    return replace(task, read=read)


TASKS = {module.TASK.name: _guard_reader(module.TASK) for module in (ynat, sts, nli, ner, re, dp, mrc, wos)}


def get_task(name: str) -> Task:
    """Return the task of this name (re or RE, ynat or TC), or the custom task of a task file or a bundled one."""
    if name.endswith(".toml"):
        task = load_custom_task(Path(name))
        if task.name in TASKS:
            raise UnknownTask(f"{name}: {task.name} is the name of a KLUE task; rename the file")
        return task
    for task in TASKS.values():
        if name.casefold() in (task.name, task.short.casefold()):
            return task
    if fault := find_path_fault(name):
        raise UnknownTask(f"the name of the task, {quote(name)}, {fault}; `danseo tasks` lists all")
    if name in (bundled := list_bundled_tasks()):
        return load_custom_task(bundled[name])
    if Path(name, "config.toml").is_file():
        raise UnknownTask(_("{name} is a run, not a task; `danseo eval` scores runs").format(name=name))
    if Path(name).is_file():
        raise UnknownTask(
            _("{name} is a file, not a task; name a task before it, or describe it: `danseo data describe`").format(
                name=name
            )
        )
    known = [*TASKS, *bundled, *(task.short.casefold() for task in TASKS.values())]
    raise UnknownTask(
        _("no task named {name!r}; {hint}`danseo tasks` lists all").format(
            name=name, hint=suggest(name.casefold(), known)
        )
    )
