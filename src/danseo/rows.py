"""Checked rows of JSON, TSV and parquet files."""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.files import quote, read_bytes, read_json, read_text
from danseo.language import Message, _, join

_RIGHT_FILE = _("is this the right file for the task?")


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a file, with its location for error messages."""

    values: Mapping[str, Any]
    where: str
    remedy: str = _RIGHT_FILE
    """What to do if a field is missing."""

    def error(self, message: str) -> DataError:
        return DataError(join([f"{self.where}: ", message], ""))

    def _get(self, key: str, type_: type | tuple[type, ...], word: str) -> Any:
        if key not in self.values:
            raise self.error(_("field {key!r} is missing; {remedy}").format(key=key, remedy=self.remedy))
        value = self.values[key]
        if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
            raise self.error(
                _("field {key!r} should be {word}, not {value}").format(key=key, word=Message(word), value=quote(value))
            )
        return value

    def text(self, key: str) -> str:
        value: str = self._get(key, str, "a text")
        return self._check_surrogates(value, key)

    def _check_surrogates(self, value: str, key: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.error(f"field {key!r} has half a surrogate pair, which is no character; correct it") from None
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.values.get(key) is None else self.text(key)

    def label(self, key: str, labels: Sequence[str], hub_order: Sequence[str] = ()) -> str:
        """Return a label; the Hub stores its position in hub_order."""
        value = self.values.get(key)
        if hub_order and isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(hub_order):
            return hub_order[value]
        return self.one_of(self.text(key), labels, f"field {key!r}")

    def one_of(self, value: str, labels: Sequence[str], what: str) -> str:
        if value not in labels:
            raise self.error(
                _("{what}: unknown label {value}; known: {names}").format(
                    what=what, value=quote(value), names=", ".join(labels)
                )
            )
        return value

    def integer(self, key: str) -> int:
        value: int = self._get(key, int, "a whole number")
        return value

    def number(self, key: str) -> float:
        try:
            value = float(self._get(key, (int, float), "a number"))
        except OverflowError:
            raise self.error(_("field {key!r} is too large a number").format(key=key)) from None
        if not math.isfinite(value):
            raise self.error(f"field {key!r} should be a finite number, not {value}")
        return value

    def flag(self, key: str) -> bool:
        value: bool = self._get(key, bool, "true or false")
        return value

    def child(self, key: str) -> "Row":
        return Row(self._get(key, dict, "an object"), f"{self.where}, {key}", self.remedy)

    def children(self, key: str) -> list["Row"]:
        items = self._get(key, list, "a list")
        return [as_row(item, f"{self.where}, {key} {number}", self.remedy) for number, item in enumerate(items, 1)]

    def texts(self, key: str) -> tuple[str, ...]:
        items = self._get(key, list, "a list")
        for item in items:
            if not isinstance(item, str):
                raise self.error(f"field {key!r} should be a list of texts, but contains {quote(item)}")
            self._check_surrogates(item, key)
        return tuple(items)


def as_row(value: object, where: str, remedy: str = _RIGHT_FILE) -> Row:
    """Return a value as a Row; refuse one that is no object."""
    if not isinstance(value, dict):
        raise DataError(f"{where}: should be an object with named fields, not {quote(value)}")
    guid = value.get("guid")
    return Row(value, f"{where} (guid {quote(guid)})" if isinstance(guid, str) else where, remedy)


def is_parquet(path: Path) -> bool:
    """Return whether the name ends in .parquet."""
    return path.suffix == ".parquet"


def read_rows(path: Path) -> list[Row]:
    """Return the records of a JSON array or of a parquet file."""
    document = read_parquet(path) if is_parquet(path) else read_json(path)
    if not isinstance(document, list):
        raise DataError(f"{path}: should be a JSON list of examples; is this the right file for the task?")
    return [as_row(value, f"{path}, row {number}") for number, value in enumerate(document, 1)]


def is_prediction_file(path: Path, columns: Collection[str] = ()) -> bool:
    """Return whether a file starts with a prediction: an object with guid and answer, but not all of the columns."""
    try:
        record = json.loads(read_text(path).lstrip().partition("\n")[0])
    except (DataError, ValueError, RecursionError):
        return False
    if not isinstance(record, dict) or (columns and all(name in record for name in columns)):
        return False
    return isinstance(record.get("guid"), str) and "answer" in record


def read_object(path: Path) -> Row:
    """Return the object of a JSON file."""
    return as_row(read_json(path), str(path))


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a parquet file, with class names if the file contains them."""
    import pyarrow.parquet as pq

    read_bytes(path)  # reports missing, empty and unreadable files
    try:
        table = pq.read_table(path)
        features = _hub_features(table.schema.metadata)
        rows: list[dict[str, Any]] = table.to_pylist()
        for key, names in features.items():
            for row in rows:
                row[key] = _name_classes(row.get(key), names)
    except Exception as error:  # pyarrow raises many types: dates out of range, time zones
        reason = quote(" ".join(str(error).split()), 120)
        raise DataError(f"{path}: not a readable parquet file ({reason}); fetch it again") from None
    return rows


