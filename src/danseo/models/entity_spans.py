"""Entity spans: conversion to tags per character and back, for span and word taggers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from danseo.errors import DanseoError
from danseo.metrics.tagging import correct_leading_space, list_entities
from danseo.models.base import Answers
from danseo.records import Prediction
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import Array
from danseo.tasktypes.tagging import get_entity_types
from danseo.text.normalization import normalize_text


class EntitySpan(NamedTuple):
    """A span of a text with its type and its score."""

    start: int
    end: int
    type: str
    score: float = 1.0


def split_characters(text: str) -> list[tuple[int, int]]:
    """Return the span of every character that is not a space; a decomposed syllable is one character."""
    letters = normalize_text(text)
    return letters.to_original([(position, position + 1) for position, c in enumerate(letters.text) if not c.isspace()])


def get_gold_spans(example: Any) -> list[EntitySpan]:
    """Return the gold entities of an example, without surrounding spaces."""
    tags = correct_leading_space(example.gold, example.text)
    return [EntitySpan(*_strip_span(example.text, start, end), type) for start, end, type in list_entities(tags)]


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    while end > start and text[end - 1].isspace():
        end -= 1
    while start < end and text[start].isspace():
        start += 1
    return start, end


def drop_overlaps(spans: Iterable[EntitySpan], text: str) -> list[EntitySpan]:
    """Drop overlapping spans: keep higher scores, then longer spans; return them in text order."""
    kept: list[EntitySpan] = []
    trimmed = (span._replace(start=start, end=end) for span in spans for start, end in [_strip_span(text, *span[:2])])
    for span in sorted(trimmed, key=lambda span: (-span.score, span.start - span.end, span.start)):
        if span.start < span.end and all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return sorted(kept)


def make_tags(length: int, spans: Iterable[EntitySpan]) -> tuple[str, ...]:
    """Return a tag per character; spaces inside an entity have its I- tag."""
    tags = ["O"] * length
    for start, end, type, _ in spans:
        tags[start:end] = [f"B-{type}", *[f"I-{type}"] * (end - start - 1)]
    return tuple(tags)


def make_answers(task: Task, examples: Sequence[Any], spans: Sequence[Sequence[EntitySpan]]) -> Answers:
    """Return predictions from spans, with the scores per character that ensembles need."""
    predictions, tables = [], []
    for example, found in zip(examples, spans, strict=True):
        kept = drop_overlaps(found, example.text)
        predictions.append(Prediction(example.guid, make_tags(len(example.text), kept)))
        tables.append(_table(example.text, kept, task.labels))
    return Answers(predictions, task.type.pack_arrays(task, tables), tables)


def make_certain_answers(task: Task, examples: Sequence[Any], predictions: list[Prediction]) -> Answers:
    """Return predictions with probability 1 for their tags, for models without probabilities."""
    tables = []
    for example, prediction in zip(examples, predictions, strict=True):
        spans = [EntitySpan(start, end, type) for start, end, type in list_entities(prediction.answer)]
        tables.append(_table(example.text, spans, task.labels))
    return Answers(predictions, task.type.pack_arrays(task, tables), tables)


def _table(text: str, spans: Sequence[EntitySpan], labels: tuple[str, ...]) -> Array:
    """Return characters x labels: the score of a span for its tags, the rest for O; spaces are 0."""
    outside = labels.index("O")
    table = np.zeros((len(text), len(labels)), dtype=np.float16)
    table[:, outside] = 1
    for start, end, type, score in spans:
        inside = [labels.index(f"B-{type}"), *[labels.index(f"I-{type}")] * (end - start - 1)]
        table[start:end, outside] = 1 - score
        table[np.arange(start, end), inside] = score
    table[[position for position, letter in enumerate(text) if letter.isspace()]] = 0
    return table


def parse_label_names(family: str, text: str, task: Task, usual: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the model's names of every entity type: those of a setting such as PS=PER+PERSON, else the usual ones."""
    types = get_entity_types(task.labels)
    words: dict[str, tuple[str, ...]] = {type: (usual.get(type, type),) for type in types}
    for part in filter(None, (part.strip() for part in text.split(","))):
        type, equals, named = (side.strip() for side in part.partition("="))
        if not equals or type not in types or not all(word.strip() for word in named.split("+")):
            raise DanseoError(f"{family}.label_names: {part!r}; write TYPE=name, with a type of {', '.join(types)}")
        words[type] = tuple(word.strip() for word in named.split("+"))
    return words
