"""A task of the user's own, as a TOML file describes it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.files import quote, read_toml
from danseo.tasks.own.hub_data import hub_data, hub_file

KINDS = ("classify", "labels", "choose", "score", "tag", "relation", "parse", "answer")
_NEEDED = {
    "classify": ("text", "label"),
    "labels": ("text",),
    "score": ("text", "label"),
    "choose": ("text", "label", "choices"),
    "relation": ("text", "subject", "object", "label"),
}
_WHERE = ("train", "dev", "folder", "name")
"""What says where the data is, and nothing about what is learnt."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """What the file says; columns by name, as the data's header or its JSON objects have them."""

    name: str
    folder: str
    """Where the task file is: the data's paths start there."""
    kind: str
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
    """The label that says that there is nothing to find."""
    choices: tuple[str, ...] = ()
    """The columns of the candidates, in the order of the labels."""
    labels: tuple[str, ...] = ()
    label_separator: str = ","
    """What stands between the labels of a text that has several."""
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

    @property
    def share(self) -> float:
        """How much of train is held out as dev; 0 where dev is a file."""
        return self.dev if isinstance(self.dev, float) else 0.0

    @property
    def identity(self) -> str:
        """A hash of all that results depend on, wherever the data is."""
        kept = {key: value for key, value in self.as_document().items() if key not in (*_WHERE, *_WORDS)}
        kept |= {"dev": self.share} if self.share else {}
        return hashlib.sha256(json.dumps(kept, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]

    def as_document(self) -> dict[str, Any]:
        """What differs from the defaults."""
        values = {key.name: getattr(self, key.name) for key in fields(self)}
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        defaults = {key.name: key.default for key in fields(self)}
        return {key: value for key, value in plain.items() if value not in (defaults[key], [])}

    def as_toml(self) -> str:
        """The description as a file that reads back to it, for the run directory."""
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in self.as_document().items()]
        return "# The task of this run, with the labels that it learnt.\n" + "\n".join(lines) + "\n"


_WORDS = ("title", "source", "licence")


def read_description(path: Path, folder: Path | None = None) -> Description:
    """The description of a task file, or of the one that a run keeps."""
    document = read_toml(path)
    given = {key.name for key in fields(Description)}
    for key in document:
        if key not in given:
            near = get_close_matches(key, given, 1)
            raise DataError(f"{path}: unknown key {key!r}; " + (f"did you mean {near[0]}?" if near else _KEYS))
    document = {"name": path.stem, "folder": str((folder or path.parent).absolute()), **document}
    if document.get("kind") not in KINDS:
        raise DataError(f"{path}: kind = {quote(document.get('kind'))}: should be one of {', '.join(KINDS)}")
    return _checked(Description(**{key: _typed(path, key, value) for key, value in document.items()}), path)


_KEYS = f"known: {', '.join(key.name for key in fields(Description))}"


def _typed(path: Path, key: str, value: Any) -> Any:
    if key in ("labels", "choices", "scale"):
        value = [str(item) for item in value] if key == "choices" and isinstance(value, list) else value
        due = int | float if key == "scale" else str
        if not isinstance(value, list) or not all(isinstance(item, due) for item in value):
            raise DataError(f"{path}: {key} should be a list of {'two numbers' if key == 'scale' else 'texts'}")
        return tuple(value)
    if key in ("header", "quotes", "lower"):
        if not isinstance(value, bool):
            raise DataError(f"{path}: {key} should be true or false, not {quote(value)}")
        return value
    if key == "dev" and isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 < value < 1:
            raise DataError(f"{path}: dev = {value}: a share should be between 0 and 1, such as 0.1")
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # columns without a header are numbered
    if not isinstance(value, str):
        raise DataError(f"{path}: {key} should be a text, not {quote(value)}")
    return value


def _checked(description: Description, path: Path) -> Description:
    for key in _NEEDED.get(description.kind, ()):
        if not getattr(description, key):
            raise DataError(f"{path}: {key} is missing; name the column that holds it")
    if description.kind == "labels" and not description.label and len(description.labels) < 2:
        raise DataError(f"{path}: name the column of the labels (label), or the columns that hold 0 or 1 (labels)")
    if not description.label_separator.strip(" "):
        raise DataError(f"{path}: label_separator is empty; name what stands between labels, such as |")
    if len(description.separator) > 1:
        raise DataError(f"{path}: separator = {quote(description.separator)}: should be one character")
    if not description.train:
        raise DataError(f"{path}: train is missing; name the file of the training examples")
    if not description.dev:
        raise DataError(f"{path}: dev is missing; name its file, or hold out a share of train: dev = 0.1")
    if _is_same(description):
        raise DataError(f"{path}: train and dev are the same file; hold out a share of it instead: dev = 0.1")
    try:
        "".encode(description.encoding)
    except LookupError:
        raise DataError(f"{path}: encoding = {quote(description.encoding)} is not known; utf-8 and cp949 are") from None
    return description


def _is_same(description: Description) -> bool:
    """Whether train and dev are one file; a dataset of the Hub has a split for each."""
    train, dev = description.train, str(description.dev)
    if description.share or ((data := hub_data(train)) and train == dev and not (data.split or data.file)):
        return False
    return _location(description, train) == _location(description, dev)


def _location(description: Description, name: str) -> Path:
    return Path(description.folder, name).expanduser().resolve()


def data_file(description: Description, split: str, root: Path | None = None) -> Path | None:
    """The file of a split: beside the task file or in the data folder, plain or .gz; else on the Hub, fetched once."""
    role = "train" if split == "train" or description.share else "dev"
    name = str(getattr(description, role))
    folders = [Path(description.folder), *([root] if root else [])]
    candidates = (folder / f"{Path(name).expanduser()}{suffix}" for folder in folders for suffix in ("", ".gz"))
    if found := next((path for path in candidates if path.is_file()), None):
        return found
    data = hub_data(name)
    return hub_file(data, role) if data else None


def with_labels(description: Description, found: Mapping[str, Any]) -> Description:
    """The description with what was learnt from the data."""
    return replace(description, **found)
