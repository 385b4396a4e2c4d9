"""Task files: the TOML file that describes a custom task, and the data files that it names."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from danseo.encodings import is_known_encoding
from danseo.errors import DataError, suggest
from danseo.files import find_path_fault, quote, read_toml
from danseo.language import _
from danseo.tasks.custom.annotations import FORMATS, OFFSETS, is_brat
from danseo.tasks.custom.tables import fetch_hub_file, parse_hub_name
from danseo.tasktypes import CUSTOM_TYPES, TASK_TYPES
from danseo.tasktypes.description import TaskDescription

_PATHS = ("train", "dev", "folder", "name")
_MAX_NAME = 150  # bytes: the name of a run folder contains it together with the name of the model
_KEYS = tuple(key.name for key in fields(TaskDescription))


def read_description(path: Path, folder: Path | None = None) -> TaskDescription:
    """Return the description in a task file, or in the one that a run keeps."""
    document = read_toml(path)
    for key in document:
        if key not in _KEYS:
            hint = suggest(key, _KEYS) or _("known: {names}").format(names=", ".join(_KEYS))
            raise DataError(_("{path}: unknown key {key!r}; {hint}").format(path=path, key=key, hint=hint))
    document = {"name": path.stem, "folder": str((folder or path.parent).absolute()), **document}
    if document.get("type") not in CUSTOM_TYPES:
        raise DataError(
            _("{path}: type = {value}: should be one of {names}").format(
                path=path, value=quote(document.get("type")), names=", ".join(CUSTOM_TYPES)
            )
        )
    values = {key: _validate_value(path, key, value) for key, value in document.items()}
    return _check_description(TaskDescription(**values), path)


def _validate_value(path: Path, key: str, value: Any) -> Any:
    if key == "label_map":
        mapped = value.items() if isinstance(value, dict) else [("", None)]
        pairs = [(gold, name) for gold, names in mapped for name in (names if isinstance(names, list) else [names])]
        if not all(isinstance(name, str) for _gold, name in pairs):
            raise DataError(f'{path}: [label_map] should have lines gold = "predicted", or a list of predicted labels')
        return tuple(pairs)
    if key in ("labels", "choices", "scale"):
        value = [str(item) for item in value] if key == "choices" and isinstance(value, list) else value
        item_type = int | float if key == "scale" else str
        if not isinstance(value, list) or not all(isinstance(item, item_type) for item in value):
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
    if key in _PATHS and (fault := find_path_fault(value)):
        raise DataError(f"{path}: {key} = {quote(value)} {fault}; name a file or folder that can exist")
    if key == "name" and ("/" in value or len(value.encode()) > _MAX_NAME or value.strip(". ") == ""):
        raise DataError(f"{path}: name = {quote(value)} cannot name a run folder; choose a short name without /")
    return value


def _check_description(description: TaskDescription, path: Path) -> TaskDescription:
    if problem := TASK_TYPES[description.type].check_description(description):
        raise DataError(f"{path}: {problem}")
    if not description.label_separator.strip(" "):
        raise DataError(f"{path}: label_separator is empty; name the mark between labels, such as |")
    if len(description.separator) > 1:
        raise DataError(f"{path}: separator = {quote(description.separator)}: should be one character")
    if not description.train:
        raise DataError(_("{path}: train is missing; name the file of the training examples").format(path=path))
    if not description.dev:
        raise DataError(
            _("{path}: dev is missing; name its file, or hold out a share of train: dev = 0.1").format(path=path)
        )
    if _is_same_file(description):
        raise DataError(f"{path}: train and dev are the same file; hold out a share of it instead: dev = 0.1")
    for key, known in (("format", FORMATS), ("offsets", OFFSETS)):
        if (value := getattr(description, key)) and value not in known:
            raise DataError(f"{path}: {key} = {quote(value)}: should be one of {', '.join(known)}")
    if not is_known_encoding(description.encoding):
        raise DataError(f"{path}: encoding = {quote(description.encoding)} is not known; utf-8 and cp949 are")
    return description


def _is_same_file(description: TaskDescription) -> bool:
    """Return whether train and dev are one file; a dataset of the Hub has a split for each."""
    train, dev = description.train, str(description.dev)
    if description.share or ((data := parse_hub_name(train)) and train == dev and not (data.split or data.file)):
        return False
    paths = (Path(description.folder, name).expanduser().resolve() for name in (train, dev))
    return next(paths) == next(paths)


def find_data_file(description: TaskDescription, split: str, root: Path | None = None) -> Path | None:
    """Return the file of a split: next to the task file or in the data folder, plain or .gz; else from the Hub."""
    role = "train" if split == "train" or description.share else "dev"
    name = str(getattr(description, role))
    folders = [Path(description.folder), *([root] if root else [])]
    candidates = (folder / f"{Path(name).expanduser()}{suffix}" for folder in folders for suffix in ("", ".gz"))
    if found := next((path for path in candidates if path.is_file() or is_brat(path)), None):
        return found
    data = parse_hub_name(name)
    return fetch_hub_file(data, role) if data else None
