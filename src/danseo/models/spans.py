"""Entities as stretches of a text, as taggers of words and spans name them: to tags of characters and back."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from danseo.errors import DanseoError
from danseo.metrics.tagging import mend_leading_space, spans_of
from danseo.models.protocol import Answers
from danseo.predictions.evidence import tag_arrays
from danseo.predictions.viterbi import Array, columns
from danseo.records import Prediction
from danseo.tasks.task import Task
from danseo.text.letters import letters_of


class Span(NamedTuple):
    """A stretch of a text with its type, and how sure somebody is of it."""

    start: int
    end: int
    type: str
    score: float = 1.0


def characters(text: str) -> list[tuple[int, int]]:
    """Where every character stands that is no space; a syllable that is spelled with several is one."""
    letters = letters_of(text)
    return letters.given([(position, position + 1) for position, one in enumerate(letters.text) if not one.isspace()])


def types_of(task: Task) -> tuple[str, ...]:
    """The types of entities that a task has tags for."""
    return tuple(label[2:] for label in task.labels if label.startswith("B-"))


def gold_spans(example: Any) -> list[Span]:
    """The entities of an example, from their first to their last character that is no space."""
    tags = mend_leading_space(example.gold, example.text)
    return [Span(*_trimmed(example.text, start, end), type) for start, end, type in spans_of(tags)]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while end > start and text[end - 1].isspace():
        end -= 1
    while start < end and text[start].isspace():
        start += 1
    return start, end


def apart(spans: Iterable[Span], text: str) -> list[Span]:
    """Those that share no character: the surer ones, of equals the longer, in the order of the text."""
    kept: list[Span] = []
    trimmed = (span._replace(start=start, end=end) for span in spans for start, end in [_trimmed(text, *span[:2])])
    for span in sorted(trimmed, key=lambda span: (-span.score, span.start - span.end, span.start)):
        if span.start < span.end and all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return sorted(kept)


def tags_of(length: int, spans: Iterable[Span]) -> tuple[str, ...]:
    """A tag for every character; spaces inside an entity carry its I-."""
    tags = ["O"] * length
    for start, end, type, _ in spans:
        tags[start:end] = [f"B-{type}", *[f"I-{type}"] * (end - start - 1)]
    return tuple(tags)


def answers_of(task: Task, examples: Sequence[Any], spans: Sequence[Sequence[Span]]) -> Answers:
    """Predictions, and for ensembles what the spans say of every character."""
    predictions, tables = [], []
    for example, found in zip(examples, spans, strict=True):
        kept = apart(found, example.text)
        predictions.append(Prediction(example.guid, tags_of(len(example.text), kept)))
        tables.append(_table(example.text, kept, task.labels))
    return Answers(predictions, tag_arrays(tables, task.labels), tables)


def sure_answers(task: Task, examples: Sequence[Any], predictions: list[Prediction]) -> Answers:
    """Tags as they were said; in an ensemble whoever tells no probabilities is sure of all of them."""
    tables = []
    for example, prediction in zip(examples, predictions, strict=True):
        spans = [Span(start, end, type) for start, end, type in spans_of(prediction.answer)]
        tables.append(_table(example.text, spans, task.labels))
    return Answers(predictions, tag_arrays(tables, task.labels), tables)


def _table(text: str, spans: Sequence[Span], labels: tuple[str, ...]) -> Array:
    """Characters x labels: the score of a span for its tags and the rest for O; nothing is said of spaces."""
    outside, _, _ = columns(labels)
    table = np.zeros((len(text), len(labels)), dtype=np.float16)
    table[:, outside] = 1
    for start, end, type, score in spans:
        inside = [labels.index(f"B-{type}"), *[labels.index(f"I-{type}")] * (end - start - 1)]
        table[start:end, outside] = 1 - score
        table[np.arange(start, end), inside] = score
    table[[position for position, letter in enumerate(text) if letter.isspace()]] = 0
    return table


def label_words(text: str, task: Task, usual: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Type -> what the model calls it, of a setting such as PS=PERSON+PER,LC=GPE; the usual words for the others."""
    types = types_of(task)
    words: dict[str, tuple[str, ...]] = {type: (usual.get(type, type),) for type in types}
    for part in filter(None, (part.strip() for part in text.split(","))):
        type, equals, named = (piece.strip() for piece in part.partition("="))
        if not equals or type not in types or not all(word.strip() for word in named.split("+")):
            raise DanseoError(f"head.label_words: {part!r}; write TYPE=word, with a type of {', '.join(types)}")
        words[type] = tuple(word.strip() for word in named.split("+"))
    return words
