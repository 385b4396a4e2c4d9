"""The text of a prompt: a file with a part for the task and one for each example, with places for what they hold."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from danseo.errors import DanseoError
from danseo.files import read_text
from danseo.tasks.task import Task

_PART = re.compile(r"^== (system|user|end) ==\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class Template:
    """What is asked: once of the task, and of every example."""

    text: str
    system: str
    user: str
    name: str

    @property
    def sha256(self) -> str:
        """What the run is known by: another prompt is another run."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def check(self, known: Sequence[str], required: Sequence[str]) -> None:
        """Refuse placeholders that nothing fills, and a prompt that leaves out what the example is."""
        found = set(_PLACEHOLDER.findall(self.system + self.user))
        if unknown := sorted(found - set(known)):
            raise DanseoError(f"{self.name}: nothing fills {{{{{unknown[0]}}}}}; known ones: {', '.join(known)}")
        if missing := [name for name in required if name not in found and f"{name}_json" not in found]:
            raise DanseoError(f"{self.name}: the prompt has no {{{{{missing[0]}}}}}; add it to the part == user ==")


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with all its placeholders filled; what fills them is not looked at again."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def load_template(task: Task, shape: str = "json", path: Path | None = None) -> Template:
    """The user's own file, or the one that comes with danseo."""
    if path:
        return parsed(read_text(path), str(path))
    name = f"{task.name}-{shape}" if shape != "json" else task.name
    folder = files("danseo.models.llm") / "templates"
    for stem in (name, *(("classify",) if task.kind == "classify" else ())):
        if (found := folder / f"{stem}.txt").is_file():
            return parsed(found.read_text("utf-8"), f"the prompt {stem}.txt")
    raise DanseoError(f"danseo has no prompt for {task.name} ({task.kind}); write one and name it with --prompt FILE")


def parsed(text: str, name: str) -> Template:
    """A template from its text."""
    parts = _PART.split(text.replace("\r\n", "\n"))
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    if missing := [part for part in ("system", "user") if not found.get(part, "").strip()]:
        raise DanseoError(f"{name}: no part == {missing[0]} ==; a prompt has the lines == system == and == user ==")
    return Template(text, found["system"].strip("\n"), found["user"].strip("\n"), name)
