"""The replies of a finished run that could not be read, read once more."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.files import parse_json, read_text
from danseo.models.llm.asking import Asking
from danseo.models.llm.kinds import make_asking
from danseo.models.llm.prompted import saved_template
from danseo.runs.directory import Run
from danseo.tasks.task import Task

CALLS = "calls.jsonl"


@dataclass(frozen=True)
class Failed:
    """An example whose last reply has no answer."""

    example: Any
    text: str
    problems: tuple[str, ...]


def failed_replies(run: Run, task: Task, examples: Sequence[Any]) -> list[Failed]:
    """Those of the examples; an example that was asked about in parts, or a run that kept no replies, has none."""
    last = {str(call["guid"]): call for call in _calls(run.path / CALLS)}
    try:
        asking = _asking(run, task)
    except (DanseoError, OSError, KeyError, TypeError):
        return []  # not saved, or not what danseo writes
    found = []
    for example in examples:
        call = last.get(example.guid)
        if call and not call.get("weights"):
            reply = asking.read(example, str(call["text"]), call.get("finish"))
            found += [Failed(example, str(call["text"]), tuple(+reply.errors))] if reply.has_failed else []
    return found


def _asking(run: Run, task: Task) -> Asking:
    folder = run.path / "model"
    asking = make_asking(task, run.config.prompt, saved_template(folder))
    asking.restore(parse_json(read_text(folder / "prompt.json"), folder / "prompt.json")["state"])
    return asking


def _calls(path: Path) -> Iterator[dict[str, Any]]:
    """The calls in their order; a line that a kill cut off is none."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []
    except OSError:
        return
    for line in lines:
        try:
            call = json.loads(line)
        except ValueError:
            continue
        if isinstance(call, dict) and "guid" in call and "text" in call:
            yield call
