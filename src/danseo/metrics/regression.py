"""Scores of number answers: correlation, and F1 after a threshold."""

from collections.abc import Sequence

import numpy as np

from danseo.metrics.statistic import Array, Counts, micro_f1_or_zero

_NOISE = 1e-13  # relative; what rounding leaves of a difference that should be zero


def pearson(golds: Sequence[float], answers: Sequence[float]) -> Counts:
    """Return Pearson's correlation times 100; NaN if one side is constant."""
    x, y = _standardize(golds), _standardize(answers)
    table = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
    undefined = "all answers, or all golds, are the same number"
    return Counts(table, _correlation, lowest=-100.0, undefined_reason=undefined)


def _standardize(numbers: Sequence[float]) -> Array:
    """Return centred and scaled numbers, so that sums stay small; zeros for a constant."""
    column = np.asarray(numbers, dtype=float)
    size = np.abs(column).max(initial=0)
    scaled = column / size if size else column
    centred = scaled - scaled.mean()
    spread = np.abs(centred).max(initial=0)
    return centred / spread if spread > _NOISE else np.zeros_like(column)


def _correlation(sums: Array) -> Array:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    correlation: Array = (n * xy - x * y) / np.sqrt(_variance(n, x, xx) * _variance(n, y, yy))
    return 100 * correlation


def _variance(n: Array, total: Array, squares: Array) -> Array:
    """Return the variance times n squared; NaN where all numbers are the same up to rounding."""
    variance = n * squares - total * total
    return np.where(variance > _NOISE * n * squares, variance, np.nan)


def threshold_f1(golds: Sequence[float], answers: Sequence[float], threshold: float = 3.0) -> Counts:
    """Return the F1 of the numbers at or above the threshold; 0 if neither side has any."""
    gold, answer = np.asarray(golds) >= threshold, np.asarray(answers) >= threshold
    return Counts(np.stack([gold & answer, answer, gold], axis=1).astype(float), micro_f1_or_zero)
