"""Statistics of texts, or pairs of texts, with a number."""

from danseo.data.stats.classification import PAIR_CHECKS
from danseo.data.stats.labels import source_panel
from danseo.data.stats.view import View, checks_table, count_checks, view_texts
from danseo.display.table import Table
from danseo.tasktypes.base import Splits, Task

_SIMILAR = 3.0  # from this score on, KLUE calls a pair a paraphrase
_BINS = 10


def make_view(task: Task) -> View:
    low, high = task.scale
    step = (high - low) / _BINS
    bins = tuple(f"{low + k * step:g}–{low + (k + 1) * step:g}" for k in range(_BINS))
    view = View(
        label=task.label_word,
        unit="row",
        labels=lambda example: (bins[min(max(int((example.gold - low) / step), 0), _BINS - 1)],),
        label_order=bins,
        tables=lambda splits: [_pair_table(task, splits)] if task.is_pair else [],
        panels=lambda splits: [source_panel(view, splits)],
        **view_texts(task),
    )
    return view


def _pair_table(task: Task, splits: Splits) -> Table:
    similar = {} if task.custom else {f"score of {_SIMILAR} or more": lambda example: example.gold >= _SIMILAR}
    return checks_table("Pairs", count_checks(similar | PAIR_CHECKS, "rows", splits))
