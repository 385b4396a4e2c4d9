"""Counts and shares of train and dev side by side, as tables."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from danseo.display.table import Table


class Tally(NamedTuple):
    """How many of how many, and the guid of one of them."""

    hits: int
    total: int
    example: str = ""


def tally(examples: Iterable[Any], test: Callable[[Any], object]) -> Tally:
    """How many of the examples pass the test."""
    total, hits, first = 0, 0, ""
    for example in examples:
        total += 1
        if test(example):
            hits += 1
            first = first or example.guid
    return Tally(hits, total, first)


def tally_flags(flags: Iterable[tuple[str, bool]]) -> Tally:
    """How many of the flags are up; each comes with the guid of its example."""
    found = list(flags)
    hits = [guid for guid, flag in found if flag]
    return Tally(len(hits), len(found), hits[0] if hits else "")


def percent(count: float, total: float) -> float | None:
    """The share from 0 to 100; None of nothing."""
    return 100 * count / total if total else None


def checks_table(title: str, checks: Iterable[tuple[str, str, Mapping[str, Tally]]], note: str = "") -> Table:
    """A row per check: what was found, among which things, how often in each split, and one place to look."""
    found = list(checks)
    splits = list(dict.fromkeys(split for _, _, tallies in found for split in tallies))
    numbers = [name for split in splits for name in (split, f"{split} %")]
    rows: list[tuple[object, ...]] = []
    for name, unit, tallies in found:
        known = [tallies.get(split) for split in splits]
        pairs = [(t.hits, percent(t.hits, t.total)) if t else (None, None) for t in known]
        example = next((t.example for t in known if t and t.example), None)
        rows.append((name, unit, *(number for pair in pairs for number in pair), example))
    return Table(title, ("", "of", *numbers, "for example"), rows, note)


def distribution_table(
    title: str,
    label: str,
    counts: Mapping[str, Counter[str]],
    *,
    order: Sequence[str] = (),
    note: str = "",
    independent: bool = True,
) -> Table:
    """Count and share of every label in every split; of two splits also how many times as common it became."""
    names = label_names(counts, order)
    totals = {split: counter.total() for split, counter in counts.items()}
    columns = [label, *(name for split in counts for name in (split, f"{split} %"))]
    rows: list[list[object]] = [
        [name, *(v for split, c in counts.items() for v in (c[name], percent(c[name], totals[split])))]
        for name in names
    ]
    if len(counts) == 2 and all(totals.values()):
        (first, before), (second, after) = counts.items()
        columns.append(f"{second}/{first}")
        for row, name in zip(rows, names, strict=True):
            row.append(after[name] / totals[second] / (before[name] / totals[first]) if before[name] else None)
        note = " ".join(filter(None, [note, shift_note(before, after, first, second, independent)]))
    return Table(title, tuple(columns), [tuple(row) for row in rows], note)


def label_names(counts: Mapping[str, Counter[str]], order: Sequence[str] = ()) -> list[str]:
    """The labels that occur: in the order given, or the most frequent of the first split first."""
    seen = dict.fromkeys(name for counter in counts.values() for name, count in counter.items() if count)
    if order:
        position = {name: k for k, name in enumerate(order)}
        return sorted(seen, key=lambda name: position.get(name, len(position)))
    return sorted(seen, key=lambda name: tuple(-counter[name] for counter in counts.values()))


def total_variation(before: Counter[str], after: Counter[str]) -> float:
    """Half the summed differences of shares: the part of the labels that would have to change, from 0 to 1."""
    n, m = before.total(), after.total()
    return sum(abs(before[name] / n - after[name] / m) for name in {*before, *after}) / 2


def chance_variation(before: Counter[str], after: Counter[str]) -> float:
    """The total variation distance to expect of two samples of these sizes from one and the same source."""
    n, m = before.total(), after.total()
    shares = [(before[name] + after[name]) / (n + m) for name in {*before, *after}]
    return sum(math.sqrt(2 * p * (1 - p) * (1 / n + 1 / m) / math.pi) for p in shares) / 2


def divergence(before: Counter[str], after: Counter[str]) -> float:
    """KL(after || before) in bits: what it costs to expect the first split and meet the second."""
    n, m = before.total(), after.total()
    if any(count and not before[name] for name, count in after.items()):
        return math.inf
    return sum(c / m * math.log2(c / m / (before[name] / n)) for name, c in after.items() if c)


def shift_note(before: Counter[str], after: Counter[str], first: str, second: str, independent: bool) -> str:
    """How far the second split lies from the first, and how far chance alone would take it."""
    chance = f" (chance alone: about {chance_variation(before, after):.3f})" if independent else ""
    cost = divergence(before, after)
    only = [name for name in after if after[name] and not before[name]]
    shown = f"{cost:.3f} bits" if math.isfinite(cost) else f"infinite: only {second} has {_listed(only)}"
    return f"Total variation distance {total_variation(before, after):.3f}{chance}; KL({second}‖{first}) {shown}."


def _listed(names: Sequence[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def top(counter: Counter[str], limit: int) -> str:
    """The most frequent entries with their counts: "서울 12, 부산 3"."""
    return ", ".join(f"{name} {count:,}" for name, count in counter.most_common(limit))
