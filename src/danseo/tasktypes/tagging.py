"""Tagging: an IOB2 tag for every character of a text, such as named entities."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from danseo.display.table import Table
from danseo.files import quote
from danseo.language import _
from danseo.metrics.statistic import Counts, Formula, Metric, index_metrics, macro_f1, micro_f1
from danseo.metrics.tagging import (
    Tagged,
    encode_characters,
    entity_counts,
    entity_precision,
    entity_recall,
    forgive_ends,
    list_entities,
    mark_characters,
    sentence_accuracy,
)
from danseo.records import Prediction, TextExample
from danseo.rows import Row
from danseo.tasktypes.base import (
    Confidences,
    DataFile,
    ErrorDescription,
    Examples,
    Golds,
    IsKnown,
    OutputRow,
    Predictions,
    Rows,
    Splits,
    Statistics,
    Systems,
    Task,
    TaskType,
    shuffle_sequences,
)
from danseo.tasktypes.combination import Combined, Combiner, Member, Members, count_votes, normalize_weights
from danseo.tasktypes.decoding import Array, Arrays, decode_texts
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import (
    Input,
    place_span,
    read_cell,
    read_guid,
    read_json_list,
    read_optional_cell,
    text_input,
)
from danseo.tasktypes.rendering import (
    ANSWER_WRONG,
    GOLD_WRONG,
    EarlierTurns,
    RenderedExample,
    RenderedLine,
    TextSpan,
    found_table,
    join_parts,
    mark_text,
    zip_counts,
)
from danseo.text.normalization import compose
from danseo.text.particles import ParticleFixer, split_particles
from danseo.text.perturbations import Change, change_spans

_SMALLEST = 6e-8  # the smallest number of half precision
Span = tuple[int, int, str]
"""Start, end (exclusive) and type."""
ENTITY_ERRORS = {
    _("wrong type"): _("right boundaries, another type"),
    _("particle included"): _("a gold entity and the particle after it"),
    _("particle left out"): _("a gold entity without its end, which has the form of a particle"),
    _("wrong border"): _("overlaps a gold entity of its type in another way"),
    _("wrong type and border"): _("overlaps only gold entities of other types"),
    _("spurious"): _("overlaps no gold entity"),
    _("missed"): _("a gold entity that no answer overlaps"),
}


class Tagging(TaskType):
    """The answer is a tuple of tags, one per character, spaces included; spaces are not scored."""

    name = "tagging"
    has_seen_slices = True
    hub_pipeline = "token-classification"
    has_conll = True
    legend = _("green is found, yellow missed, red wrong")
    csv_columns: ClassVar[tuple[str, ...]] = ("spans",)
    custom_title = "spans in texts"
    custom_label_word = "type"
    custom_metrics: ClassVar[Mapping[str, Metric]] = index_metrics(
        Metric("tag/entity_f1@strict-1", "F1 of all entities pooled: right type and borders, spaces removed"),
        Metric("tag/entity_f1@particle-lenient-1", "the same, if a particle more or less at the end does not matter"),
        Metric("tag/entity_macro_f1@strict-1", "mean of that F1 over the types"),
        Metric("tag/entity_precision@strict-1", "share of the answered entities that are right"),
        Metric("tag/entity_recall@strict-1", "share of the gold entities that were found"),
        Metric("tag/sentence_accuracy@1", "share of the texts with exactly the gold entities"),
    )

    def make_example(self, task: Task, guid: str, text: str) -> Any:
        return TextExample(guid, text, None)

    def validate(self, task: Task, example: Any, answer: Any) -> tuple[str, ...]:
        if not isinstance(answer, list | tuple):
            raise ValueError(_("the answer should be a list of tags, one per character line of the raw file"))
        if len(answer) != len(example.text):
            raise ValueError(
                _("{n} tags for {all} characters (spaces count)").format(n=len(answer), all=len(example.text))
            )
        known = frozenset(task.labels)
        if unknown := [tag for tag in answer if not isinstance(tag, str) or tag not in known]:
            text = _("unknown tag {tag}; known: {names}")
            raise ValueError(text.format(tag=quote(unknown[0]), names=", ".join(task.labels[:30])))
        return tuple(answer)

    def validate_probabilities(self, task: Task, value: Any) -> Any:
        return value  # one object per character; read_inline_rows reads them

    def change_texts(self, example: Any, change: Change) -> Any:
        entities = list(list_entities(example.gold))
        text, spans = change_spans(example.text, [entity[:2] for entity in entities], change)
        tags = ["O"] * len(text)
        for (*_place, type_), (start, end) in zip(entities, spans, strict=True):
            tags[start:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - start - 1)]
        return replace(example, text=text, gold=tuple(tags))

    # Baselines

    def majority_answer(self, example: Any, most_frequent: Any) -> Any:
        return ("O",) * len(example.text)

    def shuffle_answers(self, examples: Sequence[Any], rng: random.Random) -> list[Any]:
        golds = [example.gold for example in examples]
        return shuffle_sequences(golds, golds, rng)

    # Scoring

    def breakdown(self, task: Task, examples: Examples, predictions: Predictions) -> list[Table]:
        right, answered, gold = Counter[str](), Counter[str](), Counter[str]()
        for answers, golds in pair_entities(examples, predictions):
            answered.update(span[2] for span in answers)
            gold.update(span[2] for span in golds)
            right.update(span[2] for span in answers & golds)
        errors = count_errors(examples, predictions)
        meanings: list[tuple[object, ...]] = [(name, errors[name], text) for name, text in ENTITY_ERRORS.items()]
        return [
            found_table("per entity type", "type", zip_counts(get_entity_types(task.labels), right, answered, gold)),
            Table("entity errors", ("error", "count", "meaning"), meanings),
        ]

    def breakdown_by_seen(
        self, task: Task, train: Examples, examples: Examples, predictions: Predictions
    ) -> Table | None:
        """Return how many gold entities were found, by whether train has the same words with the same type."""
        known = {(example.text[a:b], type_) for example in train for a, b, type_ in list_entities(example.gold)}
        counts = {True: [0, 0], False: [0, 0]}
        for example, prediction in zip(examples, predictions, strict=True):
            found = set(list_entities(prediction.answer))
            for span in list_entities(example.gold):
                is_seen = (example.text[span[0] : span[1]], span[2]) in known
                counts[is_seen][0] += 1
                counts[is_seen][1] += span in found
        rows: list[tuple[object, ...]] = [
            (name, counts[is_seen][0], 100 * counts[is_seen][1] / counts[is_seen][0] if counts[is_seen][0] else None)
            for name, is_seen in ((_("seen in training"), True), (_("not seen"), False))
        ]
        return Table("by seen entities", ("gold entities", "n", "found whole %"), rows)

    def confidences(self, task: Task, examples: Examples, predictions: Predictions, rows: Rows) -> Confidences | None:
        tables = [np.asarray(row, dtype=np.float32) for row in rows or ()]
        golds = np.array([task.labels.index(tag) for example in examples for tag in example.gold])
        table = np.concatenate(tables) if tables else np.zeros((0, 1), dtype=np.float32)
        if len(table) != len(golds) or not len(golds):
            return None
        is_scored = np.array([character != " " for example in examples for character in example.text])
        return Confidences("characters", table.max(axis=1)[is_scored], (table.argmax(axis=1) == golds)[is_scored])

    def describe_error(self, task: Task, example: Any, prediction: Prediction) -> ErrorDescription | None:
        gold, answer = (locate_entities(tags, example.text) for tags in (example.gold, prediction.answer))
        missed, extra = (
            [f"{example.text[a:b]}:{type_}" for a, b, type_ in one if (a, b, type_) not in other]
            for one, other in ((gold, answer), (answer, gold))
        )
        if not missed and not extra:
            return None
        parts = {"text": example.text, GOLD_WRONG: join_parts(missed), ANSWER_WRONG: join_parts(extra)}
        return ErrorDescription(float(len(missed) + len(extra)), parts)

    def is_correct(self, example: Any, answer: Any) -> bool:
        return locate_entities(answer, example.text) == locate_entities(example.gold, example.text)

    # Rendering

    def render(self, task: Task, example: Any, answers: Systems, earlier: EarlierTurns = ()) -> RenderedExample:
        gold = locate_entities(example.gold, example.text)
        found = {name: locate_entities(prediction.answer, example.text) for name, prediction in answers.items()}
        common = set.union(set(), *(map(set, found.values())))
        lines = [RenderedLine("gold", _mark_entities(example.text, gold, common, "missed"), "gold")]
        lines += [
            RenderedLine(name, _mark_entities(example.text, spans, set(gold), "wrong"), "answer")
            for name, spans in found.items()
        ]
        wrong = {span[2] for spans in found.values() for span in set(spans) ^ set(gold)}
        return RenderedExample(example.guid, tuple(lines), tuple(sorted(wrong)))

    # Ensembles

    def make_combiner(self, members: Members, method: str) -> Combiner:
        return TagCombiner(members, method)

    def pack_arrays(self, task: Task, rows: Sequence[Any], token_starts: Sequence[Array] | None = None) -> Arrays:
        """Return the tables of characters x labels of all texts, and the characters at which tokens start."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        table = np.concatenate(rows) if len(rows) else np.zeros((0, len(task.labels)), dtype=np.float16)
        arrays = {"probabilities": table, "lengths": lengths, "labels": np.array(task.labels)}
        return arrays | ({"starts": np.concatenate(token_starts)} if token_starts else {})

    def unpack_arrays(self, task: Task, arrays: Arrays) -> list[Any]:
        """Return the tables, their columns in the order of the task's labels."""
        self.unpack_token_starts(arrays)  # raises if they are malformed
        order = [arrays["labels"].tolist().index(label) for label in task.labels]
        return list(np.split(arrays["probabilities"][:, order], np.cumsum(arrays["lengths"])[:-1]))

    def fits_example(self, row: Any, example: Any) -> bool:
        return len(row) == len(example.text)

    def unpack_token_starts(self, arrays: Arrays) -> list[Array] | None:
        if "starts" not in arrays:
            return None
        if len(arrays["starts"]) != len(arrays["probabilities"]):
            raise ValueError("starts")
        return list(np.split(arrays["starts"].astype(bool), np.cumsum(arrays["lengths"])[:-1]))

    def read_inline_rows(self, task: Task, predictions: Sequence[Prediction]) -> list[Any] | None:
        if any(prediction.probabilities is None for prediction in predictions):
            return None
        try:
            return [
                np.array([[character.get(label, 0.0) for label in task.labels] for character in p.probabilities])  # type: ignore[union-attr]
                for p in predictions
            ]
        except (AttributeError, TypeError):
            return None

    # Output

    def to_row(
        self, task: Task, example: Any, prediction: Prediction, table: Any = None, with_tags: bool = False
    ) -> OutputRow:
        text, tags = example.text, prediction.answer
        chances = [_find_probability(task, table, position, tag) for position, tag in enumerate(tags)]
        spans = [_describe_span(text, span, None if table is None else chances) for span in list_entities(tags)]
        row: dict[str, Any] = {"answer": tags, "spans": spans}
        if with_tags:
            row["tags"] = [
                {"character": character, "tag": tag, "confidence": None if chance is None else round(chance, 4)}
                for character, tag, chance in zip(text, tags, chances, strict=True)
            ]
        return row

    def to_conll(self, row: Mapping[str, Any]) -> str:
        """Return the format of KLUE's files: one character with its tag per line."""
        pairs = zip(row["text"], row["answer"], strict=True)
        lines = "".join(f"{character}\t{tag}\n" for character, tag in pairs)
        return f"## {row['guid']}\t{row['text']}\n{lines}\n"

    def make_particle_fixer(self, task: Task) -> "TagFixer":
        return TagFixer()

    # Custom tasks

    def custom_input(self, description: TaskDescription) -> Input:
        return text_input(description.text or "text")

    def read_custom(self, file: DataFile, is_known: IsKnown) -> Iterator[Any]:
        if file.description.spans or file.description.label:
            yield from super().read_custom(file, is_known)
            return
        for number, (*_place, lines) in enumerate(file.blocks(), 1):
            tokens, tags = [], []
            for position, fields in lines:
                row = Row({}, f"{file.path}, line {position}")
                if len(fields) < 2:
                    raise row.error("the line has no tag; write a token and its tag, with a tab or a blank between")
                _check_tag(fields[-1], row, file.description, is_known)
                tokens.append(fields[0])
                tags.append(fields[-1])
            text, gold = spread_tags(tokens, tags)
            yield TextExample(str(number), text=text, gold=gold, source=None)

    def read_row(self, row: Row, number: int, description: TaskDescription, is_known: IsKnown) -> Any:
        read = _read_spans if description.spans else _read_token_tags
        text, gold = read(row, description, is_known)
        return TextExample(
            read_guid(row, number, description), text=text, gold=gold, source=read_optional_cell(row, description.group)
        )

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        texts = [example.text for example in examples]
        tagged = encode_characters(golds, answers, texts, get_entity_types(custom.labels))
        return {
            "tag/entity_f1@strict-1": entity_counts(tagged, micro_f1),
            "tag/entity_f1@particle-lenient-1": forgive_particles(tagged, texts, micro_f1),
            "tag/entity_macro_f1@strict-1": entity_counts(tagged),
            "tag/entity_precision@strict-1": entity_precision(tagged),
            "tag/entity_recall@strict-1": entity_recall(tagged),
            "tag/sentence_accuracy@1": sentence_accuracy(tagged),
        }

    def find_labels(self, gold: Any) -> Iterable[str]:
        return (f"B-{type_}" for _, _, type_ in list_entities(gold))

    def expand_labels(self, names: Sequence[str]) -> tuple[str, ...]:
        return (*(f"{prefix}-{name[2:]}" for name in names for prefix in "BI"), "O")

    def show_label(self, label: str) -> str:
        return label.removeprefix("B-")

    def list_label_names(self, task: Task) -> list[str]:
        return list(dict.fromkeys(tag[2:] for tag in task.labels if tag != "O"))

    def rename_labels(self, answer: Any, names: Mapping[str, str]) -> Any:
        return tuple(f"{tag[:2]}{names[tag[2:]]}" if tag[2:] in names else "O" for tag in answer)

    def count_oddities(self, splits: Splits) -> list[tuple[object, ...]]:
        """Count entities with a space at an end: their offsets may be wrong."""
        counts = [
            sum(
                e.text[start:end] != e.text[start:end].strip()
                for e in examples
                for start, end, _ in list_entities(e.gold)
            )
            for examples in splits.values()
        ]
        return [(_("entities that begin or end with a space"), *counts)]


