"""A custom task, as its task file describes it."""

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any

_LOCATION = ("train", "dev", "folder", "name")
"""Where the data is; it does not change what is learned."""
_PROSE = ("title", "source", "licence")


@dataclass(frozen=True, kw_only=True)
class TaskDescription:
    """The contents of a task file; columns by name, as the data's header or its JSON objects have them."""

    name: str
    folder: str
    """Where the task file is: the paths of the data start there."""
    type: str
    train: str = ""
    dev: str | float = ""
    """A file, or the share of train that is held out."""
    text: str = ""
    pair: str = ""
    label: str = ""
    question: str = ""
    answer: str = ""
    answer_start: str = ""
    subject: str = ""
    object: str = ""
    spans: str = ""
    group: str = ""
    id: str = ""
    none: str = ""
    """The label for examples in which there is nothing to find."""
    choices: tuple[str, ...] = ()
    """The columns of the candidates, in the order of the labels."""
    labels: tuple[str, ...] = ()
    label_separator: str = ","
    """The mark between the labels of a multilabel text."""
    scale: tuple[float, ...] = ()
    title: str = ""
    headline: str = ""
    source: str = ""
    licence: str = ""
    separator: str = ""
    encoding: str = "utf-8"
    lower: bool = False
    """Whether True and TRUE are the same label, true."""
    header: bool = True
    quotes: bool | None = None
    """Whether "…" may hold separators and line ends; by default in CSV and not in TSV."""
    format: str = ""
    """The annotation tool that wrote the files; empty for plain rows."""
    offsets: str = ""
    """The unit of span offsets if the marked text is not stored: characters, or UTF-16 units."""

    label_map: tuple[tuple[str, str], ...] = ()
    """Pairs of a gold label and a label of runs that were trained on other data; "" has no counterpart."""

    @property
    def share(self) -> float:
        """How much of train is held out as dev; 0 if dev is a file."""
        return self.dev if isinstance(self.dev, float) else 0.0

    @property
    def identity(self) -> str:
        """A hash of everything that results depend on, wherever the data is."""
        values = {key: value for key, value in self.as_document().items() if key not in (*_LOCATION, *_PROSE)}
        values |= {"dev": self.share} if self.share else {}
        return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]

    def as_document(self) -> dict[str, Any]:
        """Return what differs from the defaults."""
        values = {key.name: getattr(self, key.name) for key in fields(self) if key.name != "label_map"}
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        defaults = {key.name: key.default for key in fields(self)}
        return {key: value for key, value in plain.items() if value not in (defaults[key], [])}

    def as_toml(self) -> str:
        """Return the description as a task file, for the run directory."""
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in self.as_document().items()]
        return "# The task of this run, with the labels that it learnt.\n" + "\n".join(lines) + "\n"
