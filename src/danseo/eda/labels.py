"""Which labels there are, how the splits differ in them, and how the sources do."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from danseo.display.table import Table
from danseo.eda.counting import distribution_table, label_names, percent
from danseo.eda.panels import Bars, Dots, Heat
from danseo.eda.view import Splits, View
from danseo.tasks.task import Task

_AS_COLUMNS = 10
_SIDE_BY_SIDE = 4
_RARE = 0.1  # in %: a bar too short to see
_NO_SOURCE = "not given"
_SOURCE_IN_GUID = re.compile(r"_\d+[-_]([^\W\d].*)$")  # klue-ner-v1_dev_00000-wikitree


def source_of(example: Any) -> str | None:
    """Where the text comes from: as the file says it, or as the end of the guid does (ner, dp)."""
    source: str | None = getattr(example, "source", None)
    if source is None and (match := _SOURCE_IN_GUID.search(example.guid)):
        source = match[1]
    return source


def count_labels(view: View, examples: Sequence[Any]) -> Counter[str]:
    return Counter(name for example in examples for name in view.labels(example))


def label_table(task: Task, view: View, splits: Splits) -> Table:
    """Labels per split, with the shift between them."""
    counts = {split: count_labels(view, examples) for split, examples in splits.items()}
    independent = view.unit == "row"  # the words of a sentence or the slots of a dialogue are no separate draws
    title = f"Labels: the {view.label} of each {view.unit}"
    table = distribution_table(title, view.label, counts, order=view.label_order, independent=independent)
    known = task.labels if task.labels and set(task.labels) >= set(label_names(counts)) else ()
    absent = [name for name in known if not any(counter[name] for counter in counts.values())]
    note = f"{table.note} Never seen: {', '.join(absent)}.".strip() if absent else table.note
    return Table(table.title, table.columns, table.rows, note)


def source_tables(view: View, splits: Splits) -> list[Table]:
    """The share of each label within each source; few labels are columns, many are rows of a table per split."""
    counts = {split: _by_source(view, examples) for split, examples in splits.items()}
    sources = dict.fromkeys(source for by_source in counts.values() for source in by_source)
    if len(sources) < 2:
        return []
    title = f"Labels by source: % of the {view.label}s of a source"
    names = label_names({f"{split} {s}": c for split, by in counts.items() for s, c in by.items()}, view.label_order)
    ordered = {(s, split): counts[split][s] for s in sources for split in splits if s in counts[split]}
    if len(names) <= _AS_COLUMNS:
        return [_sources_as_rows(title, ordered, names)]
    if len(ordered) <= _SIDE_BY_SIDE:
        return [_labels_as_rows(title, view, {" ".join(key): counter for key, counter in ordered.items()})]
    return [_labels_as_rows(f"{title}, {split}", view, by_source) for split, by_source in counts.items()]


def _labels_as_rows(title: str, view: View, counts: Mapping[str, Counter[str]]) -> Table:
    rows: list[tuple[object, ...]] = [
        (name, *(percent(counter[name], counter.total()) for counter in counts.values()))
        for name in label_names(counts, view.label_order or _by_total(counts))
    ]
    sizes = ", ".join(f"{source} {counter.total():,}" for source, counter in counts.items())
    return Table(title, (view.label, *(f"{source} %" for source in counts)), rows, f"Labels: {sizes}.")


def _sources_as_rows(title: str, counts: Mapping[tuple[str, str], Counter[str]], names: Sequence[str]) -> Table:
    rows: list[tuple[object, ...]] = [
        (source, split, counter.total(), *(percent(counter[name], counter.total()) for name in names))
        for (source, split), counter in counts.items()
    ]
    return Table(title, ("source", "split", "n", *(f"{name} %" for name in names)), rows)


def _by_total(counts: Mapping[str, Counter[str]]) -> list[str]:
    return [name for name, _ in sum(counts.values(), Counter[str]()).most_common()]


def _by_source(view: View, examples: Sequence[Any]) -> dict[str, Counter[str]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for example in examples:
        groups[source_of(example) or _NO_SOURCE].append(example)
    ordered = sorted(groups, key=lambda source: (-len(groups[source]), source))
    return {source: count_labels(view, groups[source]) for source in ordered}


def label_panel(view: View, splits: Splits) -> Bars:
    """The shares of the labels, the splits side by side."""
    counts = {split: count_labels(view, examples) for split, examples in splits.items()}
    totals = {split: counter.total() for split, counter in counts.items()}
    names = label_names(counts, view.label_order)
    rare = [name for name in names if all((percent(c[name], c.total()) or 0.0) < _RARE for c in counts.values())]
    if len(rare) > 1:
        rest = f"{len(rare)} rarer ones"
        counts = {s: c + Counter({rest: sum(c[name] for name in rare)}) for s, c in counts.items()}
        names = [*(name for name in names if name not in rare), rest]
    series = {s: [percent(c[name], totals[s]) or 0.0 for name in names] for s, c in counts.items()}
    return Bars(f"Share of each {view.label}", names, series, "% of the labels")


def source_panel(view: View, splits: Splits) -> Heat | None:
    """Sources against labels, as the first split that has sources shows them."""
    for split, examples in splits.items():
        counts = _by_source(view, examples)
        if len(counts) > 1:
            names = label_names(counts, view.label_order)
            values = [[percent(counter[name], counter.total()) or 0.0 for name in names] for counter in counts.values()]
            return Heat(
                f"{view.label.capitalize()} by source, {split}", list(counts), names, values, "% within the source"
            )
    return None


def ratio_panel(view: View, splits: Splits) -> Dots | None:
    """How many times as common each label is in the second split, with the 95 % interval of the ratio."""
    if len(splits) != 2:
        return None
    first, second = splits
    before, after = (count_labels(view, examples) for examples in splits.values())
    names = label_names({first: before, second: after}, view.label_order)
    names = [name for name in names if before[name] and after[name]]
    values = [_ratio_interval(before[name], before.total(), after[name], after.total()) for name in names]
    title = f"Prior shift: {view.label} in {second} against {first}"
    return Dots(title, names, values, f"share in {second} / share in {first}, with 95 % interval") if names else None


def _ratio_interval(a: int, n: int, b: int, m: int) -> tuple[float, float, float]:
    """The ratio of two shares and its interval by the normal approximation of its logarithm."""
    ratio = (b / m) / (a / n)
    width = 1.96 * math.sqrt(max(1 / a - 1 / n + 1 / b - 1 / m, 0))
    return ratio * math.exp(-width), ratio, ratio * math.exp(width)