def get_entity_types(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the entity types of the tags."""
    return tuple(dict.fromkeys(label[2:] for label in labels if label != "O"))


def locate_entities(tags: Sequence[str], text: str) -> list[Span]:
    """Return the entities with their offsets in the text; spaces inside do not end one."""
    positions = [position for position, character in enumerate(text) if character != " "]
    spans = list_entities([tags[position] for position in positions])
    return [(positions[a], positions[b - 1] + 1, type_) for a, b, type_ in spans]


def _mark_entities(text: str, spans: list[Span], right: set[Span], other: str) -> tuple[TextSpan, ...]:
    return tuple(mark_text(text, spans, ["right" if span in right else other for span in spans]))


# Errors


def pair_entities(examples: Sequence[Any], predictions: Sequence[Prediction]) -> Iterator[tuple[set[Span], set[Span]]]:
    """Yield the answered and the gold entities of each example; spaces are not scored."""
    for example, prediction in zip(examples, predictions, strict=True):
        yield set(locate_entities(prediction.answer, example.text)), set(locate_entities(example.gold, example.text))


def count_errors(examples: Sequence[Any], predictions: Sequence[Prediction]) -> Counter[str]:
    """Return how often each of ENTITY_ERRORS was made."""
    errors = Counter[str]()
    for example, (answers, golds) in zip(examples, pair_entities(examples, predictions), strict=True):
        errors.update(classify_error(span, golds, example.text) for span in answers - golds)
        errors["missed"] += sum(not any(_overlap(span, other) for other in answers) for span in golds)
    return errors


def classify_error(span: Span, golds: set[Span], text: str) -> str:
    """Return which of ENTITY_ERRORS an answered entity that is not in gold is."""
    near = [gold for gold in golds if _overlap(span, gold)]
    if not near:
        return "spurious"
    if any(gold[:2] == span[:2] for gold in near):
        return "wrong type"
    for start, end, type_ in near:
        if (start, type_) == (span[0], span[2]) and differs_by_particle(text, end, span[1]):
            return "particle included" if end < span[1] else "particle left out"
    return "wrong border" if any(gold[2] == span[2] for gold in near) else "wrong type and border"


def differs_by_particle(text: str, *ends: int) -> bool:
    """Return whether the text between two ends of an entity is particles that fit the shorter entity."""
    first, last = sorted(ends)
    noun = compose(text[max(0, first - 3) : first])  # three jamo are a syllable
    return bool(split_particles(noun[-1:], compose(text[first:last])))


def forgive_particles(tagged: Tagged, texts: Sequence[str], formula: Formula = macro_f1) -> Counts:
    """Return the F1 of entities if their ends may differ by a particle; the tags are those of `encode_characters`."""
    text = "".join(texts)
    places = np.flatnonzero(mark_characters(text))
    pairs = ((places[np.stack(tagged.moved_ends[2:], axis=1) - 1]) + 1).tolist()
    forgiven = np.array([differs_by_particle(text, *pair) for pair in pairs], dtype=bool)
    return forgive_ends(tagged, forgiven, formula)


class TagFixer:
    """Corrects the ends of entities at particles (`--fix-particles`)."""

    def __init__(self) -> None:
        self.fixer = ParticleFixer()
        self.name = f"fix-particles-{self.fixer.name}"

    def __call__(self, examples: Examples, predictions: Predictions) -> list[Prediction]:
        """Return the predictions with corrected ends."""
        found = [locate_entities(p.answer, e.text) for e, p in zip(examples, predictions, strict=True)]
        chosen = [position for position, spans in enumerate(found) if spans]
        ends = self.fixer.find_ends([examples[k].text for k in chosen], [[s[:2] for s in found[k]] for k in chosen])
        fixed = list(predictions)
        for position, row in zip(chosen, ends, strict=True):
            tags = list(fixed[position].answer)
            for (_start, old, type_), end in zip(found[position], row, strict=True):
                tags[end:old] = ["O"] * (old - end)
                if set(tags[old:end]) == {"O"}:  # never into the next entity
                    tags[old:end] = [f"I-{type_}"] * (end - old)
            fixed[position] = replace(fixed[position], answer=tuple(tags))
        return fixed


def _overlap(a: Span, b: Span) -> bool:
    return a[0] < b[1] and b[0] < a[1]


# Output


def _find_probability(task: Task, table: Any, position: int, tag: str) -> float | None:
    """Return the probability of a character's tag; None if no token covers it, as with spaces."""
    is_covered = table is not None and table[position].any()
    return float(table[position, task.labels.index(tag)]) if is_covered else None


def _describe_span(text: str, span: Span, chances: list[float | None] | None) -> dict[str, Any]:
    start, end, type_ = span
    found: dict[str, Any] = {"start": start, "end": end, "type": type_, "text": text[start:end]}
    if chances is not None:
        known = [chance for chance in chances[start:end] if chance is not None]
        found["confidence"] = round(min(known), 4) if known else None
    return found


# Custom tasks


def _read_spans(row: Row, description: TaskDescription, is_known: IsKnown) -> tuple[str, tuple[str, ...]]:
    """Return a text with the tags of a list of spans: {"start": 0, "end": 3, "label": "PER"}, the end exclusive."""
    text = read_cell(row, description.text)
    tags = ["O"] * len(text)
    spans = read_json_list(row.values.get(description.spans))
    if not isinstance(spans, list):
        raise row.error(f"column {description.spans!r} should be a list of spans")
    for position, span in enumerate(spans, 1):
        inner = Row(span if isinstance(span, dict) else {}, f"{row.where}, span {position}")
        start, end = inner.integer("start"), inner.integer("end")
        stored = inner.values.get("text", inner.values.get("word"))
        start, end = place_span(inner, start, end, stored, text, "" if description.format else description.offsets)
        type_ = inner.text("label" if "label" in inner.values else "type")
        if any(tag != "O" for tag in tags[start:end]):
            raise inner.error("it overlaps another span; keep one of them")
        tags[start:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - start - 1)]
        _check_tag(f"B-{type_}", inner, description, is_known)
    return text, tuple(tags)


