"""Scores of number answers: correlation, and F1 after a threshold."""

from collections.abc import Sequence

import numpy as np

from danseo.metrics.statistic import Array, Counts, micro_f1_or_zero


def pearson(golds: Sequence[float], answers: Sequence[float]) -> Counts:
    """Pearson's correlation times 100; NaN when one side is constant."""
    x, y = _standard(golds), _standard(answers)
    return Counts(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1), _correlation)


def _standard(numbers: Sequence[float]) -> Array:
    """Centred and scaled, which changes no correlation and keeps the sums well behaved."""
    column = np.asarray(numbers, dtype=float)
    centred = column - column.mean()
    spread = np.abs(centred).max(initial=0)
    return (
        centred / spread if spread > 1e-12 * max(1.0, float(np.abs(column).max(initial=0))) else np.zeros_like(column)
    )


def _correlation(sums: Array) -> Array:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    variances = (n * xx - x * x) * (n * yy - y * y)
    return 100 * (n * xy - x * y) / np.sqrt(np.where(variances > 0, variances, np.nan))


def threshold_f1(golds: Sequence[float], answers: Sequence[float], threshold: float = 3.0) -> Counts:
    """F1 of the numbers at or above the threshold; 0 when neither side has any."""
    gold, answer = np.asarray(golds) >= threshold, np.asarray(answers) >= threshold
    return Counts(np.stack([gold & answer, answer, gold], axis=1).astype(float), micro_f1_or_zero)
