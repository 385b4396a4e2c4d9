"""Relation extraction: the relation of two entities of a sentence."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from danseo.display.table import Table
from danseo.files import quote
from danseo.language import _
from danseo.metrics.classification import accuracy, label_macro_f1, relation_counts
from danseo.metrics.statistic import Counts, Metric, index_metrics, micro_f1_or_zero
from danseo.records import Entity, RelationExample
from danseo.rows import Row
from danseo.tasktypes.base import Examples, Golds, IsKnown, Predictions, Statistics, Task
from danseo.tasktypes.classification import Classification
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import Input, read_cell, read_guid, read_label, read_optional_cell, text_of
from danseo.tasktypes.rendering import RenderedLine, mark_text
from danseo.text.perturbations import Change, change_spans


class Relation(Classification):
    """A sentence with a subject and an object; the answer is one label."""

    name = "relation"
    has_pairs = False
    has_seen_slices = True
    augmentations: ClassVar[tuple[str, ...]] = ("aeda", "swap", "inverse")
    custom_title = "relation extraction"
    custom_label_word = "relation"
    custom_metrics: ClassVar[Mapping[str, Metric]] = index_metrics(
        Metric("relation/micro_f1@1", "F1 pooled over the relations, the label for none left out"),
        Metric("relation/macro_f1@1", "mean F1 over the labels that occur", average="macro"),
        Metric("relation/accuracy@1", "share of right labels, none included"),
    )
    required_columns: ClassVar[tuple[str, ...]] = ("text", "subject", "object", "label")

    def make_example(self, task: Task, guid: str, text: str) -> Any:
        first, last = Entity(text[:1], 0, 1, "PER"), Entity(text[-1:], len(text) - 1, len(text), "PER")
        return RelationExample(guid, text, first, last, "")

    def request_fields(self, task: Task) -> dict[str, Any]:
        names = {"text": "sentence", "subject": "subject_entity", "object": "object_entity"}
        return {name: getattr(task.custom, name, "") or default for name, default in names.items()}

    def breakdown_by_seen(
        self, task: Task, train: Examples, examples: Examples, predictions: Predictions
    ) -> Table | None:
        pairs = {(example.subject.word, example.object.word) for example in train}
        known = {word for pair in pairs for word in pair}
        both = _("both seen, not as this pair"), _("the pair seen in training")
        names = (_("none seen"), _("one seen"), *both)
        groups: dict[str, list[int]] = {name: [] for name in reversed(names)}
        for position, example in enumerate(examples):
            pair = (example.subject.word, example.object.word)
            groups[names[3 if pair in pairs else sum(word in known for word in pair)]].append(position)
        rows: list[tuple[object, ...]] = []
        for name, chosen in groups.items():
            if chosen:
                measured = task.measure([examples[k] for k in chosen], [predictions[k] for k in chosen])
                value = measured[task.headline].value()
                rows.append((name, len(chosen), None if value != value else value))
        return Table("by seen entities", ("entities", "n", task.headline), rows)

    def change_texts(self, example: Any, change: Change) -> Any:
        entities = example.subject, example.object
        text, spans = change_spans(example.text, [(entity.start, entity.end) for entity in entities], change)
        subject, other = (
            replace(entity, word=text[start:end], start=start, end=end)
            for entity, (start, end) in zip(entities, spans, strict=True)
        )
        return replace(example, text=text, subject=subject, object=other)

    def list_texts(self, task: Task, example: Any) -> list[tuple[str, str]]:
        return [("text", bracket_entities(example))]

    def render_texts(self, task: Task, example: Any) -> list[RenderedLine]:
        roles = (("subject", example.subject), ("object", example.object))
        marks = [(entity.start, entity.end, f"{role} {entity.type}") for role, entity in roles]
        return [RenderedLine("text", tuple(mark_text(example.text, marks)))]

    # Custom tasks

    def custom_input(self, description: TaskDescription) -> Input:
        def from_row(row: Row, guid: str) -> RelationExample:
            text = text_of(row, description.text)
            subject, other = (read_entity(row, key, text) for key in (description.subject, description.object))
            return RelationExample(guid, text=text, subject=subject, object=other, gold="")

        return Input(f"{description.text or 'text'}, {description.subject} and {description.object}", from_row)

    def read_row(self, row: Row, number: int, description: TaskDescription, is_known: IsKnown) -> Any:
        text = read_cell(row, description.text)
        subject, other = (read_entity(row, key, text) for key in (description.subject, description.object))
        return RelationExample(
            read_guid(row, number, description),
            text=text,
            subject=subject,
            object=other,
            gold=read_label(row, description, is_known),
            source=read_optional_cell(row, description.group),
        )

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        return {
            "relation/micro_f1@1": Counts(relation_counts(golds, answers, custom.none), micro_f1_or_zero),
            "relation/macro_f1@1": label_macro_f1(golds, answers),
            "relation/accuracy@1": accuracy(golds, answers),
        }


def bracket_entities(example: Any) -> str:
    """Return the sentence with its entities in brackets: [한빛:ORG subject]의 대표 [김철수:PER object]."""
    text = str(example.text)
    roles = ((example.subject, "subject"), (example.object, "object"))
    marks = [(e.end, f":{e.type} {role}]") for e, role in roles] + [(e.start, "[") for e, _ in roles]
    for position, mark in sorted(marks, key=lambda mark: -mark[0]):  # one entity may lie in the other
        text = text[:position] + mark + text[position:]
    return text


def relation_input(types: Sequence[str]) -> Input:
    """Return the input of a sentence and two of its entities, in KLUE's format."""

    def from_row(row: Row, guid: str) -> RelationExample:
        sentence = text_of(row, "sentence")
        keys = ("subject_entity", "object_entity")
        subject, other = (_read_klue_entity(row.child(key), sentence, types) for key in keys)
        return RelationExample(guid, text=sentence, subject=subject, object=other, gold="")

    return Input(
        "sentence, subject_entity and object_entity with word, start_idx, end_idx (inclusive) and type", from_row
    )


