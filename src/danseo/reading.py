"""From bytes on disk to checked rows: plain or gzipped JSON and TSV, and the Hub's parquet files.

Whatever is wrong with a file comes out as one DataError that names the file, the place and the remedy.
"""

import errno
import gzip
import hashlib
import io
import json
import math
import os
import stat
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"
MOST = 1 << 30
"""Bytes of a file, unpacked; the largest of KLUE has a thirtieth of it."""
_RIGHT_FILE = "is this the right file for the task?"


def quote(value: object, limit: int = 60) -> str:
    """The value as it would be typed, cut to a readable length and kept on one line."""
    try:
        shown = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or a number with thousands of digits
        shown = f"a {'number' if isinstance(value, int) else type(value).__name__} too large to show"
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file, unpacked when it is gzipped (told by its content, not its name).

    Larger ones than most, by default MOST, are refused before they fill the memory.
    """
    most = most or MOST
    try:
        content = _bounded(path, most)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name the file inside it") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}; check the path and its permissions") from None
    if content.startswith(GZIP_MAGIC):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(most + 1)
        except (OSError, EOFError, zlib.error):
            raise DataError(f"{path} is a damaged gzip file; fetch it again") from None
        _check_size(path, len(content), most)
    if not content.strip():
        raise DataError(f"{path} is empty; write or fetch it again")
    return content


def _bounded(path: Path, most: int) -> bytes:
    """The content of a file or pipe; a pipe into which nobody writes is empty, not a reason to wait."""
    found = path.stat()
    if stat.S_ISFIFO(found.st_mode):
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(pipe, True)
        with os.fdopen(pipe, "rb") as file:
            content = file.read(most + 1)
    elif stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        _check_size(path, found.st_size, most)
        content = path.read_bytes()
    else:
        raise DataError(f"{path} is a device, not a file; name a file")
    _check_size(path, len(content), most)
    return content


def _check_size(path: Path, size: int, most: int) -> None:
    if size > most:
        raise DataError(
            f"{path} holds more than {most / 2**30:.3g} GiB, which danseo does not read; is it the right file?"
        )


def content_sha256(path: Path) -> str:
    """The SHA-256 of the unpacked content, so a file and its .gz have the same."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: not UTF-8 (byte {error.start}); convert it: iconv -f CP949 -t UTF-8"
        ) from None


def parse_json(text: str, path: Path | None, line: int | None = None, remedy: str = "is the file cut off?") -> Any:
    """A JSON document, or a DataError that says where it breaks off; line is that of a one-line document."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        place = place_of(path, line or error.lineno)
        raise DataError(f"{place}: not valid JSON ({error.msg}, column {error.colno}); {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place_of(path, line)}: not readable JSON ({quote(str(error))}); mend it") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a key that stands in it twice, one value would be lost in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in found if keys.count(key) > 1)} stands twice in one object")
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML document, or a DataError that says why it is none."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # syntax, numbers with thousands of digits, and nesting without end
        raise DataError(f"{path}: not valid TOML ({quote(str(error), 120)}); mend it") from None


def place_of(path: Path | None, line: int | None = None) -> str:
    """A file and a line of it in words, as far as they are known."""
    return ", ".join((*([str(path)] if path else []), *([f"line {line}"] if line else [])))


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


def check_unique(guids: Sequence[str], path: Path) -> None:
    """Refuse a file without examples, or one that uses a guid twice."""
    if not guids:
        raise DataError(f"{path} holds no examples; fetch it again")
    if len(set(guids)) < len(guids):
        seen: set[str] = set()
        twice = next(guid for guid in guids if guid in seen or seen.add(guid))  # type: ignore[func-returns-value]
        raise DataError(f"{path}: guid {quote(twice)} occurs more than once; remove the repetition")


def split_of(path: Path) -> str:
    """train or dev, by the file's name; the Hub says validation for dev."""
    return "train" if "train" in path.name else "dev"


def check_place(folder: Path) -> None:
    """Refuse a folder that cannot be made or written, before long work whose results would go there."""
    places = (folder.absolute(), *folder.absolute().parents)
    there = next(place for place in places if os.path.exists(place))  # noqa: PTH110 (Path.exists may raise)
    if not there.is_dir() or not os.access(there, os.W_OK):
        reason = "may not be written" if there.is_dir() else "is no folder"
        raise DataError(f"{folder} cannot be written: {there} {reason}; choose another place")


def remedy(error: OSError) -> str:
    """What helps where something cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and run the same command again"
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return "its folder was removed or moved meanwhile; run the same command again"
    if error.errno == errno.EIO:
        return "check the disk"
    return "choose another place"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: to a neighbour first, then rename."""
    neighbour = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        neighbour.write_bytes(content.encode() if isinstance(content, str) else content)
        neighbour.replace(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}; {remedy(error)}") from None
    finally:
        with suppress(OSError):
            neighbour.unlink(missing_ok=True)
