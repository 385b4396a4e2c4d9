"""Statistics of tagged sentences: which entities, how long, and how many of dev are known from train."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from danseo.data.stats.view import (
    Checks,
    HitCount,
    Length,
    View,
    checks_table,
    count_characters,
    count_checks,
    count_flags,
)
from danseo.display.plots.figures import Bars
from danseo.display.table import Table
from danseo.metrics.tagging import list_entities
from danseo.records import TextExample
from danseo.tasktypes.base import Splits, Task
from danseo.tasktypes.rendering import percent


def make_view(task: Task) -> View:
    types = tuple(dict.fromkeys(label[2:] for label in task.labels if label != "O"))
    return View(
        label=task.label_word,
        unit="entity",
        labels=lambda example: (type_ for _, _, type_ in list_entities(example.gold)),
        texts=lambda example: (example.text,),
        lengths={
            "sentence": count_characters(lambda example: example.text),
            "entity": Length("characters", lambda es: [len(each.text) for each in _find_entities(es)], is_text=True),
            "entities per sentence": Length("entities", lambda examples: [_count_entities(e) for e in examples]),
        },
        key=lambda example, normalize: (normalize(example.text),),
        tables=lambda splits: [_type_table(splits, types), _tag_table(splits), _seen_table(splits, types)],
        panels=lambda splits: [_seen_panel(splits, types)],
    )


class _TaggedEntity(NamedTuple):
    example: TextExample
    start: int
    end: int
    type: str

    @property
    def text(self) -> str:
        return self.example.text[self.start : self.end]


def _find_entities(examples: Sequence[TextExample]) -> list[_TaggedEntity]:
    return [_TaggedEntity(example, *span) for example in examples for span in list_entities(example.gold)]


def _count_entities(example: TextExample) -> int:
    return sum(tag[0] == "B" for tag in example.gold)


def count_orphans(example: TextExample) -> int:
    """Return the number of I- tags after O or after another type."""
    return sum(tag[0] == "I" and before[1:] != tag[1:] for before, tag in pairwise(("O", *example.gold)))


def _count_space_tags(examples: Sequence[TextExample], prefix: str) -> HitCount:
    """Count the spaces that have a B- or I- tag."""
    return count_flags(
        (example.guid, tag[0] == prefix)
        for example in examples
        for character, tag in zip(example.text, example.gold, strict=True)
        if character.isspace()
    )


def _tag_table(splits: Splits) -> Table:
    """Return errors and habits of the annotation."""
    sentence_tests = {"without any entity": lambda e: not _count_entities(e), "with orphan I- tags": count_orphans}
    entity_tests: dict[str, Callable[[_TaggedEntity], bool]] = {
        "followed directly by a letter": lambda each: each.example.text[each.end : each.end + 1].isalpha(),
        "next to another entity": lambda each: each.example.gold[each.end : each.end + 1] not in ((), ("O",)),
    }
    spaces: Checks = [
        (f"spaces that carry {prefix}-", "spaces", {s: _count_space_tags(e, prefix) for s, e in splits.items()})
        for prefix in "BI"
    ]
    found = {split: _find_entities(examples) for split, examples in splits.items()}
    entities: Checks = [
        (name, "entities", {s: count_flags((each.example.guid, test(each)) for each in e) for s, e in found.items()})
        for name, test in entity_tests.items()
    ]
    return checks_table("Entities and tags", [*count_checks(sentence_tests, "sentences", splits), *spaces, *entities])


def _count_texts(examples: Sequence[TextExample]) -> dict[str, Counter[str]]:
    """Return type -> the texts of its entities."""
    counters: dict[str, Counter[str]] = defaultdict(Counter)
    for entity in _find_entities(examples):
        counters[entity.type][entity.text] += 1
    return counters


def _type_table(splits: Splits, types: Sequence[str]) -> Table:
    """Return for each type how many entities and different texts there are, and the most frequent ones."""
    rows: list[tuple[object, ...]] = []
    counts = {split: _count_texts(examples) for split, examples in splits.items()}
    for name in types:
        for split, by_type in counts.items():
            if counter := by_type.get(name):
                length = sum(len(text) * n for text, n in counter.items()) / counter.total()
                top = ", ".join(f"{text} {count:,}" for text, count in counter.most_common(6))
                rows.append((name, split, counter.total(), len(counter), length, top))
    columns = ("type", "split", "entities", "different", "mean length", "most frequent")
    return Table("Entities by type", columns, rows)


def _count_seen(splits: Splits, types: Sequence[str]) -> list[tuple[str, int, int, int]]:
    """Return for each type the entities of the second split, those the first has, and those it has as another type."""
    before, after = (_count_texts(examples) for examples in splits.values())
    everything = {text for counter in before.values() for text in counter}
    rows = []
    for name in types:
        counter = after.get(name, Counter[str]())
        same = sum(count for text, count in counter.items() if text in before.get(name, ()))
        known = sum(count for text, count in counter.items() if text in everything)
        rows.append((name, counter.total(), same, known - same))
    return rows


def _seen_table(splits: Splits, types: Sequence[str]) -> Table | None:
    """Return how many entities of the second split a tagger could memorize."""
    if len(splits) != 2:
        return None
    first, second = splits
    counts = _count_seen(splits, types)
    _, *numbers = zip(*counts, strict=True)
    total, same, other = map(sum, numbers)
    rows: list[tuple[object, ...]] = [
        (name, total, same, percent(same, total), other, percent(other, total))
        for name, total, same, other in [*counts, ("all", total, same, other)]
    ]
    columns = ("type", f"{second} entities", "as this type", "as this %", "only as another", "as another %")
    return Table(f"{second} entities whose text {first} has as an entity", columns, rows)


def _seen_panel(splits: Splits, types: Sequence[str]) -> Bars | None:
    """Return the same as stacked bars."""
    if len(splits) != 2:
        return None
    first, second = splits
    counts = [row for row in _count_seen(splits, types) if row[1]]
    series = {
        f"in {first} as this type": [100 * same / total for _, total, same, _ in counts],
        f"in {first} as another type": [100 * other / total for _, total, _, other in counts],
        f"not in {first}": [100 * (total - same - other) / total for _, total, same, other in counts],
    }
    names = [f"{name} ({total:,})" for name, total, _, _ in counts]
    title = f"Entities of {second}: known from {first}?"
    return Bars(names, series, f"% of the {second} entities", title, stacked=True)
