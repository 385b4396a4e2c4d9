"""Lines of a user's own text as examples without gold, for `danseo predict`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from danseo.errors import DataError
from danseo.reading import Row, as_row, parse_json, quote
from danseo.records import DialogueExample, Entity, ParseExample, QuestionExample, RelationExample, TextExample
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


@dataclass(frozen=True)
class BadLine:
    """A line that is no example, and why."""

    number: int
    reason: str


def examples_from(lines: TextIO, task: Task) -> Iterator[tuple[int, Any] | BadLine]:
    """One example per line that is not blank, with its number; bad lines come as such."""
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if text.strip():
            try:
                yield number, example_from(text, task, number)
            except DataError as error:
                yield BadLine(number, str(error))


def example_from(line: str, task: Task, number: int) -> Any:
    """A plain line, or a JSON object with the fields of the task."""
    where = f"line {number}"
    if not line.lstrip().startswith("{"):
        return _plain(line, task, number, where)
    try:
        row = as_row(parse_json(line, where, number), where)  # type: ignore[arg-type]
    except DataError as error:
        raise DataError(str(error).replace(f"{where}, {where}", where)) from None
    guid = row.values.get("guid", str(number))
    if not isinstance(guid, str):
        raise row.error("guid should be a text")
    return _MAKERS[task.name](row, guid)


def _plain(line: str, task: Task, number: int, where: str) -> Any:
    if task.name in ("ynat", "ner"):
        return TextExample(str(number), text=line, gold=None)
    if task.name in ("nli", "sts") and line.count("\t") == 1:
        first, second = line.split("\t")
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


def _pair(first: str, second: str) -> Callable[[Row, str], TextExample]:
    return lambda row, guid: TextExample(guid, text=_text(row, first), pair=_text(row, second), gold=None)


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


def _parse(words: list[str], guid: str, where: str) -> ParseExample:
    if not words:
        raise DataError(f"{where}: there are no words")
    return ParseExample(guid, words=tuple(words), gold=(), text=" ".join(words))


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
    "sts": _pair("sentence1", "sentence2"),
    "nli": _pair("premise", "hypothesis"),
    "re": _relation,
    "dp": lambda row, guid: _parse(
        list(row.texts("words")) if "words" in row.values else _text(row, "text").split(), guid, row.where
    ),
    "mrc": lambda row, guid: QuestionExample(
        guid, text=_text(row, "context"), question=_text(row, "question"), gold=()
    ),
    "wos": _dialogue,
}
