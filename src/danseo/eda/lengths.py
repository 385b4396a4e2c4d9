"""How long the texts are."""

from collections.abc import Sequence

from danseo.eda.panels import Line, Lines
from danseo.eda.view import Splits, View
from danseo.tables import Table

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
    """For every text in characters: the share that is no longer than the length on the axis."""
    lines = []
    for name, length in view.lengths.items():
        for split, examples in splits.items():
            if length.unit == "characters" and (values := sorted(length.measure(examples))):
                points = [(max(percentile(values, share), 1), share) for share in range(1, 100)]
                lines.append(Line(name, split, [(x, y) for x, y in points]))
    medians = [line.points[49][0] for line in lines]
    spread = max(line.points[-1][0] for line in lines) / min(medians) if lines else 1
    return Lines("lengths, 1st to 99th percentile", lines, "characters", "% not longer than this", log_x=spread > 20)
