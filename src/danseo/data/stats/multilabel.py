"""Statistics of texts, or pairs of texts, with any number of labels."""

from collections import Counter

from danseo.data.stats.labels import ratio_panel
from danseo.data.stats.view import View, distribution_table, view_texts
from danseo.display.table import Table
from danseo.tasktypes.base import Splits, Task

_MAX_SETS = 12


def make_view(task: Task) -> View:
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
