"""The course of a pre-training: losses over steps, and the probes where there are some."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.plots.panels import COLOURS, korean_figure

_MASKED = {"loss per masked piece": {"held_out_loss": "held-out loss", "loss": "training loss"}}
_DETECTION = {
    "rtd loss per piece": {"held_out_rtd_loss": "held-out rtd loss"},
    "generator loss per gap": {"held_out_generator_loss": "held-out generator loss"},
}
_PROBES = ("strict@1", "strict@5", "choice@1")


def draw_losses(lines: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Draw the lines of a log; False where fewer than two evaluations leave nothing to draw."""
    if len(lines) < 2:
        return False
    steps = [line["step"] for line in lines]
    panels = _panels(lines)
    with korean_figure(path, 7, 1 + 2.6 * len(panels)) as figure:
        first: Any = None
        for position, (unit, curves) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(len(panels), 1, position, sharex=first)
            first = first or axes
            for number, (label, values) in enumerate(curves.items()):
                axes.plot(steps, values, label=label, color=COLOURS[number], marker="o", markersize=3)
            if unit.startswith("%"):
                axes.set_ylim(bottom=0)
            axes.set_ylabel(unit)
            axes.grid(alpha=0.3)
            axes.legend(loc="best")
        axes.set_xlabel("step")
    return True


def _panels(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """What is drawn below each other: by unit, the curves."""
    figures = _DETECTION if "held_out_rtd_loss" in lines[0] else _MASKED
    panels = {
        unit: {label: [line[key] for line in lines] for key, label in curves.items()}
        for unit, curves in figures.items()
    }
    probes = {name: [line.get("probes", {}).get(name) for line in lines] for name in _PROBES}
    known = {name: [100 * value for value in values] for name, values in probes.items() if None not in values}
    return {**panels, "% of probe items": known} if known else panels
