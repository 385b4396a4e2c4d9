"""Prompt files: a system part for the task and a user part for each example, with placeholders."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from danseo.errors import DanseoError
from danseo.files import read_text
from danseo.tasktypes.base import Task

_PART = re.compile(r"^== (system|user|end) ==\n", re.MULTILINE)
_BUNDLED = {
    "classification": "classify",
    "multilabel": "multilabel",
    "multiple_choice": "choices",
    "relation": "re",
    "regression": "score",
    "tagging": "ner",
    "parsing": "dp",
    "question_answering": "mrc",
    "dialogue_state": "wos",
}
"""Task type -> its prompt, for own tasks and for English; pairs have their own."""
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class PromptTemplate:
    """The two parts of a prompt file."""

    text: str
    system: str
    user: str
    name: str

    @property
    def sha256(self) -> str:
        """Return the hash that identifies the prompt in the settings of a run."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def check(self, known: Sequence[str], required: Sequence[str]) -> None:
        """Refuse unknown placeholders, and a prompt without a required one."""
        found = set(_PLACEHOLDER.findall(self.system + self.user))
        if unknown := sorted(found - set(known)):
            raise DanseoError(f"{self.name}: nothing fills {{{{{unknown[0]}}}}}; known ones: {', '.join(known)}")
        if missing := [name for name in required if name not in found and f"{name}_json" not in found]:
            raise DanseoError(f"{self.name}: the prompt has no {{{{{missing[0]}}}}}; add it to the part == user ==")


def fill_template(text: str, values: Mapping[str, str]) -> str:
    """Replace placeholders once; values are not searched for placeholders."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def load_template(task: Task, shape: str = "json", path: Path | None = None, language: str = "ko") -> PromptTemplate:
    """Load a prompt file of the user, or the bundled one of the task or its type in a language."""
    if path:
        return parse_template(read_text(path), str(path))
    usual = _BUNDLED[task.type.name] + ("-pair" if task.is_pair else "")
    stem = (usual if task.custom or language != "ko" else task.name) + (f"-{shape}" if shape != "json" else "")
    stem += "" if language == "ko" else f"-{language}"
    folder = files("danseo.models.llm") / "templates"
    own = [f"own-{stem}"] if task.custom else []
    name = next(each for each in (*own, stem) if (folder / f"{each}.txt").is_file())
    return parse_template((folder / f"{name}.txt").read_text("utf-8"), f"the prompt {name}.txt")


def load_saved_template(folder: Path) -> PromptTemplate:
    """Load the prompt that a run saved in its model folder."""
    return parse_template(read_text(folder / "prompt.txt"), str(folder / "prompt.txt"))


def parse_template(text: str, name: str) -> PromptTemplate:
    """Parse the text of a prompt file."""
    parts = _PART.split(text.replace("\r\n", "\n"))
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    if missing := [part for part in ("system", "user") if not found.get(part, "").strip()]:
        raise DanseoError(f"{name}: no part == {missing[0]} ==; a prompt has the lines == system == and == user ==")
    return PromptTemplate(text, found["system"].strip("\n"), found["user"].strip("\n"), name)
