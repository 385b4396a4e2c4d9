"""A metric as a statistic: what each example contributes, and a formula that turns sums into a score.

Kept this way, one matrix product scores a thousand resamples at once, so intervals and tests cost little.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Formula = Callable[[Array], Array]


class Statistic(Protocol):
    """A score that can be recomputed for any weighting of its examples."""

    @property
    def lowest(self) -> float:
        """The least that the score can be; the most is 100."""
        ...

    def values(self, weights: Array) -> Array:
        """One score per row of weights; a row has one weight per example."""
        ...

    def exchanged(self, other: Self, swap: Array) -> tuple[Array, Array]:
        """Both systems' scores after the answers to the examples marked 1 have changed sides, per row of marks."""
        ...

    def support(self, clusters: Array) -> Array:
        """How many clusters of examples the score rests on; one number per class where classes weigh the same."""
        ...

    def value(self) -> float:
        """The score of the examples as they are."""
        ...


@dataclass(frozen=True)
class Counts:
    """A score that is a formula of column sums; the table has one row per example."""

    table: Array
    formula: Formula
    lowest: float = field(default=0.0, kw_only=True)

    def values(self, weights: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.formula(weights @ self.table)

    def exchanged(self, other: Self, swap: Array) -> tuple[Array, Array]:
        mine, theirs = self.tables_beside(other)
        moved = swap @ (theirs - mine)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.formula(mine.sum(axis=0) + moved), self.formula(theirs.sum(axis=0) - moved)

    def tables_beside(self, other: Self) -> tuple[Array, Array]:
        """The tables of two systems, with the same columns."""
        return self.table, other.table

    def support(self, clusters: Array) -> Array:
        width = 3 if self.formula in (macro_f1, macro_f1_absent_is_right) else self.table.shape[1]
        present = np.any(self.table.reshape(len(self.table), -1, width), axis=2)
        return np.array([len(np.unique(clusters[column])) for column in np.transpose(present)])

    def value(self) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(self.formula(self.table.sum(axis=0)))

    def is_mean_of_hits(self) -> bool:
        """Whether the score is a share of right examples, as McNemar's test needs it."""
        if self.formula is not percent:
            return False
        hits, totals = self.table.T
        return bool(np.isin(hits, (0, 1)).all() and (totals == 1).all())


@dataclass(frozen=True)
class ClassCounts(Counts):
    """Counts with hits, answered and gold per class, where each system may have classes of its own."""

    classes: tuple[str, ...]

    def tables_beside(self, other: Self) -> tuple[Array, Array]:
        classes = tuple(dict.fromkeys((*self.classes, *other.classes)))
        return self._table_of(classes), other._table_of(classes)

    def _table_of(self, classes: tuple[str, ...]) -> Array:
        """The table with a place for every class, in this order."""
        table = np.zeros((len(self.table), len(classes), 3))
        table[:, [classes.index(name) for name in self.classes]] = self.table.reshape(len(self.table), -1, 3)
        return table.reshape(len(table), -1)


def percent(sums: Array) -> Array:
    """100 times the first sum over the second."""
    return 100 * sums[..., 0] / sums[..., 1]


def mean(points: Sequence[float] | Array) -> Counts:
    """The mean of per-example points from 0 to 1, as a percentage."""
    column = np.asarray(points, dtype=float)
    return Counts(np.stack([column, np.ones_like(column)], axis=1), percent)


def share(hits: Sequence[float] | Array, totals: Sequence[float] | Array) -> Counts:
    """All hits over all units, as a percentage: for examples of different size."""
    return Counts(np.stack([np.asarray(hits, dtype=float), np.asarray(totals, dtype=float)], axis=1), percent)


def per_class(sums: Array) -> Array:
    """F1 of each class from sums laid out as [hits, answered, gold] per class; NaN where a class is absent."""
    hits, answered, gold = np.moveaxis(sums.reshape(*sums.shape[:-1], -1, 3), -1, 0)
    f1: Array = 2 * hits / (answered + gold)
    return f1


def macro_f1(sums: Array) -> Array:
    """Mean F1 over the classes that occur in gold or answers; NaN when none does."""
    f1 = per_class(sums)
    present = ~np.isnan(f1)
    mean_f1: Array = np.where(present, f1, 0).sum(axis=-1) / present.sum(axis=-1)
    return 100 * mean_f1


def macro_f1_absent_is_right(sums: Array) -> Array:
    """Mean F1 over all classes, an absent one counting as 1 (the official character F1)."""
    f1 = per_class(sums)
    mean_f1: Array = np.where(np.isnan(f1), 1, f1).mean(axis=-1)
    return 100 * mean_f1


def micro_f1(sums: Array) -> Array:
    """F1 of the pooled classes; NaN when neither side has any."""
    pooled: Array = sums.reshape(*sums.shape[:-1], -1, 3).sum(axis=-2)
    hits, answered, gold = np.moveaxis(pooled, -1, 0)
    f1: Array = 100 * 2 * hits / (answered + gold)
    return f1


def micro_f1_or_zero(sums: Array) -> Array:
    """F1 of the pooled classes; 0 when neither side has any."""
    return np.nan_to_num(micro_f1(sums), nan=0.0)


def class_f1(
    examples: Array, golds: Sequence[str], answers: Sequence[str], n: int, missing: str | None = None
) -> ClassCounts:
    """Mean F1 over the classes that occur; the inputs are parallel, one entry per unit.

    A missing answer belongs to no class: its gold is not found, and nothing is answered wrongly.
    """
    index: dict[str, int] = {}
    gold, answer = encode(golds, index), encode(answers, index)
    table = class_table(examples, gold, answer, len(index), n)
    if missing is not None and missing in index:
        position = index.pop(missing)
        table = np.delete(table, slice(3 * position, 3 * position + 3), axis=1)
    return ClassCounts(table, macro_f1, tuple(index))


def class_table(examples: Array, golds: Array, answers: Array, classes: int, n: int) -> Array:
    """Per example and class: hits, answered, gold; the inputs are parallel, one entry per unit."""
    right = golds == answers
    columns = (examples[right], golds[right]), (examples, answers), (examples, golds)
    return np.stack([counted(rows, names, classes, n) for rows, names in columns], axis=-1).reshape(n, classes * 3)


def counted(examples: Array, classes: Array, width: int, n: int, weights: Array | None = None) -> Array:
    """How many units of each class each example has, as a table; with weights, how much they weigh."""
    cells = examples * width + classes
    return np.bincount(cells, weights, minlength=n * width).astype(float).reshape(n, width)


def encode(words: Sequence[str], index: dict[str, int]) -> Array:
    """Words as numbers; words not seen before get the next number."""
    return np.fromiter((index.setdefault(word, len(index)) for word in words), dtype=np.int64, count=len(words))
