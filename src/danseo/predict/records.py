"""What is said of one example, field by field; answer.schema.json beside this file describes it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from danseo.data.lines import Line
from danseo.metrics.tagging import spans_of
from danseo.models.protocol import Model
from danseo.records import Prediction
from danseo.tasks.task import Task

OURS = frozenset(
    (
        "guid line text pair question subject object turns answer confidence probabilities spans tags words start end"
    ).split()
)
"""The names of our own fields; a user's field of such a name comes back with input_ before it."""


@dataclass(frozen=True)
class Wanted:
    """What a record should hold besides the answer."""

    text: bool = False
    tags: bool = False


PLAIN = Wanted()


def schema() -> dict[str, Any]:
    """The JSON schema of a record."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("answer.schema.json").read_text("utf-8"))
    return found


def answered(model: Model, task: Task, lines: Sequence[Line], wanted: Wanted = PLAIN) -> list[dict[str, Any]]:
    """One record per example, in order."""
    if not lines:
        return []
    answers = model.predict([line.example for line in lines])
    tables = answers.tables or [None] * len(lines)
    return [
        {
            "guid": line.example.guid,
            "line": line.number,
            **kept(line.own),
            **(texts(line.example) if wanted.text else {}),
            **described(task, line.example, prediction, table, with_tags=wanted.tags),
        }
        for line, prediction, table in zip(lines, answers, tables, strict=True)
    ]


def kept(own: Mapping[str, Any]) -> dict[str, Any]:
    """The user's own fields, under names that are not ours."""
    return {f"input_{name}" if name in OURS else name: value for name, value in own.items() if name != "guid"}


def texts(example: Any) -> dict[str, Any]:
    """The texts that were read."""
    found: dict[str, Any] = {
        name: getattr(example, name)
        for name in ("text", "pair", "question", "turns")
        if getattr(example, name, None) is not None
    }
    entities = ((name, getattr(example, name, None)) for name in ("subject", "object"))
    return found | {name: asdict(entity) for name, entity in entities if entity is not None}


def described(
    task: Task, example: Any, prediction: Prediction, table: Any, *, with_tags: bool = False
) -> dict[str, Any]:
    """The answer with spans in characters and confidences, as far as the task has them."""
    record: dict[str, Any] = {"answer": prediction.answer}
    if task.kind == "classify" and prediction.probabilities:
        record |= {
            "confidence": max(prediction.probabilities.values()),
            "probabilities": dict(prediction.probabilities),
        }
    if task.kind == "labels" and prediction.probabilities:
        chances = dict(prediction.probabilities)
        record |= {"confidence": {label: chances[label] for label in prediction.answer}, "probabilities": chances}
    if task.kind == "tag":
        record |= _tagged(task, example.text, prediction.answer, table, with_tags)
    if task.kind == "parse":
        columns = zip(example.words, prediction.answer, strict=True)
        record["words"] = [{"word": word, "head": head, "relation": relation} for word, (head, relation) in columns]
    if task.kind == "answer":
        if prediction.span:
            record["start"], record["end"] = prediction.span
        if prediction.probabilities:
            none = prediction.probabilities.get("", 0.0)
            record["confidence"] = round(1 - none if prediction.answer else none, 6)
    return record


def _tagged(task: Task, text: str, tags: Sequence[str], table: Any, with_tags: bool) -> dict[str, Any]:
    """Spans, and on request every character with its tag."""
    record: dict[str, Any] = {"spans": [_span(task, text, tags, span, table) for span in spans_of(tags)]}
    if with_tags:
        chances = [_chance(task, table, position, tag) for position, tag in enumerate(tags)]
        columns = zip(text, tags, chances, strict=True)
        record["tags"] = [
            {"character": character, "tag": tag, "confidence": None if chance is None else round(chance, 4)}
            for character, tag, chance in columns
        ]
    return record


def _chance(task: Task, table: Any, position: int, tag: str) -> float | None:
    """The probability of a character's tag; None where no piece covers it, as with spaces."""
    known = table is not None and table[position].any()
    return float(table[position, task.labels.index(tag)]) if known else None


def _span(task: Task, text: str, tags: Sequence[str], span: tuple[int, int, str], table: Any) -> dict[str, Any]:
    start, end, kind = span
    found: dict[str, Any] = {"start": start, "end": end, "type": kind, "text": text[start:end]}
    if table is not None:
        chances = (_chance(task, table, position, tags[position]) for position in range(start, end))
        chosen = [chance for chance in chances if chance is not None]
        found["confidence"] = round(min(chosen), 4) if chosen else None
    return found
