"""Do confidences mean what they say? Answers that are 80 % sure should be right in 80 % of the cases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.display.table import Table
from danseo.predictions.evidence import Array
from danseo.records import Prediction
from danseo.tasks.task import Task

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
    """Bins of equal width, empty ones left out, and how far confidence and truth lie apart."""

    of: str
    """What was sure: answers, characters."""
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
        note = f"expected calibration error {self.error:.2f} points over {_BINS} bins of equal width"
        return Table("calibration", ("confidence", self.of, "mean confidence %", "right %"), rows, note)


def calibration(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], kept: Sequence[Any] | None = None
) -> Calibration | None:
    """The calibration of labels, of tags per character, or of "no answer"; None where no confidence was saved."""
    if task.kind == "tag" and kept is not None:
        return _of_tags(task, examples, kept)
    if not examples or any(not prediction.probabilities for prediction in predictions):
        return None
    pairs = list(zip(examples, predictions, strict=True))
    if task.kind == "classify":
        sure = [(prediction.probabilities or {}).get(prediction.answer, 0.0) for _, prediction in pairs]
        return binned("answers", np.array(sure), np.array([p.answer == e.gold for e, p in pairs]))
    if task.kind == "labels":
        chances = np.array([[(p.probabilities or {}).get(label, 0.0) for label in task.labels] for _, p in pairs])
        golds = np.array([[label in example.gold for label in task.labels] for example, _ in pairs])
        certain = np.maximum(chances, 1 - chances).ravel()
        return binned("labels, whether a text has them", certain, ((chances >= 0.5) == golds).ravel())
    if task.kind == "answer" and all("" in (prediction.probabilities or {}) for prediction in predictions):
        none = np.array([(prediction.probabilities or {})[""] for _, prediction in pairs])
        empty = np.array([not example.gold for example, _ in pairs])
        certain = np.where(none >= 0.5, none, 1 - none)
        return binned("questions, whether they have an answer", certain, (none >= 0.5) == empty)
    return None


def _of_tags(task: Task, examples: Sequence[Any], kept: Sequence[Any]) -> Calibration | None:
    tables = [np.asarray(table, dtype=np.float32) for table in kept]
    golds = np.array([task.labels.index(tag) for example in examples for tag in example.gold])
    whole = np.concatenate(tables) if tables else np.zeros((0, 1), dtype=np.float32)
    if len(whole) != len(golds) or not len(golds):
        return None
    letters = np.array([character != " " for example in examples for character in example.text])
    return binned("characters", whole.max(axis=1)[letters], (whole.argmax(axis=1) == golds)[letters])


def binned(of: str, sure: Array, right: Array) -> Calibration | None:
    """Confidences from 0 to 1 and whether each was right, in bins of equal width."""
    if not len(sure):
        return None
    positions = np.clip((sure * _BINS).astype(int), 0, _BINS - 1)
    bins = [
        Bin(
            k / _BINS, (k + 1) / _BINS, int(mine.sum()), 100 * float(sure[mine].mean()), 100 * float(right[mine].mean())
        )
        for k in range(_BINS)
        if (mine := positions == k).any()
    ]
    return Calibration(of, bins)
