"""Statistics of sentences with a subject and an object: types, positions, and what dev repeats of train."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import islice

from danseo.data.stats.labels import cumulative_shares, drop_longest, ratio_panel, source_panel
from danseo.data.stats.view import (
    Checks,
    Key,
    Length,
    Normalize,
    View,
    checks_table,
    count_characters,
    count_checks,
    count_flags,
    distribution_table,
    list_labels,
)
from danseo.display.plots.figures import Chart, Grid, make_percent_grid, split_curves
from danseo.display.table import Table
from danseo.records import Entity, RelationExample
from danseo.tasks.klue.re import type_pair
from danseo.tasktypes.base import Splits, Task
from danseo.tasktypes.rendering import percent

_SUBJECT_TYPES = {"per": "PER", "org": "ORG"}


def make_view(task: Task) -> View:
    view = View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (example.gold,),
        texts=lambda example: (example.text,),
        lengths={
            "sentence": count_characters(lambda example: example.text),
            "subject": count_characters(lambda example: example.subject.word),
            "object": count_characters(lambda example: example.object.word),
            "gap between the entities": Length("characters", lambda examples: [measure_gap(e) for e in examples]),
            "span of both entities": Length("characters", lambda examples: [_measure_span(e) for e in examples]),
        },
        key=lambda example, normalize: _make_key(example, (example.subject, example.object), normalize),
        swapped_key=lambda example, normalize: _make_key(example, (example.object, example.subject), normalize),
        swapped_name="sentence, roles exchanged",
        shared=lambda example: example.text,
        shared_name="sentence",
        tables=lambda splits: _make_tables(splits, task.nothing),
        panels=lambda splits: [
            _pair_panel(splits, task.labels),
            ratio_panel(view, splits),
            source_panel(view, splits),
            _gap_panel(splits),
        ],
    )
    return view


def _make_key(example: RelationExample, entities: tuple[Entity, Entity], normalize: Normalize) -> Key:
    """Return the text and, for both entities, the normalized end position and word."""
    ends = ((len(normalize(example.text[: entity.end])), normalize(entity.word)) for entity in entities)
    return normalize(example.text), *ends


def _make_tables(splits: Splits, nothing: str) -> list[Table | None]:
    return [
        _pair_table(splits),
        *(_pair_label_table(split, examples) for split, examples in islice(splits.items(), 2)),
        checks_table("Subjects and objects", count_checks(_CHECKS, "rows", splits)),
        _seen_table(splits, nothing),
    ]


def _order_entities(example: RelationExample) -> list[Entity]:
    return sorted((example.subject, example.object), key=lambda entity: entity.start)


def measure_gap(example: RelationExample) -> int:
    """Return the characters between the two entities; 0 if they touch or overlap."""
    first, second = _order_entities(example)
    return max(second.start - first.end, 0)


def _measure_span(example: RelationExample) -> int:
    return max(example.subject.end, example.object.end) - min(example.subject.start, example.object.start)


def contradicts_prefix(example: RelationExample) -> bool:
    """Return whether the label is about a person or an organisation, and the subject is none."""
    expected = _SUBJECT_TYPES.get(example.gold.split(":")[0])
    return expected is not None and expected != example.subject.type


def _overlap(example: RelationExample) -> bool:
    first, second = _order_entities(example)
    return first.end > second.start


def _precedes_letter(example: RelationExample, entity: Entity) -> bool:
    return example.text[entity.end : entity.end + 1].isalpha()


def _occurs_earlier(example: RelationExample, entity: Entity) -> bool:
    return example.text.find(entity.word) != entity.start


_CHECKS: dict[str, Callable[[RelationExample], bool]] = {
    "label contradicts the subject's type": contradicts_prefix,
    "subject is after the object": lambda e: e.subject.start > e.object.start,
    "entities overlap": _overlap,
    "subject and object are the same word": lambda e: e.subject.word == e.object.word,
    "subject followed directly by a letter": lambda e: _precedes_letter(e, e.subject),
    "object followed directly by a letter": lambda e: _precedes_letter(e, e.object),
    "an entity ends the sentence": lambda e: len(e.text) in (e.subject.end, e.object.end),
    "subject or object has a comma": lambda e: "," in e.subject.word or "," in e.object.word,
    "first match of the subject is another place": lambda e: _occurs_earlier(e, e.subject),
    "first match of the object is another place": lambda e: _occurs_earlier(e, e.object),
}


def _pair_table(splits: Splits) -> Table:
    """Return the type pairs of each split, and those that are not in the first."""
    counts = {split: Counter(map(type_pair, examples)) for split, examples in splits.items()}
    notes = ["Subject type first."]
    if len(counts) == 2:
        (first, before), (_, after) = counts.items()
        unseen = sorted(set(after) - set(before))
        notes.append(f"Unseen in {first}: {', '.join(unseen) or 'none'}.")
    return distribution_table("Type pairs", "pair", counts, note=" ".join(notes))


def _count_pair_labels(examples: Sequence[RelationExample]) -> dict[str, Counter[str]]:
    """Return type pair -> its labels; the most frequent pair first."""
    counters: dict[str, Counter[str]] = defaultdict(Counter)
    for example in examples:
        counters[type_pair(example)][example.gold] += 1
    return dict(sorted(counters.items(), key=lambda item: -item[1].total()))


def _pair_label_table(split: str, examples: Sequence[RelationExample]) -> Table:
    """Return the most frequent labels of every type pair."""
    rows: list[tuple[object, ...]] = []
    for pair, counter in _count_pair_labels(examples).items():
        top = ", ".join(f"{name} {100 * count / counter.total():.0f}" for name, count in counter.most_common(3))
        rows.append((pair, counter.total(), len(counter), top))
    return Table(f"Labels of a type pair, {split}", ("pair", "rows", "labels", "most frequent, % of the pair"), rows)


_MEMORIZED: dict[str, Callable[[RelationExample], tuple[str, ...]]] = {
    "subject word": lambda e: (e.subject.word,),
    "object word": lambda e: (e.object.word,),
    "subject and object words": lambda e: (e.subject.word, e.object.word),
    "subject and object words with the same label": lambda e: (e.subject.word, e.object.word, e.gold),
}


def _seen_table(splits: Splits, nothing: str) -> Table | None:
    """Return what of the second split a model could memorize from the first."""
    if len(splits) != 2:
        return None
    (first, before), (second, after) = splits.items()
    related = [example for example in after if example.gold != nothing]
    checks: Checks = []
    for name, get_key in _MEMORIZED.items():
        known = {get_key(example) for example in before}
        for unit, examples in (("rows", after), ("rows with a relation", related)):
            checks.append((name, unit, {second: count_flags((e.guid, get_key(e) in known) for e in examples)}))
    return checks_table(f"Seen in {first} already", checks)


def _pair_panel(splits: Splits, labels: Sequence[str]) -> Grid | None:
    """Return type pairs against labels, for the first split."""
    split, examples = next(iter(splits.items()))
    counters = _count_pair_labels(examples)
    names = list_labels(counters, labels)
    values = [[percent(counter[name], counter.total()) or 0.0 for name in names] for counter in counters.values()]
    rows = [f"{pair} ({counter.total():,})" for pair, counter in counters.items()]
    return make_percent_grid(f"Labels of each type pair, {split}", rows, names, values, "% of the pair")


def _gap_panel(splits: Splits) -> Chart:
    """Return how far apart the entities are, up to the 99th percentile."""
    gaps = {split: sorted(map(measure_gap, examples)) for split, examples in splits.items()}
    points = {("gap", split): cumulative_shares(drop_longest(values), len(values)) for split, values in gaps.items()}
    labels = "characters", "% not longer than this"
    return Chart(split_curves(points, "steps"), *labels, title="Gap between the entities", from_zero=True)
