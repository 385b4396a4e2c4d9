"""Calibration: answers with a confidence of 80 % should be right in 80 % of the cases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.display.table import Table
from danseo.language import _
from danseo.records import Prediction
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import Array

_BINS = 10


@dataclass(frozen=True)
class Bin:
    """Answers of similar confidence."""

    low: float
    high: float
    n: int
    confidence: float
    """Mean, in percent."""
    right: float
    """Share that is right, in percent."""


@dataclass(frozen=True)
class Calibration:
    """Bins of equal width, without empty ones."""

    unit: str
    """What has a confidence: answers, characters."""
    bins: list[Bin]

    @property
    def error(self) -> float:
        """Expected calibration error in points: the mean gap, each bin by its size."""
        total = sum(each.n for each in self.bins)
        return sum(each.n * abs(each.confidence - each.right) for each in self.bins) / total

    def table(self) -> Table:
        rows: list[tuple[object, ...]] = [
            (f"{100 * b.low:.0f} – {100 * b.high:.0f} %", b.n, b.confidence, b.right) for b in self.bins
        ]
        note = _("expected calibration error {error:.2f} points over {n} bins of equal width")
        note = note.format(error=self.error, n=_BINS)
        return Table("calibration", ("confidence", self.unit, "mean confidence %", "right %"), rows, note)


def calibration(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], rows: Sequence[Any] | None = None
) -> Calibration | None:
    """Return the calibration of labels, of tags per character, or of "no answer"; None without confidences."""
    has_probabilities = bool(examples) and all(prediction.probabilities for prediction in predictions)
    if not has_probabilities and rows is None:
        return None
    found = task.type.confidences(task, examples, predictions, rows)
    return bin_confidences(found.unit, found.values, found.correct) if found else None


def bin_confidences(unit: str, confidences: Array, correct: Array) -> Calibration | None:
    """Return confidences from 0 to 1, and whether each was correct, in bins of equal width."""
    if not len(confidences):
        return None
    positions = np.clip((confidences * _BINS).astype(int), 0, _BINS - 1)
    bins = []
    for k in range(_BINS):
        if (mine := positions == k).any():
            mean, share = 100 * float(confidences[mine].mean()), 100 * float(correct[mine].mean())
            bins.append(Bin(k / _BINS, (k + 1) / _BINS, int(mine.sum()), mean, share))
    return Calibration(unit, bins)
