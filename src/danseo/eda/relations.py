"""Sentences with a subject and an object: their types, their positions, and what dev repeats of train (re)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from danseo.display.table import Table
from danseo.eda.counting import Tally, checks_table, distribution_table, label_names, percent, tally
from danseo.eda.labels import ratio_panel, source_panel
from danseo.eda.lengths import cumulated
from danseo.eda.panels import Heat, Line, Lines
from danseo.eda.view import Key, Length, Loosen, Splits, View, characters
from danseo.records import Entity, RelationExample
from danseo.tasks.task import Task

_PREFIXES = {"per": "PER", "org": "ORG"}


def type_pair(example: RelationExample) -> str:
    """The types of subject and object: "PER-LOC"."""
    return f"{example.subject.type}-{example.object.type}"


def gap(example: RelationExample) -> int:
    """The characters between the two entities; 0 when they touch or overlap."""
    return max(_later(example).start - _earlier(example).end, 0)


def _earlier(example: RelationExample) -> Entity:
    return min(example.subject, example.object, key=lambda entity: entity.start)


def _later(example: RelationExample) -> Entity:
    return max(example.object, example.subject, key=lambda entity: entity.start)


def contradicts_prefix(example: RelationExample) -> bool:
    """Whether the label speaks of a person and the subject is none, or of an organisation."""
    expected = _PREFIXES.get(example.gold.split(":")[0])
    return expected is not None and expected != example.subject.type


def _before_letter(example: RelationExample, entity: Entity) -> bool:
    return example.text[entity.end : entity.end + 1].isalpha()


def _not_first(example: RelationExample, entity: Entity) -> bool:
    """Whether the word also stands earlier, so that searching for it finds the wrong place."""
    return example.text.find(entity.word) != entity.start


CHECKS: dict[str, Callable[[RelationExample], bool]] = {
    "label contradicts the subject's type": contradicts_prefix,
    "subject stands after the object": lambda e: e.subject.start > e.object.start,
    "entities overlap": lambda e: _earlier(e).end > _later(e).start,
    "subject and object are the same word": lambda e: e.subject.word == e.object.word,
    "subject followed directly by a letter": lambda e: _before_letter(e, e.subject),
    "object followed directly by a letter": lambda e: _before_letter(e, e.object),
    "an entity ends the sentence": lambda e: len(e.text) in (e.subject.end, e.object.end),
    "subject or object has a comma": lambda e: "," in e.subject.word or "," in e.object.word,
    "first match of the subject is another place": lambda e: _not_first(e, e.subject),
    "first match of the object is another place": lambda e: _not_first(e, e.object),
}


def check_table(splits: Splits) -> Table:
    """How the entities lie in their sentences."""
    checks = [(name, "rows", {s: tally(e, test) for s, e in splits.items()}) for name, test in CHECKS.items()]
    return checks_table("Subjects and objects", checks)


def pair_table(splits: Splits) -> Table:
    """Type pairs per split, and those that only one split has."""
    counts = {split: Counter(map(type_pair, examples)) for split, examples in splits.items()}
    notes = ["Subject type first."]
    if len(counts) == 2:
        (first, before), (_, after) = counts.items()
        unseen = sorted(set(after) - set(before))
        notes.append(f"Unseen in {first}: {', '.join(unseen) or 'none'}.")
    return distribution_table("Type pairs", "pair", counts, note=" ".join(notes))


def labels_by_pair(examples: Sequence[RelationExample]) -> dict[str, Counter[str]]:
    """Type pair -> its labels; the most frequent pair first."""
    counters: dict[str, Counter[str]] = defaultdict(Counter)
    for example in examples:
        counters[type_pair(example)][example.gold] += 1
    return dict(sorted(counters.items(), key=lambda item: -item[1].total()))


def pair_label_table(split: str, examples: Sequence[RelationExample]) -> Table:
    """The most frequent labels of every type pair."""
    rows: list[tuple[object, ...]] = [
        (pair, counter.total(), len(counter), _leading(counter)) for pair, counter in labels_by_pair(examples).items()
    ]
    return Table(f"Labels of a type pair, {split}", ("pair", "rows", "labels", "most frequent, % of the pair"), rows)


def _leading(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {100 * count / counter.total():.0f}" for name, count in counter.most_common(3))


MEMORIES: dict[str, Callable[[RelationExample], tuple[str, ...]]] = {
    "subject word": lambda e: (e.subject.word,),
    "object word": lambda e: (e.object.word,),
    "subject and object words": lambda e: (e.subject.word, e.object.word),
    "subject and object words with the same label": lambda e: (e.subject.word, e.object.word, e.gold),
}


def memory_table(splits: Splits, nothing: str) -> Table | None:
    """What of dev a model could know by heart."""
    if len(splits) != 2:
        return None
    (first, before), (second, after) = splits.items()
    related = [example for example in after if example.gold != nothing]
    checks: list[tuple[str, str, dict[str, Tally]]] = []
    for name, what in MEMORIES.items():
        known = {what(example) for example in before}
        for unit, examples in (("rows", after), ("rows with a relation", related)):
            checks.append((name, unit, {second: tally(examples, lambda e, w=what, k=known: w(e) in k)}))  # type: ignore[misc]
    return checks_table(f"Seen in {first} already", checks)


def heat_panel(splits: Splits, labels: Sequence[str]) -> Heat | None:
    """Type pairs against labels, for the first split."""
    split, examples = next(iter(splits.items()))
    counters = labels_by_pair(examples)
    names = label_names(counters, labels)
    values = [[percent(counter[name], counter.total()) or 0.0 for name in names] for counter in counters.values()]
    rows = [f"{pair} ({counter.total():,})" for pair, counter in counters.items()]
    return Heat(f"Labels of each type pair, {split}", rows, names, values, "% of the pair")


def _key(example: RelationExample, loose: Loosen) -> Key:
    return loose(example.text), *_position(example, example.subject, loose), *_position(example, example.object, loose)


def _swapped(example: RelationExample, loose: Loosen) -> Key:
    return loose(example.text), *_position(example, example.object, loose), *_position(example, example.subject, loose)


def _position(example: RelationExample, entity: Entity, loose: Loosen) -> tuple[int, str]:
    """Where the entity ends among the characters that loosening leaves, and how it reads."""
    return len(loose(example.text[: entity.end])), loose(entity.word)


def _tables(splits: Splits, nothing: str) -> list[Table]:
    tables = [
        pair_table(splits),
        *(pair_label_table(split, examples) for split, examples in islice(splits.items(), 2)),
        check_table(splits),
        memory_table(splits, nothing),
    ]
    return [table for table in tables if table]


def gap_panel(splits: Splits) -> Lines:
    """How far apart the entities are, up to the 99th percentile."""
    measured = {split: sorted(map(gap, examples)) for split, examples in splits.items()}
    lines = [
        Line("gap", split, cumulated(values[: -(-99 * len(values) // 100)], len(values)))
        for split, values in measured.items()
    ]
    return Lines("Gap between the entities", lines, "characters", "% not longer than this", steps=True)


def relation_view(task: Task) -> View:
    """Sentences with two entities and their relation."""
    view = _relation_view(task)
    return replace(
        view, panels=lambda splits: (ratio_panel(view, splits), source_panel(view, splits), gap_panel(splits))
    )


def _relation_view(task: Task) -> View:
    return View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (example.gold,),
        texts=lambda example: (example.text,),
        lengths={
            "sentence": characters(lambda example: example.text),
            "subject": characters(lambda example: example.subject.word),
            "object": characters(lambda example: example.object.word),
            "gap between the entities": Length("characters", lambda examples: [gap(example) for example in examples]),
            "stretch with both entities": Length("characters", lambda examples: [_stretch(e) for e in examples]),
        },
        key=_key,
        swapped=_swapped,
        swapping="sentence, roles exchanged",
        shared=lambda example: example.text,
        sharing="sentence",
        tables=lambda splits: _tables(splits, task.nothing),
        panel=lambda splits: heat_panel(splits, task.labels),
    )


def _stretch(example: RelationExample) -> int:
    return max(example.subject.end, example.object.end) - _earlier(example).start