def _read_klue_entity(row: Row, sentence: str, types: Sequence[str]) -> Entity:
    start, end = row.integer("start_idx"), row.integer("end_idx") + 1
    if not 0 <= start < end <= len(sentence):
        raise row.error(f"start_idx {start} and end_idx {end - 1} do not lie in the sentence")
    if "word" in row.values and row.text("word") != sentence[start:end]:
        raise row.error(
            f"the sentence has {quote(sentence[start:end])} at {start}..{end - 1}, not {quote(row.text('word'))}"
        )
    return Entity(sentence[start:end], start, end, row.one_of(row.text("type"), types, "field 'type'"))


def read_entity(row: Row, key: str, text: str) -> Entity:
    """Return an entity: an object with start and end (exclusive) or start_idx and end_idx (inclusive), or a word."""
    value = row.values.get(key)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value.replace("'", '"') if '"' not in value else value)
        except (ValueError, RecursionError):  # also numbers with thousands of digits
            raise row.error(f"column {key!r} should be a JSON object, not {quote(value)}") from None
    if isinstance(value, dict):
        return _read_offsets(Row(value, f"{row.where}, {key}"), text)
    name = read_cell(row, key)
    if not name or text.count(name) != 1:
        count = text.count(name) if name else 0
        raise row.error(f"{quote(name)} of column {key!r} occurs {count} times in the text; give start and end")
    return Entity(name, text.index(name), text.index(name) + len(name), "entity")


def _read_offsets(row: Row, text: str) -> Entity:
    is_inclusive = "start_idx" in row.values
    start = row.integer("start_idx" if is_inclusive else "start")
    end = row.integer("end_idx") + 1 if is_inclusive else row.integer("end")
    if not 0 <= start < end <= len(text):
        raise row.error(f"{start}..{end} does not lie in the text of {len(text)} characters; correct the span")
    word, type_ = row.values.get("word"), row.values.get("type")
    if isinstance(word, str) and word != text[start:end]:
        raise row.error(f"the text has {quote(text[start:end])} at {start}..{end}, not {quote(word)}")
    return Entity(text[start:end], start, end, type_ if isinstance(type_, str) else "entity")


TYPE = Relation()
