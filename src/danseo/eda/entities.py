"""Tagged sentences: which entities, how long, how many of dev's are known from train (ner)."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from danseo.display.table import Table
from danseo.eda.counting import Tally, checks_table, percent, tally, tally_flags, top
from danseo.eda.panels import Bars
from danseo.eda.view import Length, Splits, View, characters
from danseo.metrics.tagging import spans_of
from danseo.records import TextExample
from danseo.tasks.task import Task

Found = tuple[TextExample, int, int, str]


def entities_of(examples: Sequence[TextExample]) -> list[Found]:
    """Every entity with its sentence, borders and type."""
    return [(example, *span) for example in examples for span in spans_of(example.gold)]


def surface(found: Found) -> str:
    example, start, end, _ = found
    return example.text[start:end]


def orphans(example: TextExample) -> int:
    """How many I- tags continue nothing: after O, or after another type."""
    return sum(tag[0] == "I" and before[1:] != tag[1:] for before, tag in pairwise(("O", *example.gold)))


def _space_tags(examples: Sequence[TextExample], prefix: str) -> Tally:
    """How many of the spaces carry a B- or I- tag."""
    return tally_flags(
        (example.guid, tag[0] == prefix)
        for example in examples
        for character, tag in zip(example.text, example.gold, strict=True)
        if character.isspace()
    )


def check_table(splits: Splits) -> Table:
    """Slips and habits of the annotation."""
    found = {split: entities_of(examples) for split, examples in splits.items()}
    return checks_table(
        "Entities and tags",
        [
            ("without any entity", "sentences", {s: tally(e, lambda x: not _entities(x)) for s, e in splits.items()}),
            ("with orphan I- tags", "sentences", {s: tally(e, orphans) for s, e in splits.items()}),
            ("spaces that carry B-", "spaces", {s: _space_tags(e, "B") for s, e in splits.items()}),
            ("spaces that carry I-", "spaces", {s: _space_tags(e, "I") for s, e in splits.items()}),
            *(
                (name, "entities", {s: tally_flags((f[0].guid, test(f)) for f in items) for s, items in found.items()})
                for name, test in (
                    ("followed directly by a letter", _before_letter),
                    ("next to another entity", _touches),
                )
            ),
        ],
    )


def _before_letter(found: Found) -> bool:
    example, _, end, _ = found
    return example.text[end : end + 1].isalpha()


def _touches(found: Found) -> bool:
    example, _, end, _ = found
    return end < len(example.gold) and example.gold[end] != "O"


def surface_table(splits: Splits, types: Sequence[str]) -> Table:
    """Per type: how many entities, how many different ones, and which are the most frequent."""
    rows: list[tuple[object, ...]] = []
    counts = {split: _surfaces(entities_of(examples)) for split, examples in splits.items()}
    for name in types:
        for split, by_type in counts.items():
            if counter := by_type.get(name):
                length = sum(len(word) * n for word, n in counter.items()) / counter.total()
                rows.append((name, split, counter.total(), len(counter), length, top(counter, 6)))
    columns = ("type", "split", "entities", "different", "mean length", "most frequent")
    return Table("Entities by type", columns, rows)


def _surfaces(found: Sequence[Found]) -> dict[str, Counter[str]]:
    counters: dict[str, Counter[str]] = defaultdict(Counter)
    for entity in found:
        counters[entity[3]][surface(entity)] += 1
    return counters


def known_shares(splits: Splits, types: Sequence[str]) -> Iterator[tuple[str, int, int, int]]:
    """Per type: entities of the second split, those that the first has as this type, those it has only as another."""
    before, after = (_surfaces(entities_of(examples)) for examples in splits.values())
    everything = {word for counter in before.values() for word in counter}
    for name in types:
        counter = after.get(name, Counter[str]())
        same = sum(count for word, count in counter.items() if word in before.get(name, ()))
        known = sum(count for word, count in counter.items() if word in everything)
        yield name, counter.total(), same, known - same


def memory_table(splits: Splits, types: Sequence[str]) -> Table | None:
    """How many entities of dev a tagger could know by heart."""
    if len(splits) != 2:
        return None
    first, second = splits
    shares = list(known_shares(splits, types))
    _, *columns_of_numbers = zip(*shares, strict=True)
    total, same, other = map(sum, columns_of_numbers)
    rows: list[tuple[object, ...]] = [
        (name, total, same, percent(same, total), other, percent(other, total))
        for name, total, same, other in [*shares, ("all", total, same, other)]
    ]
    columns = ("type", f"{second} entities", "as this type", "as this %", "only as another", "as another %")
    return Table(f"{second} entities whose text {first} has as an entity", columns, rows)


def memory_panel(splits: Splits, types: Sequence[str]) -> Bars | None:
    """The same as stacked bars."""
    if len(splits) != 2:
        return None
    first, second = splits
    shares = [row for row in known_shares(splits, types) if row[1]]
    series = {
        f"in {first} as this type": [100 * same / total for _, total, same, _ in shares],
        f"in {first} as another type": [100 * other / total for _, total, _, other in shares],
        f"not in {first}": [100 * (total - same - other) / total for _, total, same, other in shares],
    }
    names = [f"{name} ({total:,})" for name, total, _, _ in shares]
    title = f"Entities of {second}: known from {first}?"
    return Bars(title, names, series, f"% of the {second} entities", stacked=True)


def _tables(splits: Splits, types: Sequence[str]) -> list[Table]:
    tables = [surface_table(splits, types), check_table(splits), memory_table(splits, types)]
    return [table for table in tables if table]


def entity_view(task: Task) -> View:
    """Tagged sentences, by the types that the task knows."""
    types = tuple(dict.fromkeys(label[2:] for label in task.labels if label != "O"))
    return View(
        label=task.label_word,
        unit="entity",
        labels=lambda example: (kind for _, _, kind in spans_of(example.gold)),
        texts=lambda example: (example.text,),
        lengths={
            "sentence": characters(lambda example: example.text),
            "entity": Length(
                "characters", lambda examples: [end - start for _, start, end, _ in entities_of(examples)], is_text=True
            ),
            "entities per sentence": Length("entities", lambda examples: [_entities(example) for example in examples]),
        },
        key=lambda example, loose: (loose(example.text),),
        tables=lambda splits: _tables(splits, types),
        panel=lambda splits: memory_panel(splits, types),
    )


def _entities(example: TextExample) -> int:
    return sum(tag[0] == "B" for tag in example.gold)
