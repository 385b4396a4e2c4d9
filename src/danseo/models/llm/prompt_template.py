"""Prompt files with placeholders, and the few-shot examples of a prompt."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.files import read_text
from danseo.tasktypes.base import Task
from danseo.text.normalization import compose

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


_NEIGHBOURS = 20000
"""Maximum number of training examples that are searched for the nearest."""


def join_texts(example: Any) -> str:
    """Return all texts of an example, without its gold answer."""
    parts = [getattr(example, name, None) for name in ("text", "pair", "question")]
    parts += list(getattr(example, "turns", ())) + list(getattr(example, "words", ()))
    return compose(" ".join(" ".join(part for part in parts if part).split()))


def drop_dev_texts(train: Sequence[Any], dev: Sequence[Any]) -> list[Any]:
    """Return the training examples whose text is not in dev."""
    known = {join_texts(example) for example in dev}
    known |= {compose(example.text) for example in dev if hasattr(example, "question")}  # a passage with its answers
    return [e for e in train if join_texts(e) not in known and compose(getattr(e, "text", "") or "") not in known]


def sample_shots(train: Sequence[Any], count: int, seed: int, group: Callable[[Any], str]) -> list[Any]:
    """Choose few-shot examples by seed, from every group (such as a label) in turn."""
    if len(train) < count:
        raise DanseoError(f"prompt.shots = {count}: only {len(train)} training examples have a text that is not in dev")
    mixed = sorted(train, key=lambda e: hashlib.sha256(f"{seed} {e.guid}".encode()).digest())
    groups: dict[str, list[Any]] = {}
    for example in mixed:
        groups.setdefault(group(example), []).append(example)
    chosen: list[Any] = []
    while len(chosen) < count:
        for members in groups.values():
            if members and len(chosen) < count:
                chosen.append(members.pop(0))
    return chosen


class NearestShots:
    """Index of training examples by TF-IDF of character n-grams."""

    def __init__(self, train: Sequence[Any], texts: Sequence[str] | None = None) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.train = list(train[:_NEIGHBOURS])
        self.texts = list(texts) if texts is not None else [join_texts(example) for example in self.train]
        self.vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), sublinear_tf=True)
        self.matrix = self.vectorizer.fit_transform(self.texts)

    def find(self, examples: Sequence[Any], count: int) -> list[list[Any]]:
        """Return the nearest training examples of each example, the nearest last."""
        found: list[list[Any]] = []
        for first in range(0, len(examples), 256):
            texts = [join_texts(example) for example in examples[first : first + 256]]
            scores = (self.vectorizer.transform(texts) @ self.matrix.T).toarray()
            for row in scores:
                best = row.argsort(kind="stable")[::-1][:count]
                found.append([self.train[position] for position in best[::-1]])
        return found
