"""Statistics of texts, or pairs of texts, with one label."""

from functools import partial

from danseo.data.stats.labels import cumulative_shares, percentile, ratio_panel
from danseo.data.stats.view import View, checks_table, count_checks, view_texts
from danseo.display.plots.figures import Chart, split_curves
from danseo.display.table import Table
from danseo.records import TextExample
from danseo.tasktypes.base import Splits, Task

PAIR_CHECKS = {
    "the two sentences are the same": lambda e: e.text == e.pair,
    "one sentence contains the other": lambda e: e.text != e.pair and (e.text in e.pair or e.pair in e.text),
}


def make_view(task: Task) -> View:
    view = View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (example.gold,),
        label_order=task.labels,
        tables=partial(_make_pair_tables, task) if task.is_pair else lambda splits: [],
        panels=lambda splits: [_overlap_panel(splits, task) if task.is_pair else ratio_panel(view, splits)],
        **view_texts(task),
    )
    return view


def _make_pair_tables(task: Task, splits: Splits) -> list[Table | None]:
    return [_overlap_table(splits, task), checks_table("Pairs", count_checks(PAIR_CHECKS, "rows", splits))]


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