def _hub_features(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return column -> class names from the metadata of the datasets library."""
    note = json.loads((metadata or {}).get(b"huggingface", b"{}"))
    features = note.get("info", {}).get("features", {})
    names = {key: (value.get("feature") or value).get("names") for key, value in features.items() if "_type" in value}
    return {key: value for key, value in names.items() if value}


def _name_classes(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_name_classes(item, names) for item in value]
    return names[value] if isinstance(value, int) and value >= 0 else value  # -1 means no label


@dataclass(slots=True)
class Block:
    """One sentence of a TSV file: its header and its lines, each with its number."""

    guid: str
    text: str
    where: str
    lines: list[tuple[int, list[str]]] = field(default_factory=list)


def read_blocks(path: Path, columns: int) -> Iterator[Block]:
    """Yield the sentences of a KLUE TSV file; other lines with ## are comments."""
    block: Block | None = None
    for number, line in enumerate(read_text(path).split("\n"), 1):
        line = line.removesuffix("\r")
        header = _parse_header(line)
        if header or line in ("", "\t"):
            if block:
                yield _check_complete(block)
            block = Block(*header, f"{path}, line {number} (guid {quote(header[0])})") if header else None
        elif not line.startswith("##"):
            if block is None:
                raise DataError(f"{path}, line {number}: no sentence; add a `## guid<TAB>text` line before it")
            fields = line.split("\t")
            if len(fields) != columns:
                where = f"{path}, line {number} (guid {quote(block.guid)})"
                raise DataError(f"{where}: {len(fields)} tab-separated fields instead of {columns}; restore the line")
            block.lines.append((number, fields))
    if block:
        yield _check_complete(block)


def _parse_header(line: str) -> tuple[str, str] | None:
    """Return the guid and text of a sentence header; a guid has no spaces."""
    if not line.startswith("## ") or "\t" not in line:
        return None
    guid, text = line[3:].split("\t", 1)
    return (guid, text) if guid and not any(c.isspace() for c in guid) else None


def _check_complete(block: Block) -> Block:
    if not block.lines:
        raise DataError(f"{block.where}: the sentence has no lines; restore them or remove its header")
    return block


def check_unique(guids: Sequence[str], path: Path, remedy: str = _("remove the repetition")) -> None:
    """Refuse a file without examples, or one that uses a guid twice."""
    if not guids:
        raise DataError(_("{path} contains no examples; fetch it again").format(path=path))
    if len(set(guids)) < len(guids):
        seen: set[str] = set()
        repeated = next(guid for guid in guids if guid in seen or seen.add(guid))  # type: ignore[func-returns-value]
        raise DataError(
            _("{path}: guid {repeated} occurs more than once; {remedy}").format(
                path=path, repeated=quote(repeated), remedy=remedy
            )
        )
