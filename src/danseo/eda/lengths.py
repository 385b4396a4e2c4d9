"""How long the texts are."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from danseo.display.table import Table
from danseo.eda.panels import Line, Lines
from danseo.eda.view import Splits, View

PERCENTILES = (50, 90, 95, 99)


def percentile(ordered: Sequence[int], share: int) -> int:
    """The smallest of the sorted values that at least this share (in %) of them do not exceed."""
    return ordered[max(-(-share * len(ordered) // 100) - 1, 0)]


def length_table(view: View, splits: Splits) -> Table:
    """Percentiles of every length, split below split."""
    rows: list[tuple[object, ...]] = []
    for name, length in view.lengths.items():
        for split, examples in splits.items():
            if values := sorted(length.measure(examples)):
                marks = [percentile(values, share) for share in PERCENTILES]
                rows.append((name, length.unit, split, *marks, values[-1], sum(values) / len(values)))
    columns = ("length of", "in", "split", *(f"p{share}" for share in PERCENTILES), "max", "mean")
    return Table("Lengths", columns, rows, "pN: N % are not longer than this.")


def length_panel(view: View, splits: Splits) -> Lines:
    """For every text: the share that is no longer than the length on the axis, up to the 99th percentile."""
    measured = {
        (name, split): sorted(length.measure(examples))
        for name, length in view.lengths.items()
        for split, examples in splits.items()
        if length.is_text
    }
    measured = {key: values for key, values in measured.items() if values}
    lines = [
        Line(name, split, cumulated(values[: -(-99 * len(values) // 100)], len(values)))  # the longest percent left out
        for (name, split), values in measured.items()
    ]
    medians = [percentile(values, 50) for values in measured.values()]
    wide = max(medians) > 5 * max(min(medians), 1)  # a passage and an answer need a logarithmic axis to share it
    return Lines("Lengths of texts", lines, "characters", "% not longer than this", log_x=wide, steps=True)


def cumulated(ordered: Sequence[int], total: int | None = None) -> list[tuple[float, float]]:
    """Every value that occurs, with the % of values up to it."""
    counts = Counter(ordered)
    running = accumulate(counts.values())
    return [(value, 100 * count / (total or len(ordered))) for value, count in zip(counts, running, strict=True)]
