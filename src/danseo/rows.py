"""From files to checked rows: JSON, TSV and the Hub's parquet files."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.files import parse_json, quote, read_bytes, read_text

_RIGHT_FILE = "is this the right file for the task?"


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a file that knows where it stands, so that every complaint can say so."""

    values: Mapping[str, Any]
    where: str
    remedy: str = _RIGHT_FILE
    """What to do when a field is missing."""

    def error(self, message: str) -> DataError:
        return DataError(f"{self.where}: {message}")

    def _get(self, key: str, kind: type | tuple[type, ...], word: str) -> Any:
        if key not in self.values:
            raise self.error(f"field {key!r} is missing; {self.remedy}")
        value = self.values[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(f"field {key!r} should be {word}, not {quote(value)}")
        return value

    def text(self, key: str) -> str:
        value: str = self._get(key, str, "a text")
        return self._clean(value, key)

    def _clean(self, value: str, key: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.error(f"field {key!r} holds half a surrogate pair, which is no character") from None
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.values.get(key) is None else self.text(key)

    def label(self, key: str, labels: Sequence[str], hub_order: Sequence[str] = ()) -> str:
        """A label word; the Hub stores its position in hub_order instead."""
        value = self.values.get(key)
        if hub_order and isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(hub_order):
            return hub_order[value]
        return self.one_of(self.text(key), labels, f"field {key!r}")

    def one_of(self, value: str, labels: Sequence[str], what: str) -> str:
        if value not in labels:
            raise self.error(f"{what}: unknown label {quote(value)}; known: {', '.join(labels)}")
        return value

    def integer(self, key: str) -> int:
        value: int = self._get(key, int, "a whole number")
        return value

    def number(self, key: str) -> float:
        try:
            value = float(self._get(key, (int, float), "a number"))
        except OverflowError:
            raise self.error(f"field {key!r} is too large a number") from None
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
                raise self.error(f"field {key!r} should be a list of texts, but holds {quote(item)}")
            self._clean(item, key)
        return tuple(items)


def as_row(value: object, where: str, remedy: str = _RIGHT_FILE) -> Row:
    """The value as a Row, if it is an object."""
    if not isinstance(value, dict):
        raise DataError(f"{where}: should be an object with named fields, not {quote(value)}")
    guid = value.get("guid")
    return Row(value, f"{where} (guid {quote(guid)})" if isinstance(guid, str) else where, remedy)


def is_parquet(path: Path) -> bool:
    """Whether the name is that of a Hub file."""
    return path.suffix == ".parquet"


def read_rows(path: Path) -> list[Row]:
    """The records of a JSON array or of a parquet file."""
    document = read_parquet(path) if is_parquet(path) else parse_json(read_text(path), path)
    if not isinstance(document, list):
        raise DataError(f"{path}: should be a JSON list of examples; is this the right file for the task?")
    return [as_row(value, f"{path}, row {number}") for number, value in enumerate(document, 1)]


def read_object(path: Path) -> Row:
    """The one object that a JSON file holds."""
    return as_row(parse_json(read_text(path), path), str(path))


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """The rows of a Hub file, class numbers turned into names where the file itself carries them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    read_bytes(path)  # for its complaints about missing, empty and unreadable files
    try:
        table = pq.read_table(path)
        features = _hub_features(table.schema.metadata)
        rows: list[dict[str, Any]] = table.to_pylist()
        for key, names in features.items():
            for row in rows:
                row[key] = _named(row.get(key), names)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = quote(" ".join(str(error).split()), 120)
        raise DataError(f"{path}: not a readable parquet file ({reason}); fetch it again") from None
    return rows


def _hub_features(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Column -> class names, from the note that the Hub's libraries leave in the file."""
    note = json.loads((metadata or {}).get(b"huggingface", b"{}"))
    features = note.get("info", {}).get("features", {})
    names = {key: (value.get("feature") or value).get("names") for key, value in features.items() if "_type" in value}
    return {key: value for key, value in names.items() if value}


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if isinstance(value, int) and value >= 0 else value  # -1 means no label


@dataclass(slots=True)
class Block:
    """One sentence of a TSV file: its header and its lines, each with its number."""

    guid: str
    text: str
    where: str
    lines: list[tuple[int, list[str]]] = field(default_factory=list)


def read_blocks(path: Path, columns: int) -> Iterator[Block]:
    """The sentences of a KLUE TSV file; lines that start with ## and are no header are comments."""
    block: Block | None = None
    for number, line in enumerate(read_text(path).split("\n"), 1):
        line = line.removesuffix("\r")
        header = _header(line)
        if header or line in ("", "\t"):
            if block:
                yield _whole(block)
            block = Block(*header, f"{path}, line {number} (guid {quote(header[0])})") if header else None
        elif not line.startswith("##"):
            if block is None:
                raise DataError(f"{path}, line {number}: a line outside any sentence; a `## guid<TAB>text` line is due")
            fields = line.split("\t")
            if len(fields) != columns:
                raise DataError(
                    f"{path}, line {number} (guid {quote(block.guid)}): {len(fields)} tab-separated fields "
                    f"instead of {columns}; restore the line"
                )
            block.lines.append((number, fields))
    if block:
        yield _whole(block)


def _header(line: str) -> tuple[str, str] | None:
    """The guid and text of a sentence header; a comment's first field has blanks, a guid has none."""
    if not line.startswith("## ") or "\t" not in line:
        return None
    guid, text = line[3:].split("\t", 1)
    return (guid, text) if guid and not any(c.isspace() for c in guid) else None


def _whole(block: Block) -> Block:
    if not block.lines:
        raise DataError(f"{block.where}: the sentence has no lines; restore them or remove its header")
    return block


def check_unique(guids: Sequence[str], path: Path, remedy: str = "remove the repetition") -> None:
    """Refuse a file without examples, or one that uses a guid twice."""
    if not guids:
        raise DataError(f"{path} holds no examples; fetch it again")
    if len(set(guids)) < len(guids):
        seen: set[str] = set()
        twice = next(guid for guid in guids if guid in seen or seen.add(guid))  # type: ignore[func-returns-value]
        raise DataError(f"{path}: guid {quote(twice)} occurs more than once; {remedy}")
