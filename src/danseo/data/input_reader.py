"""Read users' inputs as examples without gold: lines of text, JSON or CSV for `danseo predict`, objects for `serve`."""

import codecs
import csv
import gzip
import io
import json
import re
import select
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedReader
from typing import Any, BinaryIO, NamedTuple, cast

from danseo.encodings import can_decode, has_utf16_mark, is_known_encoding
from danseo.errors import DataError
from danseo.extras import is_installed
from danseo.files import GZIP_MAGIC, parse_json
from danseo.language import _
from danseo.rows import Row, as_row
from danseo.tasktypes.base import Task
from danseo.tasktypes.description import TaskDescription
from danseo.text.morphology import get_tagger

MAX_LINE_BYTES = 1 << 24
_CHUNK = 1 << 16
_MAX_GROUP_BYTES = 1 << 20
_JSON_LIST = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*(\{|$)")


@dataclass(frozen=True)
class BadLine:
    """A line that is no example, and why."""

    number: int
    reason: str


class InputLine(NamedTuple):
    """An example with the number of its line, and the fields that the task does not read."""

    number: int
    example: Any
    extra: Mapping[str, Any]


class _TrackedFields(dict[str, Any]):
    """The fields of a line, which record the fields that are read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


NumberedLine = tuple[int, bytes]

# Streams of bytes


def open_lines(source: BinaryIO, name: str, encoding: str | None = None) -> BinaryIO:
    """Return the source as lines of bytes: unpacked if it is gzipped, and in UTF-8 if it is in UTF-16."""
    stream = cast(BufferedReader, source)
    if stream.peek(2).startswith(GZIP_MAGIC):
        stream = cast(BufferedReader, gzip.GzipFile(fileobj=source))
    with _report_bad_gzip():
        start = stream.peek(1)
    if encoding and not is_known_encoding(encoding):
        raise DataError(_("--encoding {encoding} is unknown; use utf-8, cp949 or utf-16").format(encoding=encoding))
    if has_utf16_mark(start) or (encoding and "\n".encode(encoding) != b"\n"):
        stream = BufferedReader(_Utf8Stream(stream, encoding or "utf-16", name))
        start = stream.peek(1)
    if _JSON_LIST.match(start.split(b"\n")[0].rstrip()):
        raise DataError(f"{name} is a JSON list, but one object per line is expected; convert it: jq -c '.[]'")
    return stream


class _Utf8Stream(io.RawIOBase):
    """A stream in an encoding whose line ends are not those of ASCII, such as UTF-16, converted to UTF-8."""

    def __init__(self, source: BufferedReader, encoding: str, name: str) -> None:
        self.source, self.encoding, self.name = source, encoding, name
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.buffered = b""

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.source.fileno()

    def readinto(self, buffer: Any) -> int:
        chunk = b"-"
        while chunk and not self.buffered:
            chunk = _read_chunk(self.source)
            try:
                self.buffered = self.decoder.decode(chunk, final=not chunk).encode()
            except UnicodeError:
                raise DataError(
                    _("{name} is not all {encoding}; convert it to UTF-8").format(
                        name=self.name, encoding=self.encoding.upper()
                    )
                ) from None
        size = min(len(buffer), len(self.buffered))
        buffer[:size], self.buffered = self.buffered[:size], self.buffered[size:]
        return size


@contextmanager
def _report_bad_gzip() -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError("the gzipped input is corrupted or truncated; pack or fetch it again") from None


def _read_chunk(source: BinaryIO) -> bytes:
    """Return the bytes that are available, at least one unless the source has ended."""
    with _report_bad_gzip():
        return cast(BufferedReader, source).read1(_CHUNK)


def group_lines(source: BinaryIO, max_lines: int) -> Iterator[list[NumberedLine]]:
    """Yield groups of numbered lines that are available now, without waiting for more."""
    group: list[NumberedLine] = []
    number = size = 0
    for line in _read_available(source):
        if line is not None:
            number, size = number + 1, size + len(line)
            group.append((number, line))
        if group and (line is None or len(group) == max_lines or size > _MAX_GROUP_BYTES):
            yield group
            group, size = [], 0
    if group:
        yield group


def _read_available(source: BinaryIO) -> Iterator[bytes | None]:
    """Yield every complete line, and None whenever no more bytes are available."""
    parts: list[bytes] = []
    while chunk := _read_chunk(source):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        if len(parts) * _CHUNK > MAX_LINE_BYTES and sum(map(len, parts)) > MAX_LINE_BYTES:
            raise DataError(f"a line of more than {MAX_LINE_BYTES >> 20} MiB; is this a file of lines?")
        for other in others:
            yield b"".join(parts)
            parts = [other]
        if not select.select([source], [], [], 0)[0]:
            yield None
    if any(parts):
        yield b"".join(parts)


class LinesToUtf8:
    """Converts lines to UTF-8 from the named encoding, else from the one of the first lines that are not ASCII."""

    def __init__(self, named: str | None, expected: str = "") -> None:
        self.encoding = "utf-8" if named and "\n".encode(named) != b"\n" else named
        self.expected = expected
        """The encoding of the task file, which is used if the lines are not UTF-8."""

    def convert(self, group: Sequence[NumberedLine]) -> list[NumberedLine | BadLine]:
        """Return the lines in UTF-8; a line in another encoding becomes a BadLine."""
        texts = [line for _, line in group if not line.isascii()]
        if self.encoding is None and texts:
            candidates = filter(None, ("utf-8", self.expected, "cp949"))
            fits = (name for name in candidates if 2 * sum(can_decode(line, name) for line in texts) >= len(texts))
            self.encoding = next(fits, "utf-8")
        return [self._convert_line(number, line) for number, line in group]

    def _convert_line(self, number: int, line: bytes) -> NumberedLine | BadLine:
        encoding = self.encoding or "utf-8"
        try:
            return number, line.decode(encoding).encode()
        except UnicodeDecodeError as error:
            remedy = "name the encoding with --encoding, or correct the line"
            return BadLine(number, f"line {number}: not {encoding.upper()} (byte {error.start}); {remedy}")


# Examples


def read_line(line: bytes, number: int, task: Task, *, with_pos: bool = False) -> InputLine | BadLine | None:
    """Return the example of a line, or why it is none; None for a blank line."""
    try:
        text = decode_line(line, number).rstrip("\r")
        return _parse_line(text, task, number, with_pos) if text.strip() else None
    except DataError as error:
        return BadLine(number, str(error))


def decode_line(line: bytes, number: int) -> str:
    """Return the text of a line of UTF-8; raise DataError if it is none."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            _("line {number}: not UTF-8 (byte {start}); correct the line").format(number=number, start=error.start)
        ) from None


