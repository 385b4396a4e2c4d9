"""Where a score comes from: per label, entity type, relation, question type or slot, and what is confused."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from danseo.display.table import Table
from danseo.metrics.answering import best_overlap, exact_match
from danseo.metrics.classification import curves
from danseo.metrics.parsing import attachment
from danseo.metrics.regression import pearson
from danseo.metrics.tagging import spans_of
from danseo.records import Prediction
from danseo.scoring.mistakes import mistakes_table
from danseo.scoring.slices import by_seen
from danseo.tasks.mrc import QUESTION_TYPES
from danseo.tasks.task import Task, answers_of, golds_of
from danseo.tasks.wos import slot_of

_CONFUSIONS = 20
_MATRIX = 10  # labels that a matrix has room for


def details(
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    whole: bool = True,
    errors: int = 0,
    train: Sequence[Any] = (),
) -> list[Table]:
    """The tables of the task's kind where they are asked for, and that many of the wrong examples.

    Where train is given, entities that it has are told from those that it has not.
    """
    tables = _breakdown(task, examples, predictions) if whole else []
    seen = by_seen(task, train, examples, predictions) if whole and train else None
    tables = [*tables, seen] if seen else tables
    return [*tables, mistakes_table(task, examples, predictions, errors)] if errors else tables


def _breakdown(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[Table]:
    makers: dict[str, Callable[[Task, Sequence[Any], list[Any]], list[Table]]] = {
        "classify": _labels,
        "labels": _several,
        "score": _numbers,
        "tag": _entities,
        "parse": _relations,
        "answer": _questions,
        "track": _slots,
    }
    tables = makers[task.kind](task, examples, answers_of(predictions))
    if task.kind == "classify":
        tables[0] = _with_precision(tables[0], task, examples, predictions)
    return [*tables, *_by_source(task, examples, predictions)] if task.kind in ("classify", "labels") else tables


def _with_precision(table: Table, task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> Table:
    """The table with the average precision of each label, where all answers have probabilities."""
    probabilities = [prediction.probabilities for prediction in predictions if prediction.probabilities is not None]
    if len(probabilities) < len(predictions):
        return table
    areas = curves(golds_of(examples), probabilities, task.labels).plain[1][:, 0]
    found = {label: None if np.isnan(area) else 100 * area for label, area in zip(task.labels, areas, strict=True)}
    rows = [(*row, found[str(row[0])]) for row in table.rows]
    return replace(table, columns=(*table.columns, "AP"), rows=rows, note="AP: average precision, by probabilities")


def _by_source(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[Table]:
    """The headline of each source, where examples come from several."""
    positions: dict[str, list[int]] = {}
    for position, example in enumerate(examples):
        positions.setdefault(getattr(example, "source", None) or "not known", []).append(position)
    if len(positions) < 2:
        return []
    rows: list[tuple[object, ...]] = []
    for source, chosen in sorted(positions.items()):
        found = task.measure([examples[k] for k in chosen], [predictions[k] for k in chosen])[task.headline]
        rows.append((source, len(chosen), found.value()))
    return [Table("per source", ("source", "n", task.headline), rows)]


def found_table(title: str, name: str, counts: Iterable[tuple[str, int, int, int]]) -> Table:
    """Precision, recall and F1 from (name, right, answered, gold)."""
    columns = (name, "gold", "answered", "right", "precision", "recall", "F1")
    rows: list[tuple[object, ...]] = [
        (
            key,
            gold,
            answered,
            right,
            _percent(right, answered),
            _percent(right, gold),
            _percent(2 * right, answered + gold),
        )
        for key, right, answered, gold in counts
        if answered + gold
    ]
    return Table(title, columns, rows)


def _percent(part: float, whole: float) -> float | None:
    return 100 * part / whole if whole else None


def _counted(names: Sequence[str], right: Counter[str], answered: Counter[str], gold: Counter[str]) -> Any:
    return ((name, right[name], answered[name], gold[name]) for name in names)


def _labels(task: Task, examples: Sequence[Any], answers: list[str]) -> list[Table]:
    golds = golds_of(examples)
    right = Counter(gold for gold, answer in zip(golds, answers, strict=True) if gold == answer)
    per_label = found_table("per label", "label", _counted(task.labels, right, Counter(answers), Counter(golds)))
    tables = [per_label, _confusion(task.labels, golds, answers)]
    if len(task.labels) > _MATRIX:
        tables.append(_hardest(golds, answers))
    if task.nothing:
        word, none = task.label_word, f"no {task.label_word}"
        sides = [[none if label == task.nothing else word for label in rows] for rows in (golds, answers)]
        tables.append(_confusion((word, none), sides[0], sides[1], title=f"is there a {word}?"))
    return tables


def _hardest(golds: Sequence[str], answers: Sequence[str]) -> Table:
    """The pairs of labels that are taken for each other most, whichever way, as a share of the golds of both."""
    pairs = Counter(frozenset(pair) for pair in zip(golds, answers, strict=True) if pair[0] != pair[1] and pair[1])
    gold = Counter(golds)
    ranked = sorted(pairs.items(), key=lambda item: (-item[1] / sum(gold[label] for label in item[0]), sorted(item[0])))
    rows: list[tuple[object, ...]] = []
    for pair, count in [(pair, count) for pair, count in ranked if count > 1][:_CONFUSIONS]:
        one, other = sorted(pair, key=lambda label: (-gold[label], label))
        rows.append((one, other, gold[one] + gold[other], count, 100 * count / (gold[one] + gold[other])))
    note = "mistakes either way, made more than once, as a share of the golds of both labels"
    return Table("hardest pairs of labels", ("label", "and", "gold", "confused", "%"), rows, note)


def _several(task: Task, examples: Sequence[Any], answers: list[Sequence[str]]) -> list[Table]:
    pairs = [(set(example.gold), set(answer)) for example, answer in zip(examples, answers, strict=True)]
    counts = _slot_counts(pairs, lambda label: label)
    return [found_table("per label", "label", _counted(task.labels, *counts)), _sizes(pairs), _instead(pairs)]


def _sizes(pairs: Sequence[tuple[set[str], set[str]]]) -> Table:
    """Whether too many labels are answered, or too few."""
    rows: list[tuple[object, ...]] = []
    for size in sorted({len(gold) for gold, _ in pairs}):
        mine = [(gold, answer) for gold, answer in pairs if len(gold) == size]
        mean = sum(len(answer) for _, answer in mine) / len(mine)
        rows.append((size, len(mine), mean, _percent(sum(gold == answer for gold, answer in mine), len(mine))))
    return Table("per number of gold labels", ("gold labels", "n", "answered labels", "exactly right %"), rows)


def _instead(pairs: Sequence[tuple[set[str], set[str]]]) -> Table:
    """Which wrong label is answered where which one is missed."""
    wrong = Counter((g, a) for gold, answer in pairs for g in gold - answer for a in answer - gold).most_common()
    note = f"the {_CONFUSIONS} most frequent of {len(wrong)}" if len(wrong) > _CONFUSIONS else ""
    rows = [(gold, answer, count) for (gold, answer), count in wrong[:_CONFUSIONS]]
    return Table("confusion", ("missed", "answered instead", "count"), list(rows), note)


def _confusion(labels: Sequence[str], golds: Sequence[str], answers: Sequence[str], title: str = "confusion") -> Table:
    """A matrix for few labels, the most frequent confusions for many."""
    pairs = Counter(zip(golds, answers, strict=True))
    if len(labels) <= _MATRIX:
        rows: list[tuple[object, ...]] = [(gold, *(pairs[gold, answer] for answer in labels)) for gold in labels]
        return Table(title, ("gold \\ answer", *labels), rows)
    wrong = [(gold, answer, count) for (gold, answer), count in pairs.most_common() if gold != answer]
    note = f"the {_CONFUSIONS} most frequent of {len(wrong)}" if len(wrong) > _CONFUSIONS else ""
    return Table(title, ("gold", "answer", "count"), list(wrong[:_CONFUSIONS]), note)


def _numbers(task: Task, examples: Sequence[Any], answers: list[float]) -> list[Table]:
    golds = golds_of(examples)
    sources = [example.source or "not known" for example in examples]
    low, high = task.scale
    step = (high - low) / 5
    positions = [min(max(int((gold - low) / step), 0), 4) for gold in golds]
    bands = [f"{low + position * step:g}-{low + (position + 1) * step:g}" for position in positions]
    return [
        _number_table("per source", sources, golds, answers),
        _number_table("per gold score", bands, golds, answers),
    ]


def _number_table(title: str, keys: Sequence[str], golds: Sequence[float], answers: Sequence[float]) -> Table:
    rows: list[tuple[object, ...]] = []
    for key in sorted(set(keys)):
        gold, answer = (np.array([v for v, k in zip(side, keys, strict=True) if k == key]) for side in (golds, answers))
        error = answer - gold
        rows.append(
            (key, len(gold), pearson(list(gold), list(answer)).value(), float(error.mean()), float(abs(error).mean()))
        )
    return Table(title, (title.removeprefix("per "), "n", "Pearson", "mean error", "mean |error|"), rows)


def _entities(task: Task, examples: Sequence[Any], answers: list[Sequence[str]]) -> list[Table]:
    types = list(dict.fromkeys(label[2:] for label in task.labels if label != "O"))
    right, answered, gold = Counter[str](), Counter[str](), Counter[str]()
    for found, wanted in _entity_sets(examples, answers):
        answered.update(span[2] for span in found)
        gold.update(span[2] for span in wanted)
        right.update(span[2] for span in found & wanted)
    errors = entity_mistakes(examples, answers)
    meaning: list[tuple[object, ...]] = [(name, errors[name], text) for name, text in ENTITY_ERRORS.items()]
    return [
        found_table("per entity type", "type", _counted(types, right, answered, gold)),
        Table("entity errors", ("error", "count", "meaning"), meaning),
    ]


Spans = set[tuple[int, int, str]]


def _entity_sets(examples: Sequence[Any], answers: Sequence[Sequence[str]]) -> Iterable[tuple[Spans, Spans]]:
    """The answered and the gold entities of each sentence, spaces removed."""
    for example, answer in zip(examples, answers, strict=True):
        shown = [tag for tag, character in zip(answer, example.text, strict=True) if character != " "]
        due = [tag for tag, character in zip(example.gold, example.text, strict=True) if character != " "]
        yield set(spans_of(shown)), set(spans_of(due))


def entity_mistakes(examples: Sequence[Any], answers: Sequence[Sequence[str]]) -> Counter[str]:
    """How often each kind of mistake was made."""
    errors = Counter[str]()
    for found, wanted in _entity_sets(examples, answers):
        errors.update(entity_error(span, wanted) for span in found - wanted)
        errors["missed"] += sum(not any(_touch(span, other) for other in found) for span in wanted)
    return errors


ENTITY_ERRORS = {
    "wrong type": "right borders, another type",
    "wrong border": "overlaps a gold entity of its type",
    "wrong type and border": "overlaps only gold entities of other types",
    "spurious": "overlaps no gold entity",
    "missed": "a gold entity that no answer overlaps",
}


def entity_error(span: tuple[int, int, str], golds: set[tuple[int, int, str]]) -> str:
    """What is wrong with an answered entity that is not in gold."""
    near = [gold for gold in golds if _touch(span, gold)]
    if not near:
        return "spurious"
    if any(gold[:2] == span[:2] for gold in near):
        return "wrong type"
    return "wrong border" if any(gold[2] == span[2] for gold in near) else "wrong type and border"


def _touch(a: tuple[int, int, str], b: tuple[int, int, str]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _relations(task: Task, examples: Sequence[Any], answers: list[Any]) -> list[Table]:
    words = [
        (gold, answer)
        for example, row in zip(examples, answers, strict=True)
        for gold, answer in zip(example.gold, row, strict=True)
    ]
    right = Counter(gold[1] for gold, answer in words if gold == answer)
    heads = Counter(gold[1] for gold, answer in words if gold[0] == answer[0])
    gold_counts, answered = Counter(gold[1] for gold, _ in words), Counter(answer[1] for _, answer in words)
    table = found_table(
        "per relation (right: head and relation)", "relation", _counted(task.labels, right, answered, gold_counts)
    )
    rows = [(*row, _percent(heads[str(row[0])], gold_counts[str(row[0])])) for row in table.rows]
    with_heads = Table(table.title, (*table.columns, "head right %"), rows)
    confused = [(g[1], a[1]) for g, a in words if g[0] == a[0]]
    sides = [gold for gold, _ in confused], [answer for _, answer in confused]
    confusion = _confusion(task.labels, sides[0], sides[1], title="confusion where the head is right")
    return [with_heads, _sentence_lengths(examples, answers), confusion]


def _sentence_lengths(examples: Sequence[Any], answers: list[Any]) -> Table:
    bands = {"1-5 words": range(1, 6), "6-10 words": range(6, 11), "11-20 words": range(11, 21)}
    keys = [next((k for k, band in bands.items() if len(e.gold) in band), "over 20 words") for e in examples]
    rows: list[tuple[object, ...]] = []
    for key in (*bands, "over 20 words"):
        chosen = [(e.gold, a) for e, a, k in zip(examples, answers, keys, strict=True) if k == key]
        if chosen:
            golds, shown = zip(*chosen, strict=True)
            values = [attachment(golds, shown, labelled=labelled).value() for labelled in (False, True)]
            rows.append((key, len(chosen), *values))
    return Table("per sentence length", ("length", "sentences", "UAS", "LAS"), rows)


def _questions(task: Task, examples: Sequence[Any], answers: list[str]) -> list[Table]:
    kinds = [QUESTION_TYPES[example.question_type] for example in examples]
    answerable = ["answerable" if example.gold else "unanswerable" for example in examples]
    shown = ["answered" if answer else "left empty" for answer in answers]
    pairs = Counter(zip(answerable, shown, strict=True))
    rows: list[tuple[object, ...]] = [
        (gold, pairs[gold, "answered"], pairs[gold, "left empty"]) for gold in ("answerable", "unanswerable")
    ]
    return [
        *([] if task.own else [_question_table("per question type", kinds, examples, answers)]),
        _question_table("per answerability", answerable, examples, answers),
        Table("did it answer?", ("question", "answered", "left empty"), rows),
    ]


def _question_table(title: str, keys: Sequence[str], examples: Sequence[Any], answers: list[str]) -> Table:
    rows: list[tuple[object, ...]] = []
    for key in sorted(set(keys)):
        chosen = [(e.gold, a) for e, a, k in zip(examples, answers, keys, strict=True) if k == key]
        golds, shown = zip(*chosen, strict=True)
        overlaps = [best_overlap(gold, answer) for gold, answer in chosen]
        rows.append((key, len(chosen), exact_match(golds, shown).value(), 100 * sum(overlaps) / len(overlaps)))
    return Table(title, (title.removeprefix("per "), "n", "exact match", "ROUGE-W"), rows)


def _slots(task: Task, examples: Sequence[Any], answers: list[Sequence[str]]) -> list[Table]:
    states = [(set(example.gold), set(answer)) for example, answer in zip(examples, answers, strict=True)]
    by_slot = _slot_counts(states, slot_of)
    by_domain = _slot_counts(states, lambda value: value.split("-")[0])
    domains = list(dict.fromkeys(slot.split("-")[0] for slot in task.labels))
    return [
        found_table("per domain", "domain", _counted(domains, *by_domain)),
        found_table("per slot", "slot", _counted(task.labels, *by_slot)),
        _turn_table(examples, states),
    ]


def _slot_counts(states: Sequence[tuple[set[str], set[str]]], key: Callable[[str], str]) -> list[Counter[str]]:
    """Right, answered and gold values per key."""
    return [
        Counter(key(value) for gold, answer in states for value in side(gold, answer))
        for side in (set.intersection, lambda gold, answer: answer, lambda gold, answer: gold)
    ]


def _turn_table(examples: Sequence[Any], states: Sequence[tuple[set[str], set[str]]]) -> Table:
    turns: Mapping[int, list[bool]] = {}
    turns = {number: [] for number in sorted({(len(example.turns) + 1) // 2 for example in examples})}
    for example, (gold, answer) in zip(examples, states, strict=True):
        turns[(len(example.turns) + 1) // 2].append(gold == answer)
    rows: list[tuple[object, ...]] = [
        (number, len(hits), 100 * sum(hits) / len(hits)) for number, hits in turns.items()
    ]
    return Table("per user turn", ("turn", "n", "joint goal accuracy"), rows)
