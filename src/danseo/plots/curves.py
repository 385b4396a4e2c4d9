"""Learning curves: scores of checkpoints over steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.plots.panels import COLOURS, korean_figure

_LINES = {
    "strict1": "repeated nouns, strict@1",
    "strict5": "repeated nouns, strict@5",
    "choice1": "choice among the text's nouns @1",
    "lambada_strict1": "LAMBADA-style, strict@1",
    "composite": "composite",
}
_DASHES = ("solid", "dashed", "dashdot", "dotted", (0, (6, 1)))
_MARKS = "osD^v"


def draw_probe_curve(rows: Sequence[Mapping[str, Any]], path: Path, levels: Mapping[str, float] | None = None) -> bool:
    """Draw probe scores over steps, the 95 % band of strict@1, and lines at given levels.

    False where fewer than two checkpoints have a step, so that there is nothing to draw.
    """
    known = sorted((row for row in rows if row.get("step") is not None), key=lambda row: int(row["step"]))
    if len({row["step"] for row in known}) < 2:
        return False
    with korean_figure(path, 8, 4.6) as figure:
        axes = figure.add_subplot()
        for number, (key, label) in enumerate(_LINES.items()):
            points = [(row["step"], 100 * row[key]) for row in known if row.get(key) is not None]
            if points:
                style: dict[str, Any] = {
                    "color": COLOURS[number],
                    "linestyle": _DASHES[number],
                    "marker": _MARKS[number],
                }
                axes.plot(*zip(*points, strict=True), label=label, linewidth=1.8, markersize=4, **style)
        bands = [(row["step"], *row["strict1_interval"]) for row in known if None not in row["strict1_interval"]]
        if bands:
            steps = [step for step, _, _ in bands]
            low, high = ([100 * band[side] for band in bands] for side in (1, 2))
            axes.fill_between(steps, low, high, color=COLOURS[0], alpha=0.15, linewidth=0)
        for name, value in (levels or {}).items():
            axes.axhline(100 * value, color="#888888", linewidth=1)
            axes.annotate(name, (known[-1]["step"], 100 * value), ha="right", va="bottom", fontsize=8, color="#555555")
        axes.set_title("Probes over training")
        axes.set_xlabel("step")
        axes.set_ylabel("% of items")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return True