def _read_token_tags(row: Row, description: TaskDescription, is_known: IsKnown) -> tuple[str, tuple[str, ...]]:
    """Return the text and the tags of a list of tokens with a list of tags."""
    tokens, tags = (_read_text_list(row, key) for key in (description.text, description.label))
    if len(tokens) != len(tags):
        raise row.error(f"{len(tokens)} tokens but {len(tags)} tags; write one tag per token")
    for tag in tags:
        _check_tag(tag, row, description, is_known)
    return spread_tags(tokens, tags)


def _read_text_list(row: Row, key: str) -> list[str]:
    value = read_json_list(row.values.get(key))
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise row.error(f"column {key!r} should be a list of texts, not {quote(row.values.get(key))}")
    return value


def _check_tag(tag: str, row: Row, description: TaskDescription, is_known: IsKnown) -> None:
    if tag != "O" and (tag[:2] not in ("B-", "I-") or len(tag) < 3):
        raise row.error(f"tag {quote(tag)} should be O, B-… or I-…")
    if not is_known(tag):
        raise row.error(
            _("unknown tag {tag}; known: {names}").format(tag=quote(tag), names=", ".join(description.labels[:30]))
        )


def spread_tags(tokens: Sequence[str], tags: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the text and a tag per character; an I- that continues nothing begins its entity."""
    characters: list[str] = []
    before = "O"
    for position, (token, tag) in enumerate(zip(tokens, tags, strict=True)):
        begins = tag[:1] == "B" or (tag[:1] == "I" and before[1:] != tag[1:])
        if position:
            characters.append("O" if begins or tag == "O" else f"I{tag[1:]}")
        inner = f"I{tag[1:]}" if tag != "O" else "O"
        characters += [f"B{tag[1:]}" if begins else inner, *[inner] * (len(token) - 1)] if token else []
        before = tag
    return " ".join(tokens), tuple(characters)


# Ensembles


class TagCombiner(Combiner):
    """Averages the distributions of characters over the members that have one there, then decodes with Viterbi.

    Decoding goes over tokens if all members have the same ones, else over characters.
    """

    def __init__(self, members: Members, method: str) -> None:
        super().__init__(members, method)
        self.texts = [example.text for example in members.examples]
        self.ends = np.cumsum([*map(len, self.texts)])[:-1]
        self.find_starts = cache(self._find_starts)  # fitting weights combines again and again
        if method == "vote":
            positions = {label: position for position, label in enumerate(self.labels)}
            self.votes = [np.array([positions[t] for p in m.predictions for t in p.answer]) for m in members.members]
        else:
            rows = self.require_rows("character probabilities")
            self.tables = [np.concatenate(tables).astype(np.float32) for tables in rows]
            self.is_covered: list[Array] = [np.asarray(table.any(axis=1)) for table in self.tables]

    def __call__(self, weights: Array) -> Combined:
        table, covered = self._average(weights)
        rows = np.split(table, self.ends)
        self.token_starts = self.find_starts(tuple(np.flatnonzero(weights).tolist()))
        tags = decode_texts(self.texts, rows, np.split(covered, self.ends), self.labels, self.token_starts)
        return [Prediction(g, t) for g, t in zip(self.guids, tags, strict=True)], [r.astype(np.float16) for r in rows]

    def _find_starts(self, used: tuple[int, ...]) -> list[Array]:
        return find_common_starts([self.members.members[position] for position in used], self.texts)

    def predict_unconstrained(self, weights: Array) -> list[Prediction] | None:
        """Return the most probable tag of each character, legal or not."""
        table, covered = self._average(weights)
        best = np.where(covered, table.argmax(axis=1), self.labels.index("O"))
        rows = np.split(np.array(self.labels, dtype=object)[best], self.ends)
        return [Prediction(guid, tuple(tags)) for guid, tags in zip(self.guids, rows, strict=True)]

    def _average(self, weights: Array) -> tuple[Array, Array]:
        """Return the distribution of every character, and which characters have one."""
        normal = normalize_weights(weights)
        if self.method == "vote":
            votes = self.weight_votes(normal)
            table = count_votes(self.votes, votes, len(self.labels))
            return table / votes.sum(), np.ones(len(table), dtype=bool)
        average = arithmetic_mean if self.method == "prob" else geometric_mean
        return average(self.tables, self.is_covered, normal)


def find_common_starts(members: Sequence[Member], texts: list[str]) -> list[Array]:
    """Return where the tokens of all members start; every character if members tokenize a text differently."""
    known = [member.token_starts for member in members if member.token_starts is not None]
    if len(known) < len(members):
        return [np.ones(len(text), dtype=bool) for text in texts]
    return [
        first if all(np.array_equal(first, other) for other in others) else np.ones(len(first), dtype=bool)
        for first, *others in zip(*known, strict=True)
    ]


def arithmetic_mean(tables: list[Array], is_covered: list[Array], weights: Array) -> tuple[Array, Array]:
    """Return the mean over the members that cover a character, and which characters are covered."""
    columns = list(zip(weights, tables, is_covered, strict=True))
    mass = sum(weight * covered for weight, _, covered in columns)
    total = sum(weight * table.astype(np.float64) for weight, table, _ in columns)
    return total / np.where(mass > 0, mass, 1)[:, None], mass > 0


def geometric_mean(tables: list[Array], is_covered: list[Array], weights: Array) -> tuple[Array, Array]:
    """Return the normalized geometric mean, which averages logits; tags with probability 0 everywhere keep it."""
    columns = [(w, t, c) for w, t, c in zip(weights, tables, is_covered, strict=True) if w > 0]
    mass = sum(weight * covered for weight, _, covered in columns)
    logs = sum(weight * covered[:, None] * np.log(np.maximum(table, _SMALLEST)) for weight, table, covered in columns)
    possible = np.any([table > 0 for _, table, _ in columns], axis=0)
    means = np.where(possible, np.exp(logs / np.where(mass > 0, mass, 1)[:, None]), 0)
    total = means.sum(axis=1, keepdims=True)
    return means / np.where(total > 0, total, 1), mass > 0


TYPE = Tagging()
