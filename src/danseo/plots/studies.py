"""Plots of a study: how its best value grew, and which settings mattered."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from danseo.plots.panels import COLOURS, korean_figure

_STATES = {"complete": ("o", COLOURS[0]), "pruned": ("x", "#888888")}


def draw_history(trials: Sequence[Mapping[str, Any]], metric: str, path: Path) -> None:
    """The value of every trial in its order, and the best so far."""
    with korean_figure(path, 8, 4.4) as figure:
        axes = figure.add_subplot()
        for state, (mark, colour) in _STATES.items():
            points = [
                (row["trial"], row["value"]) for row in trials if row["state"] == state and row["value"] is not None
            ]
            if points:
                axes.scatter(*zip(*points, strict=True), marker=mark, color=colour, label=state, zorder=3)
        finished = [(row["trial"], row["value"]) for row in trials if row["state"] == "complete"]
        if finished:
            positions, values = zip(*finished, strict=True)
            axes.step(positions, list(accumulate(values, max)), where="post", color=COLOURS[1], label="best so far")
        axes.set_title("Trials of the study")
        axes.set_xlabel("trial")
        axes.set_ylabel(metric)
        axes.locator_params(axis="x", integer=True)
        axes.grid(alpha=0.3)
        axes.legend()


def draw_importance(importance: Mapping[str, float], path: Path) -> None:
    """One bar per setting."""
    names = list(importance)[::-1]
    with korean_figure(path, 8, 1.4 + 0.4 * len(names)) as figure:
        axes = figure.add_subplot()
        bars = axes.barh(names, [100 * importance[name] for name in names], color=COLOURS[0])
        axes.bar_label(bars, fmt="%.0f", padding=3)
        axes.set_title("Which settings mattered")
        axes.set_xlabel("share of what tells the best trials from the others, %")
        axes.margins(x=0.1)