def is_single(given: Any) -> bool:
    """Return whether this is one text, dict or example rather than several."""
    return isinstance(given, str | dict) or hasattr(given, "guid")


def make_example(given: Any, task: Task, number: int, *, with_pos: bool = False) -> Any:
    """Return the example of a text, of a dict with the fields of the task, or of an example."""
    if isinstance(given, dict):
        given = json.dumps(given, ensure_ascii=False)
    if isinstance(given, str):
        return _parse_line(given, task, number, with_pos).example
    return _add_pos_tags(given, f"example {number}") if with_pos else given


def make_line(value: Any, number: int, task: Task, *, with_pos: bool = False) -> InputLine:
    """Return the example of a JSON object, and the fields that the task does not read."""
    row = as_row(value, f"line {number}", f"{task.name} needs {task.input.needs}")
    guid = _get_guid(row, number, task)
    fields = _TrackedFields(row.values)
    example = task.input.from_row(replace(row, values=fields), guid)
    if with_pos:
        example = _add_pos_tags(example, row.where)
    return InputLine(number, example, {key: value for key, value in fields.items() if key not in fields.read})


def _parse_line(line: str, task: Task, number: int, with_pos: bool) -> InputLine:
    """Return the example of a plain line, or of a JSON object; with_pos adds missing POS tags."""
    text = line.lstrip("\ufeff \t")  # concatenated files contain byte-order marks
    if text.startswith("{"):
        return make_line(parse_json(text, None, number, "correct the line"), number, task, with_pos=with_pos)
    try:
        example = task.input.from_text(line, str(number)) if task.input.from_text else None
    except ValueError as error:
        raise DataError(f"line {number}: {error}") from None
    if example is None:
        raise DataError(f"line {number}: {task.name} needs {task.input.needs}, as a JSON object")
    return InputLine(number, _add_pos_tags(example, f"line {number}") if with_pos else example, {})


def _add_pos_tags(example: Any, where: str) -> Any:
    """Return the sentence with Kiwi's POS tags if it has none; raise DataError if Kiwi is not installed."""
    if example.pos:
        return example
    if not is_installed("kiwipiepy"):
        raise DataError(f"{where}: {_POS_NEEDED}")
    tagger = get_tagger()
    return replace(example, pos=next(tagger.tag_words([example.words])), pos_tagger=tagger.version)


