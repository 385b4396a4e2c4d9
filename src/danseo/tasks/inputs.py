"""What a user's own line has to hold to become an example without gold, one reader per form of example."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.errors import DataError
from danseo.files import quote
from danseo.records import DialogueExample, Entity, ParseExample, QuestionExample, RelationExample, TextExample
from danseo.rows import Row

MOST_WORDS = 500  # of a sentence to parse: every pair of words is scored, and no sentence is longer


@dataclass(frozen=True)
class Input:
    """A task's way with a user's own lines."""

    needs: str
    """What a line should hold, in words."""
    from_row: Callable[[Row, str], Any]
    """The example of a JSON object, with this guid."""
    from_text: Callable[[str, str], Any] | None = None
    """The example of a plain line; None where plain lines cannot say enough. ValueError says what is wrong."""


def text_input(*names: str) -> Input:
    """One text, under the first of these names that the object has."""
    others = f" (or {' or '.join(names[1:])})" if names[1:] else ""
    return Input(
        f"a line of text, or {names[0]}{others}",
        lambda row, guid: TextExample(guid, text=text_of(row, *names), gold=None),
        lambda line, guid: TextExample(guid, text=line, gold=None),
    )


def pair_input(first: str, second: str) -> Input:
    """Two texts."""
    return Input(
        f"two texts with a tab between, or {first} and {second}",
        lambda row, guid: TextExample(guid, text=text_of(row, first), pair=text_of(row, second), gold=None),
        _pair_of_line,
    )


def _pair_of_line(line: str, guid: str) -> TextExample | None:
    if line.count("\t") != 1:
        return None
    first, second = line.split("\t")
    for text, which in ((first, "first"), (second, "second")):
        if not text.strip():
            raise ValueError(f"the {which} text is empty; two texts with a tab between are due")
    return TextExample(guid, text=first, pair=second, gold=None)


def text_of(row: Row, *keys: str) -> str:
    """A text that is not empty, under the first of the names that is there."""
    key = next((key for key in keys if key in row.values), keys[0])
    text = row.text(key)
    if not text.strip():
        raise row.error(f"field {key!r} is empty")
    return text


def relation_input(types: Sequence[str]) -> Input:
    """A sentence and two of its entities, as KLUE writes them."""

    def from_row(row: Row, guid: str) -> RelationExample:
        sentence = text_of(row, "sentence")
        subject, other = (_entity(row.child(key), sentence, types) for key in ("subject_entity", "object_entity"))
        return RelationExample(guid, text=sentence, subject=subject, object=other, gold="")

    return Input(
        "sentence, subject_entity and object_entity with word, start_idx, end_idx (inclusive) and type", from_row
    )


def _entity(row: Row, sentence: str, types: Sequence[str]) -> Entity:
    start, end = row.integer("start_idx"), row.integer("end_idx") + 1
    if not 0 <= start < end <= len(sentence):
        raise row.error(f"start_idx {start} and end_idx {end - 1} do not lie in the sentence")
    if "word" in row.values and row.text("word") != sentence[start:end]:
        raise row.error(
            f"the sentence has {quote(sentence[start:end])} at {start}..{end - 1}, not {quote(row.text('word'))}"
        )
    return Entity(sentence[start:end], start, end, row.one_of(row.text("type"), types, "field 'type'"))


def words_input(tags: Sequence[str] = ()) -> Input:
    """A sentence as words; with a list of POS tags, those of its words may be given, too."""

    def from_row(row: Row, guid: str) -> ParseExample:
        words = list(row.texts("words")) if "words" in row.values else text_of(row, "text").split()
        try:
            return parse_of_words(words, guid, _tags(row, len(words), tags) if "pos" in row.values else ())
        except ValueError as error:
            raise DataError(f"{row.where}: {error}") from None

    return Input("a line of text, text, or words", from_row, lambda line, guid: parse_of_words(line.split(), guid))


def _tags(row: Row, words: int, known: Sequence[str]) -> tuple[str, ...]:
    """The POS tags of every word, joined by + as in the raw files; the last one is what is read."""
    tags = row.texts("pos")
    if len(tags) != words:
        raise row.error(f"{len(tags)} entries in pos for {words} words; give one for each word")
    for position, tag in enumerate(tags, 1):
        row.one_of(tag.split("+")[-1], known, f"pos {position}")
    return tags


def parse_of_words(words: Sequence[str], guid: str, pos: tuple[str, ...] = ()) -> ParseExample:
    """A sentence to parse; ValueError says why it is none."""
    if not words:
        raise ValueError("there are no words")
    if len(words) > MOST_WORDS:
        raise ValueError(f"{len(words):,} words, but at most {MOST_WORDS:,} are parsed; split it into sentences")
    if blank := [position for position, word in enumerate(words, 1) if not word.strip()]:
        raise ValueError(f"word {blank[0]} is empty")
    return ParseExample(guid, words=tuple(words), gold=(), text=" ".join(words), pos=pos)


def question_input(passage: str = "context", question: str = "question") -> Input:
    """A passage and a question about it."""
    return Input(
        f"{passage} and {question}",
        lambda row, guid: QuestionExample(guid, text=text_of(row, passage), question=text_of(row, question), gold=()),
    )


def dialogue_input() -> Input:
    """A dialogue whose last turn is the user's."""
    return Input("dialogue: a list of turns with role and text, the user first and last", _dialogue)


def _dialogue(row: Row, guid: str) -> DialogueExample:
    turns = row.children("dialogue")
    for number, turn in enumerate(turns):
        if turn.text("role") != ("user", "sys")[number % 2]:
            raise turn.error("turns should alternate between user and sys, the user first")
    if len(turns) % 2 == 0:
        raise row.error("the last turn should be the user's")
    return DialogueExample(guid, guid, tuple(turn.text("text") for turn in turns), gold=())
