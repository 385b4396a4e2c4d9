"""Lines of a user's own text as examples without gold, for `danseo predict`."""

import gzip
import re
import select
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from typing import Any, BinaryIO, cast

from danseo.errors import DataError
from danseo.files import GZIP_MAGIC, parse_json, quote
from danseo.records import DialogueExample, Entity, ParseExample, QuestionExample, RelationExample, TextExample
from danseo.rows import Row, as_row
from danseo.tasks.dp import TAGS
from danseo.tasks.relation import TYPES
from danseo.tasks.task import Task

FIELDS = {
    "ynat": "a line of text, or text (or title)",
    "sts": "two texts with a tab between, or sentence1 and sentence2",
    "nli": "two texts with a tab between, or premise and hypothesis",
    "ner": "a line of text, or text",
    "re": "sentence, subject_entity and object_entity with word, start_idx, end_idx (inclusive) and type",
    "dp": "a line of text, text, or words",
    "mrc": "context and question",
    "wos": "dialogue: a list of turns with role and text, the user first and last",
}
MOST_WORDS = 500  # of a dp line: every pair of words is scored, and no sentence is longer
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


def read_line(line: bytes, number: int, task: Task, *, with_pos: bool = False) -> tuple[int, Any] | BadLine | None:
    """The example of a line with the line's number; why it is none; None for a blank line."""
    try:
        text = _decoded(line, number).rstrip("\r")
        return (number, example_from(text, task, number, with_pos=with_pos)) if text.strip() else None
    except DataError as error:
        return BadLine(number, str(error))


def _decoded(line: bytes, number: int) -> str:
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


def example_from(line: str, task: Task, number: int, *, with_pos: bool = False) -> Any:
    """A plain line, or a JSON object with the fields of the task; with_pos asks dp for POS tags."""
    where, remedy = f"line {number}", f"{task.name} needs {FIELDS[task.name]}"
    written = line.lstrip("\ufeff \t")  # files put together have byte-order marks inside
    if not written.startswith("{"):
        if with_pos:
            raise DataError(f"{where}: {_POS_NEEDED}")
        return _plain(line, task, number, where)
    row = as_row(parse_json(written, None, number, "mend the line"), where, remedy)
    guid = row.values.get("guid", str(number))
    if not isinstance(guid, str):
        raise row.error("guid should be a text")
    if with_pos and "pos" not in row.values:
        raise row.error(_POS_NEEDED)
    return _MAKERS[task.name](row, guid)


_POS_NEEDED = (
    "this run reads POS tags (architecture official); give JSON with one entry per word in both lists: "
    '{"words": ["나는", "간다."], "pos": ["NP+JX", "VV+EF+SF"]}'
)


def _plain(line: str, task: Task, number: int, where: str) -> Any:
    if task.name in ("ynat", "ner"):
        return TextExample(str(number), text=line, gold=None)
    if task.name in ("nli", "sts") and line.count("\t") == 1:
        first, second = line.split("\t")
        for text, which in ((first, "first"), (second, "second")):
            if not text.strip():
                raise DataError(f"{where}: the {which} text is empty; {task.name} needs {FIELDS[task.name]}")
        return TextExample(str(number), text=first, pair=second, gold=None)
    if task.name == "dp":
        return _parse(line.split(), str(number), where)
    raise DataError(f"{where}: {task.name} needs {FIELDS[task.name]}, as a JSON object")


def _text(row: Row, *keys: str) -> str:
    key = next((key for key in keys if key in row.values), keys[0])
    text = row.text(key)
    if not text.strip():
        raise row.error(f"field {key!r} is empty")
    return text


def _pair(row: Row, guid: str, first: str, second: str) -> TextExample:
    return TextExample(guid, text=_text(row, first), pair=_text(row, second), gold=None)


def _relation(row: Row, guid: str) -> RelationExample:
    sentence = _text(row, "sentence")
    subject, object_ = (_entity(row.child(key), sentence) for key in ("subject_entity", "object_entity"))
    return RelationExample(guid, text=sentence, subject=subject, object=object_, gold="")


def _entity(row: Row, sentence: str) -> Entity:
    start, end = row.integer("start_idx"), row.integer("end_idx") + 1
    if not 0 <= start < end <= len(sentence):
        raise row.error(f"start_idx {start} and end_idx {end - 1} do not lie in the sentence")
    if "word" in row.values and row.text("word") != sentence[start:end]:
        raise row.error(
            f"the sentence has {quote(sentence[start:end])} at {start}..{end - 1}, not {quote(row.text('word'))}"
        )
    return Entity(sentence[start:end], start, end, row.one_of(row.text("type"), TYPES, "field 'type'"))


def _tree(row: Row, guid: str) -> ParseExample:
    words = list(row.texts("words")) if "words" in row.values else _text(row, "text").split()
    return _parse(words, guid, row.where, _tags(row, len(words)) if "pos" in row.values else ())


def _tags(row: Row, words: int) -> tuple[str, ...]:
    """The POS tags of every word, joined by + as in the raw files; the last one is what is read."""
    tags = row.texts("pos")
    if len(tags) != words:
        raise row.error(f"{len(tags)} entries in pos for {words} words; give one for each word")
    for place, tag in enumerate(tags, 1):
        row.one_of(tag.split("+")[-1], TAGS, f"pos {place}")
    return tags


def _parse(words: list[str], guid: str, where: str, pos: tuple[str, ...] = ()) -> ParseExample:
    if not words:
        raise DataError(f"{where}: there are no words")
    if len(words) > MOST_WORDS:
        raise DataError(
            f"{where}: {len(words):,} words, but at most {MOST_WORDS:,} are parsed; split it into sentences"
        )
    if blank := [place for place, word in enumerate(words, 1) if not word.strip()]:
        raise DataError(f"{where}: word {blank[0]} is empty")
    return ParseExample(guid, words=tuple(words), gold=(), text=" ".join(words), pos=pos)


def _dialogue(row: Row, guid: str) -> DialogueExample:
    turns = row.children("dialogue")
    for number, turn in enumerate(turns):
        if turn.text("role") != ("user", "sys")[number % 2]:
            raise turn.error("turns should alternate between user and sys, the user first")
    if len(turns) % 2 == 0:
        raise row.error("the last turn should be the user's")
    return DialogueExample(guid, guid, tuple(turn.text("text") for turn in turns), gold=())


_MAKERS: Mapping[str, Callable[[Row, str], Any]] = {
    "ynat": lambda row, guid: TextExample(guid, text=_text(row, "text", "title"), gold=None),
    "ner": lambda row, guid: TextExample(guid, text=_text(row, "text", "sentence"), gold=None),
    "sts": partial(_pair, first="sentence1", second="sentence2"),
    "nli": partial(_pair, first="premise", second="hypothesis"),
    "re": _relation,
    "dp": _tree,
    "mrc": lambda row, guid: QuestionExample(
        guid, text=_text(row, "context"), question=_text(row, "question"), gold=()
    ),
    "wos": _dialogue,
}
