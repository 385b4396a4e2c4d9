"""Examples, which go into models, and predictions, which come out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with a label (ynat, nli), several, a number (sts) or a tag per character (ner)."""

    guid: str
    text: str
    gold: Any
    pair: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A text with candidates; gold is the label of the correct one."""

    guid: str
    text: str
    choices: tuple[str, ...]
    gold: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """A typed span of a sentence: sentence[start:end] == word."""

    word: str
    start: int
    end: int
    type: str


@dataclass(frozen=True, slots=True)
class RelationExample:
    """A sentence, two of its entities, and the relation of the subject to the object."""

    guid: str
    text: str
    subject: Entity
    object: Entity
    gold: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ParseExample:
    """A sentence as words; gold gives each word its head (1-based, 0 is the root) and relation."""

    guid: str
    words: tuple[str, ...]
    gold: tuple[tuple[int, str], ...]
    text: str = ""
    lemmas: tuple[str, ...] = ()
    pos: tuple[str, ...] = ()
    pos_tagger: str = ""
    """The program that made the POS tags; "" if they came with the words."""


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a passage; gold contains every accepted answer and is empty if there is none."""

    guid: str
    text: str
    question: str
    gold: tuple[str, ...]
    starts: tuple[int, ...] = ()
    question_type: int | None = None
    title: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class DialogueExample:
    """A dialogue up to one user turn; gold is the state so far, as domain-slot-value."""

    guid: str
    dialogue: str
    turns: tuple[str, ...]
    gold: tuple[str, ...]
    domains: tuple[str, ...] = ()


Example = TextExample | ChoiceExample | RelationExample | ParseExample | QuestionExample | DialogueExample


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer of a model to one example."""

    guid: str
    answer: Any
    probabilities: Mapping[str, float] | None = None
    span: tuple[int, int] | None = None
    """Start and end of an answer that was copied from the text; prediction files do not contain it."""
