"""What `danseo data describe` makes of files: kind, columns, separator, header and encoding, as a task file."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from danseo.data.roles import NAMES, TAG, is_number, roles_of
from danseo.errors import DanseoError, DataError
from danseo.files import read_bytes
from danseo.tasks.own.description import Description
from danseo.tasks.own.encodings import complaint, encoding_of, odd_line
from danseo.tasks.own.hub_data import hub_data, hub_file
from danseo.tasks.own.tables import blocks_of, rows_of, suffix_of

_LOOKED_AT = 2000
_FEW = 1000  # rows; of fewer, a tenth would say too little of a model
_SHARE, _SHARE_OF_FEW = 0.1, 0.2


def describe_files(files: Sequence[Path], out: Path) -> str:
    """The text of a task file for one file (a share is held out) or two (train and dev)."""
    if not 1 <= len(files) <= 2:
        raise DanseoError("name one file, or two: train and dev")
    named = [(str(file), role) for file, role in zip(files, ("train", "dev"), strict=False)]
    files = [_found(file, role) for file, (_, role) in zip(files, named, strict=True)]
    path = files[0]
    encoding = _encoding(path)
    for file in files[1:]:
        _check_encoding(file, encoding, path)
    found: dict[str, Any] = {"encoding": encoding} if encoding != "utf-8" else {}
    base = Description(name=out.stem, folder=".", kind="classify", encoding=encoding)
    found |= _structure(path, base)
    paths = [name if hub_data(name) and not Path(name).is_file() else _relative(Path(name), out) for name, _ in named]
    if len(files) > 1 and found.get("label") and found["kind"] == "classify" and _differ_in_case(files, base, found):
        found["lower"] = True
    if found.get("id") and not all(_tells_apart(file, base, found) for file in files):
        del found["id"]
    share = found.pop("share", _SHARE)
    document = {"kind": found.pop("kind"), "train": paths[0], "dev": paths[1] if len(paths) > 1 else share, **found}
    return _written(document, path)


def _found(file: Path, role: str) -> Path:
    """The file itself, or what the Hub has under that name."""
    data = None if file.exists() else hub_data(str(file))
    return hub_file(data, role) if data else file


def _differ_in_case(files: Sequence[Path], base: Description, found: dict[str, Any]) -> bool:
    """Whether train and dev write the same labels with other capitals: TRUE and True."""
    seen = []
    for file in files:
        rows = islice(rows_of(file, _layout(base, found)), _LOOKED_AT)
        seen.append({str(row.values.get(found["label"])) for row in rows})
    return seen[0] != seen[1] and {x.lower() for x in seen[0]} == {x.lower() for x in seen[1]}


def _layout(base: Description, found: dict[str, Any]) -> Description:
    """How the rows of the files are to be read."""
    return replace(base, **{key: value for key, value in found.items() if key in ("separator", "header")})


def _tells_apart(file: Path, base: Description, found: dict[str, Any]) -> bool:
    """Whether the column of ids has no value twice in all of a file."""
    seen: set[str] = set()
    for row in rows_of(file, _layout(base, found)):
        value = str(row.values.get(found["id"]))
        if value in seen:
            return False
        seen.add(value)
    return True


def _relative(file: Path, out: Path) -> str:
    try:
        return file.resolve().relative_to(out.resolve().parent).as_posix()
    except ValueError:
        return str(file.resolve())


def _encoding(path: Path) -> str:
    if suffix_of(path) == ".parquet":
        return "utf-8"
    read_bytes(path)  # whatever is wrong with the file itself is said there
    if found := encoding_of(path):
        return found
    raise complaint(path)


def _check_encoding(path: Path, encoding: str, train: Path) -> None:
    """Two files of a task are in one encoding."""
    if (found := _encoding(path)) != encoding and suffix_of(path) != ".parquet" and odd_line(path, encoding):
        raise DataError(f"{path} is {found}, but {train} is {encoding}; convert one of the two")


def _structure(path: Path, base: Description) -> dict[str, Any]:
    """Kind and columns."""
    suffix = suffix_of(path)
    if suffix == ".json" and _is_squad(path):
        return {"kind": "answer"}
    if suffix not in (".csv", ".json", ".jsonl", ".ndjson", ".parquet") and (kind := _conll(path, base)):
        return {"kind": kind}
    return _columns(path, base)


def _is_squad(path: Path) -> bool:
    try:
        document = json.loads(read_bytes(path))
        return isinstance(document, dict) and "paragraphs" in document["data"][0]
    except (ValueError, LookupError, TypeError):
        return False


def _conll(path: Path, base: Description) -> str | None:
    blocks = list(islice(blocks_of(path, base), 20))
    fields = [fields for _, _, lines in blocks for _, fields in lines]
    if fields and all(len(each) == 10 for each in fields) and all(re.fullmatch(r"[\d.-]+", f[0]) for f in fields):
        return "parse"
    tags = [each[-1] for each in fields]
    return "tag" if len(blocks) > 1 and all(TAG.fullmatch(tag) for tag in tags) and set(tags) != {"O"} else None


def _columns(path: Path, base: Description) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if suffix_of(path) not in (".json", ".jsonl", ".ndjson", ".parquet"):
        found = _separation(path, base)
        base = replace(base, **found)
        found = {key: value for key, value in found.items() if value != getattr(Description, key, None)}
    rows = [row.values for row in islice(rows_of(path, base), _LOOKED_AT)]
    if not rows:
        raise DataError(f"{path} holds no rows; is it the right file?")
    return {**roles_of(rows, path), **found, "share": _SHARE if len(rows) >= _FEW else _SHARE_OF_FEW}


def _separation(path: Path, base: Description) -> dict[str, Any]:
    """Separator and header, from the first lines."""
    lines = read_bytes(path).decode(base.encoding, errors="replace").splitlines()[:50]
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise DataError(f"{path} holds no rows; is it the right file?")
    counts = {mark: [line.count(mark) for line in lines] for mark in ("\t", ",", ";", "|")}
    due = "," if suffix_of(path) == ".csv" else "\t"
    mark = due if min(counts[due]) else max(counts, key=lambda m: (min(counts[m]), counts[m][0]))
    if not counts[mark][0]:
        raise DataError(f"{path}: no separator is to be seen in its first line; tabs or commas between columns are due")
    found: dict[str, Any] = {"separator": mark} if mark != due else {}
    first = [name.strip().strip('"').lstrip("\ufeff") for name in lines[0].split(mark)]
    known = {name for names in NAMES.values() for name in names}
    is_header = any(name.casefold() in known for name in first) or not any(is_number(name) for name in first)
    return found if is_header else {**found, "header": False}


_COMMENTS = {
    "kind": "classify, labels, choose, score, tag, relation, parse or answer",
    "train": "paths start at this file",
    "dev": "a file, or the share of train that is held out",
    "text": "columns by name",
    "pair": "the second text",
    "label": "what is to be learnt",
    "labels": "columns that hold 0 or 1",
    "label_separator": "between the labels of a text",
    "choices": "columns of the candidates, in the order of the labels",
    "group": "what belongs together and stays on one side of a split",
    "id": "a column that tells rows apart",
    "none": "the label that says that there is nothing to find",
    "lower": "train and dev write the same labels with other capitals",
    "header": "columns are numbered: 1, 2, …",
}


def _written(document: dict[str, Any], path: Path) -> str:
    lines = [f"# Made from {path.name} by danseo data describe; read it through, then: danseo data check"]
    for key, value in document.items():
        line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
        lines.append(f"{line:38}  # {_COMMENTS[key]}" if key in _COMMENTS else line)
    return "\n".join(lines) + "\n"