def _get_guid(row: Row, number: int, task: Task) -> str:
    """Return the id column of a custom task, else the guid of the line, else its id, else its number."""
    if task.custom and task.custom.id and isinstance(named := row.values.get(task.custom.id), str | int):
        return str(named)
    if "guid" in row.values:
        return row.text("guid")
    id_ = row.values.get("id")
    return str(number) if id_ is None or isinstance(id_, dict | list) else str(id_)


_POS_NEEDED = (
    "this run reads POS tags (architecture official); pip install 'danseo[ko]' to tag with Kiwi, or give JSON: "
    '{"words": ["나는", "간다."], "pos": ["NP+JX", "VV+EF+SF"]}'
)

# CSV


def is_table_header(first: bytes, description: TaskDescription) -> bool:
    """Return whether the first line is the header of a table: one of several cells is the task's text column."""
    cells = (cell.strip(' "') for mark in ",\t;|" for cell in first.decode("utf-8-sig", "replace").split(mark)[:-1])
    return bool(description.text) and description.text in cells


class CsvLines:
    """Converts rows of CSV to JSON objects; a quoted cell may contain line ends, so a row may take several lines."""

    def __init__(self, separator: str = "", *, header: bool = True, quotes: bool | None = None) -> None:
        self.separator, self.header, self.quoted = separator, header, quotes
        self.columns: list[str] = []
        self.lines: list[str] = []
        """The lines of a row that is not complete."""
        self.start = 0
        self.quotes = 0
        self.count = 0

    def convert(self, group: Sequence[NumberedLine | BadLine]) -> Iterator[NumberedLine | BadLine]:
        """Yield the rows that are complete, each as a JSON object with the number of its first line."""
        for item in group:
            if isinstance(item, BadLine):
                yield item
                continue
            number, line = item
            try:
                text = decode_line(line, number).rstrip("\r")
            except DataError as error:
                yield BadLine(number, str(error))
                continue
            if not self.lines:
                self.start = number
            self.lines.append(text)
            if not self.columns:
                self._choose_layout(text)
            self.quotes += text.count('"') if self.quoted else 0
            if self.quotes % 2 == 0:
                yield from self._convert_row("\n".join(self.lines))
                self.lines, self.quotes = [], 0

    def _convert_row(self, text: str) -> Iterator[NumberedLine | BadLine]:
        if not text.strip():
            return
        try:
            if self.quoted:
                cells = next(csv.reader([text], delimiter=self.separator))
            else:
                cells = next(csv.reader([text], delimiter=self.separator, quoting=csv.QUOTE_NONE))
        except csv.Error as error:
            yield BadLine(self.start, f"line {self.start}: {error}; correct the line")
            return
        if not self.columns:
            self._name_columns(cells)
            if self.header:
                return
        self.count += 1
        if len(cells) != len(self.columns):
            yield BadLine(self.start, f"line {self.start}: {len(cells)} cells under {len(self.columns)} columns")
            return
        values = {column: _parse_cell(cell) for column, cell in zip(self.columns, cells, strict=True)}
        if not {"guid", "id"} & values.keys():
            values["guid"] = str(self.count)  # as a task file numbers the same rows
        yield self.start, json.dumps(values, ensure_ascii=False).encode()

    def _choose_layout(self, first: str) -> None:
        """Choose the separator by the first line, and whether quotes count: not in tab-separated files."""
        if not self.separator:
            self.separator = max(",\t;|", key=first.count)
        if self.quoted is None:
            self.quoted = self.separator != "\t"

    def _name_columns(self, cells: Sequence[str]) -> None:
        columns = [cell.strip() for cell in cells] if self.header else [str(k) for k in range(1, len(cells) + 1)]
        if len(set(columns)) < len(columns) or not all(columns):
            raise DataError(f"line {self.start}: the header has an empty or repeated column name; correct it")
        self.columns = columns

    def finish(self) -> list[BadLine]:
        """Return the incomplete row at the end, if there is one."""
        return [BadLine(self.start, f"line {self.start}: a quotation mark is never closed")] if self.lines else []


def _parse_cell(cell: str) -> object:
    """Return the JSON object or list in a cell, else its text."""
    if cell.startswith(("{", "[{", '["')):
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    return cell
