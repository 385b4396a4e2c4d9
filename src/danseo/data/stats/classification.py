"""Statistics of texts, or pairs of texts, with one label, one of several candidates, many labels, or a number."""

from collections import Counter
from dataclasses import replace

from danseo.data.stats.labels import cumulative_shares, percentile, ratio_panel, source_panel
from danseo.data.stats.view import View, checks_table, count_checks, distribution_table, view_texts
from danseo.display.plots.figures import Chart, split_curves
from danseo.display.table import Table
from danseo.records import TextExample
from danseo.tasktypes.base import Splits, Task

_MAX_SETS = 12
_SIMILAR = 3.0  # from this score on, KLUE calls a pair a paraphrase
_BINS = 10
_PAIR_CHECKS = {
    "the two sentences are the same": lambda e: e.text == e.pair,
    "one sentence contains the other": lambda e: e.text != e.pair and (e.text in e.pair or e.pair in e.text),
}


def view_labels(task: Task) -> View:
    """Return the view of a classification task."""

    def make_tables(splits: Splits) -> list[Table | None]:
        checks = checks_table("Pairs", count_checks(_PAIR_CHECKS, "rows", splits)) if task.is_pair else None
        return [_overlap_table(splits, task) if task.is_pair else None, checks]

    view = View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (example.gold,),
        label_order=task.labels,
        tables=make_tables,
        panels=lambda splits: [_overlap_panel(splits, task) if task.is_pair else ratio_panel(view, splits)],
        **view_texts(task),
    )
    return view


def view_choices(task: Task) -> View:
    """Return the view of a multiple-choice task."""
    return replace(view_labels(task), key=lambda e, normalize: (normalize(e.text), *map(normalize, e.choices)))


def view_label_sets(task: Task) -> View:
    """Return the view of a multilabel task."""
    view = View(
        label=task.label_word,
        unit="label of a row",
        labels=lambda example: example.gold,
        label_order=task.labels,
        tables=_make_set_tables,
        panels=lambda splits: [ratio_panel(view, splits)],
        **view_texts(task),
    )
    return view


def _make_set_tables(splits: Splits) -> list[Table | None]:
    """Return how many labels rows have, and which labels occur together."""
    sizes = {split: Counter(str(len(example.gold)) for example in examples) for split, examples in splits.items()}
    sets = {split: Counter(" + ".join(e.gold) or "(none)" for e in examples) for split, examples in splits.items()}
    frequent = {name for counter in sets.values() for name, _ in counter.most_common(_MAX_SETS)}
    counts = {
        split: Counter(name if name in frequent else "(others)" for name in c.elements()) for split, c in sets.items()
    }
    note = f"The {_MAX_SETS} most frequent of each split, of {len(set().union(*sets.values())):,}."
    return [
        distribution_table("Labels per row", "labels", sizes, independent=True),
        distribution_table("Labels together", "labels of a row", counts, independent=False, note=note),
    ]


def view_numbers(task: Task) -> View:
    """Return the view of a regression task."""
    low, high = task.scale
    step = (high - low) / _BINS
    bins = tuple(f"{low + k * step:g}–{low + (k + 1) * step:g}" for k in range(_BINS))
    similar = {} if task.custom else {f"score of {_SIMILAR} or more": lambda example: example.gold >= _SIMILAR}
    checks = similar | _PAIR_CHECKS
    view = View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (bins[min(max(int((example.gold - low) / step), 0), _BINS - 1)],),
        label_order=bins,
        tables=lambda splits: [checks_table("Pairs", count_checks(checks, "rows", splits))] if task.is_pair else [],
        panels=lambda splits: [source_panel(view, splits)],
        **view_texts(task),
    )
    return view


def measure_overlap(example: TextExample) -> int:
    """Return the % of the character bigrams of the second text that the first has."""
    premise, hypothesis = example.text.replace(" ", ""), (example.pair or "").replace(" ", "")
    bigrams = {hypothesis[k : k + 2] for k in range(len(hypothesis) - 1)}
    return 100 * sum(bigram in premise for bigram in bigrams) // len(bigrams) if bigrams else 0


def _measure_overlaps(splits: Splits, task: Task) -> dict[tuple[str, str], list[int]]:
    """Return label and split -> the sorted overlaps of all pairs."""
    overlaps: dict[tuple[str, str], list[int]] = {(label, split): [] for label in task.labels for split in splits}
    for split, examples in splits.items():
        for example in examples:
            overlaps[example.gold, split].append(measure_overlap(example))
    return {key: sorted(values) for key, values in overlaps.items() if values}


def _overlap_table(splits: Splits, task: Task) -> Table:
    """Return how much of the second text is copied, by label."""
    rows: list[tuple[object, ...]] = [
        (label, split, *(percentile(values, share) for share in (10, 50, 90)), sum(values) / len(values))
        for (label, split), values in _measure_overlaps(splits, task).items()
    ]
    note = "Counted in pairs of neighbouring characters, without spaces."
    return Table(_name_overlap(task), ("label", "split", "p10", "p50", "p90", "mean"), rows, note)


def _name_overlap(task: Task) -> str:
    first, second = task.parts
    return f"% of the {second} that is in the {first}"


def _overlap_panel(splits: Splits, task: Task) -> Chart:
    """Return the overlaps as curves; further right: more of the second text is copied."""
    points = {key: cumulative_shares(values) for key, values in _measure_overlaps(splits, task).items()}
    x_label = f"{_name_overlap(task)} (pairs of characters)"
    title = f"How much a {task.parts[1]} copies"
    curves = split_curves(points, "steps")
    return Chart(curves, x_label, "% of pairs with at most this overlap", title=title, from_zero=True)
