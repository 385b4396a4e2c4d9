"""The course of a pre-training: losses over steps, and the probes where there are some."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.report.plots import COLOURS, korean_figure

_PROBES = ("strict@1", "strict@5", "choice@1")


def draw_losses(lines: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Draw the lines of a log; False where fewer than two evaluations leave nothing to draw."""
    if len(lines) < 2:
        return False
    steps = [line["step"] for line in lines]
    probes = {name: [line.get("probes", {}).get(name) for line in lines] for name in _PROBES}
    known = {name: values for name, values in probes.items() if None not in values}
    with korean_figure(path, 7, 6.2 if known else 3.6) as figure:
        upper = figure.add_subplot(2 if known else 1, 1, 1)
        for number, (key, label) in enumerate((("held_out_loss", "held-out loss"), ("loss", "training loss"))):
            upper.plot(
                steps, [line[key] for line in lines], label=label, color=COLOURS[number], marker="o", markersize=3
            )
        upper.set_ylabel("loss per masked piece")
        axes = [upper]
        if known:
            axes.append(figure.add_subplot(2, 1, 2, sharex=upper))
            for number, (name, values) in enumerate(known.items()):
                shares = [100 * value for value in values]
                axes[1].plot(steps, shares, label=name, color=COLOURS[number], marker="o", markersize=3)
            axes[1].set_ylabel("% of probe items")
            axes[1].set_ylim(bottom=0)
        for each in axes:
            each.grid(alpha=0.3)
            each.legend(loc="best")
        axes[-1].set_xlabel("step")
    return True
