"""Lines of a user's own text as examples without gold, for `danseo predict`."""

import gzip
import json
import re
import select
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedReader
from typing import Any, BinaryIO, NamedTuple, cast

from danseo.errors import DataError
from danseo.files import GZIP_MAGIC, parse_json
from danseo.rows import Row, as_row
from danseo.tasks.task import Task

LONGEST = 1 << 24  # bytes of a line
_CHUNK = 1 << 16
_HELD = 1 << 20  # bytes of lines held at a time, however few lines that are
_LIST = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*(\{|$)")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class BadLine:
    """A line that is no example, and why."""

    number: int
    reason: str


class Line(NamedTuple):
    """An example with the number of its line, and the fields of it that the task does not read."""

    number: int
    example: Any
    own: Mapping[str, Any]


class Noted(dict[str, Any]):
    """The fields of a line, which remember what was read of them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def unread(self) -> dict[str, Any]:
        return {key: value for key, value in self.items() if key not in self.read}


Numbered = tuple[int, bytes]


def unpacked(source: BinaryIO, name: str) -> BinaryIO:
    """The source, through gzip where its first bytes say so; formats without lines are refused."""
    stream = cast(BufferedReader, source)
    if stream.peek(2).startswith(GZIP_MAGIC):
        stream = cast(BufferedReader, gzip.GzipFile(fileobj=source))
    with _whole():
        start = stream.peek(1)
    if start.startswith(_UTF16):
        raise DataError(f"{name} is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
    if _LIST.match(start.split(b"\n")[0].rstrip()):
        raise DataError(f"{name} is a JSON list, but one object per line is due; convert it: jq -c '.[]'")
    return stream


@contextmanager
def _whole() -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError("the gzipped input is damaged or cut off; pack or fetch it again") from None


def lines_in(source: BinaryIO, most: int) -> Iterator[list[Numbered]]:
    """Groups of numbered lines: what is waiting, at most so many at a time; none is held back for more to come."""
    group: list[Numbered] = []
    number = size = 0
    for line in _as_they_come(source):
        if line is not None:
            number, size = number + 1, size + len(line)
            group.append((number, line))
        if group and (line is None or len(group) == most or size > _HELD):
            yield group
            group, size = [], 0
    if group:
        yield group


def _as_they_come(source: BinaryIO) -> Iterator[bytes | None]:
    """Every line as soon as it is whole; None where nothing more is waiting at the moment."""
    begun: list[bytes] = []
    while chunk := _chunk(source):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if len(begun) * _CHUNK > LONGEST and sum(map(len, begun)) > LONGEST:
            raise DataError(f"a line of more than {LONGEST >> 20} MiB; is this a file of lines?")
        for other in others:
            yield b"".join(begun)
            begun = [other]
        if not select.select([source], [], [], 0)[0]:
            yield None
    if any(begun):
        yield b"".join(begun)


def _chunk(source: BinaryIO) -> bytes:
    """What is there, at least a byte unless the source has ended."""
    with _whole():
        return cast(BufferedReader, source).read1(_CHUNK)


def read_line(line: bytes, number: int, task: Task, *, with_pos: bool = False) -> Line | BadLine | None:
    """The example of a line with the line's number; why it is none; None for a blank line."""
    try:
        text = decoded(line, number).rstrip("\r")
        return _line(text, task, number, with_pos) if text.strip() else None
    except DataError as error:
        return BadLine(number, str(error))


def given_example(given: Any, task: Task, number: int, *, with_pos: bool = False) -> Any:
    """An example from a program: a text, a dict with the fields of the task, or an example as it is."""
    if isinstance(given, dict):
        given = json.dumps(given, ensure_ascii=False)
    return example_from(given, task, number, with_pos=with_pos) if isinstance(given, str) else given


def given_line(values: dict[str, Any], number: int, task: Task, *, with_pos: bool = False) -> Line:
    """The example of an object that has been read already, and what else it says."""
    own: dict[str, Any] = {}
    return Line(number, _from_object(values, task, number, with_pos, own), own)


def _line(text: str, task: Task, number: int, with_pos: bool) -> Line:
    """The example of a line, and what else the line says."""
    own: dict[str, Any] = {}
    return Line(number, example_from(text, task, number, with_pos=with_pos, own=own), own)


def decoded(line: bytes, number: int) -> str:
    """The text of a line; a DataError says why it is none."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        try:
            line.decode("cp949")
        except UnicodeDecodeError:
            remedy = "mend the line"
        else:
            remedy = "convert the text: iconv -f CP949 -t UTF-8"
        raise DataError(f"line {number}: not UTF-8 (byte {error.start}); {remedy}") from None


def example_from(
    line: str, task: Task, number: int, *, with_pos: bool = False, own: dict[str, Any] | None = None
) -> Any:
    """A plain line, or a JSON object with the fields of the task; with_pos asks dp for POS tags.

    What the task does not read of an object goes to own.
    """
    where = f"line {number}"
    written = line.lstrip("\ufeff \t")  # files put together have byte-order marks inside
    if not written.startswith("{"):
        if with_pos:
            raise DataError(f"{where}: {_POS_NEEDED}")
        return _plain(line, task, str(number), where)
    return _from_object(parse_json(written, None, number, "mend the line"), task, number, with_pos, own)


def _from_object(value: Any, task: Task, number: int, with_pos: bool, own: dict[str, Any] | None) -> Any:
    row = as_row(value, f"line {number}", f"{task.name} needs {task.input.needs}")
    guid = _guid(row, number, task)
    if with_pos and "pos" not in row.values:
        raise row.error(_POS_NEEDED)
    noted = Noted(row.values)
    example = task.input.from_row(replace(row, values=noted), guid)
    if own is not None:
        own.update(noted.unread())
    return example


def _guid(row: Row, number: int, task: Task) -> str:
    """What a user's task names as id, the line's own guid, else its id, else its number."""
    if task.own and task.own.id and isinstance(named := row.values.get(task.own.id), str | int):
        return str(named)
    if "guid" in row.values:
        return row.text("guid")
    found = row.values.get("id")
    return str(number) if found is None or isinstance(found, dict | list) else str(found)


_POS_NEEDED = (
    "this run reads POS tags (architecture official); give JSON with one entry per word in both lists: "
    '{"words": ["나는", "간다."], "pos": ["NP+JX", "VV+EF+SF"]}'
)


def _plain(line: str, task: Task, guid: str, where: str) -> Any:
    try:
        example = task.input.from_text(line, guid) if task.input.from_text else None
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
    if example is None:
        raise DataError(f"{where}: {task.name} needs {task.input.needs}, as a JSON object")
    return example
