"""What the statistics count in the examples of a task (`View`), and the tables that all task types share."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from danseo.display.plots.figures import FileFigure
from danseo.display.table import Table
from danseo.tasktypes.base import Splits, Task
from danseo.tasktypes.rendering import percent

Key = tuple[Hashable, ...]
Normalize = Callable[[str], str]


@dataclass(frozen=True)
class Length:
    """A length: its unit, and how to measure it on all examples of a split."""

    unit: str
    measure: Callable[[Sequence[Any]], list[int]]
    is_text: bool = False
    """Whether it is the length of a text in characters; those share one chart."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What there is to count in the examples of one task."""

    label: str
    """The name of the labels."""
    unit: str
    """What has a label: a row, an entity, a word."""
    labels: Callable[[Any], Iterable[str]]
    texts: Callable[[Any], tuple[str, ...]]
    """Every text of an example; of a dialogue the last two turns."""
    lengths: Mapping[str, Length]
    key: Callable[[Any, Normalize], Key]
    """The identity of an input whose texts are normalized."""
    swapped_key: Callable[[Any, Normalize], Key] | None = None
    """The identity of the input with its two parts exchanged."""
    swapped_name: str = ""
    shared: Callable[[Any], Hashable] | None = None
    """The part of an input that several rows may share."""
    shared_name: str = ""
    gold: Callable[[Any], Hashable] = lambda example: example.gold
    label_order: Sequence[str] = ()
    """The order of the labels; by default the most frequent first."""
    tables: Callable[[Splits], list[Table | None]] = lambda splits: []
    panels: Callable[[Splits], Sequence[FileFigure | None]] = lambda splits: ()


def view_texts(task: Task) -> dict[str, Any]:
    """Return the fields of a View that concern the text, or the two texts, of an example."""
    if not task.is_pair:
        return {
            "texts": lambda example: (example.text,),
            "lengths": {task.parts[0]: count_characters(lambda example: example.text)},
            "key": lambda example, normalize: (normalize(example.text),),
        }
    first, second = task.parts
    return {
        "texts": lambda example: (example.text, example.pair),
        "lengths": {
            first: count_characters(lambda example: example.text),
            second: count_characters(lambda example: example.pair),
        },
        "key": lambda example, normalize: (normalize(example.text), normalize(example.pair)),
        "swapped_key": lambda example, normalize: (normalize(example.pair), normalize(example.text)),
        "swapped_name": "pair, sentences exchanged",
        "shared": lambda example: example.text,
        "shared_name": first,
    }


def count_characters(text: Callable[[Any], str]) -> Length:
    """Return the length in characters of one text of every example."""
    return Length("characters", lambda examples: [len(text(example)) for example in examples], is_text=True)


class HitCount(NamedTuple):
    """How many items passed a test, of how many, and the guid of the first."""

    hits: int
    total: int
    first_guid: str | None = None


Checks = list[tuple[str, str, Mapping[str, HitCount]]]
"""What was tested, on which units, and the count of each split."""


def count_flags(flags: Iterable[tuple[str, object]]) -> HitCount:
    """Count the true flags; each comes with the guid of its example."""
    items = list(flags)
    hits = [guid for guid, flag in items if flag]
    return HitCount(len(hits), len(items), next(iter(hits), None))


def count_checks(tests: Mapping[str, Callable[[Any], object]], unit: str, splits: Splits) -> Checks:
    """Count the examples of each split that pass each test."""
    return [
        (name, unit, {s: count_flags((e.guid, test(e)) for e in examples) for s, examples in splits.items()})
        for name, test in tests.items()
    ]


def checks_table(title: str, checks: Checks, note: str = "") -> Table:
    """Return a row per check: its name and unit, the count of each split, and one example."""
    splits = list(dict.fromkeys(split for _, _, counts in checks for split in counts))
    rows: list[tuple[object, ...]] = []
    for name, unit, counts in checks:
        known = [counts.get(split) for split in splits]
        pairs = [(count.hits, percent(count.hits, count.total)) if count else (None, None) for count in known]
        guid = next((count.first_guid for count in known if count and count.first_guid), None)
        rows.append((name, unit, *(number for pair in pairs for number in pair), guid))
    return Table(title, ("", "of", *_name_columns(splits), "for example"), rows, note)


def _name_columns(splits: Iterable[str]) -> list[str]:
    return [name for split in splits for name in (split, f"{split} %")]


def distribution_table(
    title: str,
    label: str,
    counts: Mapping[str, Counter[str]],
    *,
    order: Sequence[str] = (),
    note: str = "",
    independent: bool = True,
) -> Table:
    """Return count and share of every label in every split; for two splits also the ratio of the shares."""
    names = list_labels(counts, order)
    totals = {split: counter.total() for split, counter in counts.items()}
    columns = [label, *_name_columns(counts)]
    rows: list[list[object]] = [
        [name, *(v for split, c in counts.items() for v in (c[name], percent(c[name], totals[split])))]
        for name in names
    ]
    if len(counts) == 2 and all(totals.values()):
        (first, before), (second, after) = counts.items()
        columns.append(f"{second}/{first}")
        for row, name in zip(rows, names, strict=True):
            row.append(after[name] / totals[second] / (before[name] / totals[first]) if before[name] else None)
        note = f"{note} {_describe_shift(before, after, first, second, independent)}".strip()
    return Table(title, tuple(columns), [tuple(row) for row in rows], note)


def list_labels(counts: Mapping[str, Counter[str]], order: Sequence[str] = ()) -> list[str]:
    """Return the labels that occur: in the given order, or the most frequent of the first split first."""
    names = dict.fromkeys(name for counter in counts.values() for name, count in counter.items() if count)
    if order:
        position = {name: k for k, name in enumerate(order)}
        return sorted(names, key=lambda name: position.get(name, len(position)))
    return sorted(names, key=lambda name: tuple(-counter[name] for counter in counts.values()))


def total_variation(before: Counter[str], after: Counter[str]) -> float:
    """Return half the summed differences of shares, from 0 to 1."""
    n, m = before.total(), after.total()
    return sum(abs(before[name] / n - after[name] / m) for name in {*before, *after}) / 2


def expected_variation(before: Counter[str], after: Counter[str]) -> float:
    """Return the total variation distance to expect of two samples of these sizes from the same source."""
    n, m = before.total(), after.total()
    shares = [(before[name] + after[name]) / (n + m) for name in {*before, *after}]
    return sum(math.sqrt(2 * p * (1 - p) * (1 / n + 1 / m) / math.pi) for p in shares) / 2


def kl_divergence(before: Counter[str], after: Counter[str]) -> float:
    """Return KL(after || before) in bits."""
    n, m = before.total(), after.total()
    if any(count and not before[name] for name, count in after.items()):
        return math.inf
    return sum(c / m * math.log2(c / m / (before[name] / n)) for name, c in after.items() if c)


def _describe_shift(before: Counter[str], after: Counter[str], first: str, second: str, independent: bool) -> str:
    """Return the distances between two splits, and the distance to expect by chance."""
    chance = f" (chance alone: about {expected_variation(before, after):.3f})" if independent else ""
    bits = kl_divergence(before, after)
    only = [name for name in after if after[name] and not before[name]]
    more = f" and {len(only) - 5} more" if len(only) > 5 else ""
    kl = f"{bits:.3f} bits" if math.isfinite(bits) else f"infinite: only {second} has {', '.join(only[:5])}{more}"
    return f"Total variation distance {total_variation(before, after):.3f}{chance}; KL({second}‖{first}) {kl}."
