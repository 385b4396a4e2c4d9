"""Metrics as statistics: a table of counts per example, and a formula that turns column sums into a score.

One matrix product scores a thousand resamples at once, so intervals and tests are cheap.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Formula = Callable[[Array], Array]
UNDEFINED = "nothing to find and nothing answered"
"""Why an F1 has no value."""


@dataclass(frozen=True)
class Metric:
    """A metric of a task."""

    id: str
    """Task, name and definition, such as ner/entity_f1@official-1; an id never changes its meaning."""
    description: str
    average: Literal["", "macro", "subset"] = ""
    """Labels: whether the score is a mean over labels, or needs exactly the gold labels; else all are pooled."""

    @property
    def name(self) -> str:
        """The name without task and definition, such as entity_f1."""
        return self.id.split("/")[1].split("@")[0]

    @property
    def is_official(self) -> bool:
        """Whether KLUE's own code defines it."""
        return self.id.endswith("@official-1")


def index_metrics(*metrics: Metric) -> dict[str, Metric]:
    """Return metrics by id, in this order; the first one is the headline."""
    return {metric.id: metric for metric in metrics}


class Statistic(Protocol):
    """A score that can be recomputed for any weighting of its examples."""

    @property
    def lowest(self) -> float:
        """The least that the score can be; the most is 100."""
        ...

    @property
    def undefined_reason(self) -> str:
        """Why the value is NaN, if it is."""
        ...

    def values(self, weights: Array) -> Array:
        """Return one score per row of weights; a row has one weight per example."""
        ...

    def swap_answers(self, other: Self, swap: Array) -> tuple[Array, Array]:
        """Return the scores of both systems with the answers to the examples marked 1 swapped, per row of marks."""
        ...

    def support(self, clusters: Array) -> Array:
        """Return the number of clusters of examples that count; one number per class for a mean over classes."""
        ...

    def value(self) -> float:
        """Return the score of the examples as they are."""
        ...


@dataclass(frozen=True)
class Counts:
    """A score that is a formula of column sums; the table has one row per example."""

    table: Array
    formula: Formula
    lowest: float = field(default=0.0, kw_only=True)
    undefined_reason: str = field(default=UNDEFINED, kw_only=True)

    def values(self, weights: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.formula(weights @ self.table)

    def swap_answers(self, other: Self, swap: Array) -> tuple[Array, Array]:
        mine, theirs = self.align_tables(other)
        moved = swap @ (theirs - mine)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.formula(mine.sum(axis=0) + moved), self.formula(theirs.sum(axis=0) - moved)

    def align_tables(self, other: Self) -> tuple[Array, Array]:
        """Return the tables of two systems with the same columns."""
        return self.table, other.table

    def support(self, clusters: Array) -> Array:
        width = 3 if self.formula in (macro_f1, macro_f1_absent_is_right) else self.table.shape[1]
        present = np.any(self.table.reshape(len(self.table), -1, width), axis=2)
        return np.array([len(np.unique(clusters[column])) for column in np.transpose(present)])

    def value(self) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(self.formula(self.table.sum(axis=0)))

    def is_mean_of_hits(self) -> bool:
        """Return whether the score is a share of right examples, as McNemar's test needs it."""
        if self.formula is not percent:
            return False
        hits, totals = self.table.T
        return bool(np.isin(hits, (0, 1)).all() and (totals == 1).all())


@dataclass(frozen=True)
class ClassCounts(Counts):
    """Counts with hits, answered and gold per class, where the classes of systems may differ."""

    classes: tuple[str, ...]

    def align_tables(self, other: Self) -> tuple[Array, Array]:
        classes = tuple(dict.fromkeys((*self.classes, *other.classes)))
        return self._expand(classes), other._expand(classes)

    def _expand(self, classes: tuple[str, ...]) -> Array:
        """Return the table with columns for all these classes."""
        table = np.zeros((len(self.table), len(classes), 3))
        table[:, [classes.index(name) for name in self.classes]] = self.table.reshape(len(self.table), -1, 3)
        return table.reshape(len(table), -1)


def percent(sums: Array) -> Array:
    """Return 100 times the first sum over the second."""
    return 100 * sums[..., 0] / sums[..., 1]


def mean(points: Sequence[float] | Array) -> Counts:
    """Return the mean of points from 0 to 1, one per example, as a percentage."""
    column = np.asarray(points, dtype=float)
    return Counts(np.stack([column, np.ones_like(column)], axis=1), percent)


def share(hits: Sequence[float] | Array, totals: Sequence[float] | Array, undefined: str = UNDEFINED) -> Counts:
    """Return all hits over all units, as a percentage: for examples of different size."""
    return Counts(np.stack([hits, totals], axis=1).astype(float), percent, undefined_reason=undefined)


def compute_class_f1(sums: Array) -> Array:
    """Return the F1 of each class from the sums [hits, answered, gold] per class; NaN for an absent class."""
    hits, answered, gold = np.moveaxis(sums.reshape(*sums.shape[:-1], -1, 3), -1, 0)
    f1: Array = 2 * hits / (answered + gold)
    return f1


def macro_f1(sums: Array) -> Array:
    """Return the mean F1 over the classes that occur in gold or answers; NaN if none does."""
    f1 = compute_class_f1(sums)
    present = ~np.isnan(f1)
    mean_f1: Array = np.where(present, f1, 0).sum(axis=-1) / present.sum(axis=-1)
    return 100 * mean_f1


def macro_f1_absent_is_right(sums: Array) -> Array:
    """Return the mean F1 over all classes; an absent one counts as 1 (the official character F1)."""
    f1 = compute_class_f1(sums)
    mean_f1: Array = np.where(np.isnan(f1), 1, f1).mean(axis=-1)
    return 100 * mean_f1


def micro_f1(sums: Array) -> Array:
    """Return the F1 of the pooled classes; NaN if neither side has any."""
    pooled: Array = sums.reshape(*sums.shape[:-1], -1, 3).sum(axis=-2)
    hits, answered, gold = np.moveaxis(pooled, -1, 0)
    f1: Array = 100 * 2 * hits / (answered + gold)
    return f1


def micro_f1_or_zero(sums: Array) -> Array:
    """Return the F1 of the pooled classes; 0 if neither side has any."""
    return np.nan_to_num(micro_f1(sums), nan=0.0)


def class_f1(
    examples: Array, golds: Sequence[str], answers: Sequence[str], n: int, missing: str | None = None
) -> ClassCounts:
    """Return the mean F1 over the classes that occur; the inputs have one entry per unit, examples its example.

    A missing answer belongs to no class: its gold is not found, and nothing is answered wrongly.
    """
    index = {name: number for number, name in enumerate(dict.fromkeys((*golds, *answers)))}
    gold, answer = (np.array([index[name] for name in side], dtype=np.int64) for side in (golds, answers))
    table = class_table(examples, gold, answer, len(index), n)
    if missing is not None and missing in index:
        position = index.pop(missing)
        table = np.delete(table, slice(3 * position, 3 * position + 3), axis=1)
    return ClassCounts(table, macro_f1, tuple(index))


def class_table(examples: Array, golds: Array, answers: Array, classes: int, n: int) -> Array:
    """Return hits, answered and gold per example and class; the inputs have one entry per unit."""
    right = golds == answers
    columns = (examples[right], golds[right]), (examples, answers), (examples, golds)
    return np.stack([count_classes(rows, names, classes, n) for rows, names in columns], axis=-1).reshape(
        n, classes * 3
    )


def count_classes(examples: Array, classes: Array, width: int, n: int, weights: Array | None = None) -> Array:
    """Return the number, or the total weight, of units of each class in each example."""
    cells = examples * width + classes
    return np.bincount(cells, weights, minlength=n * width).astype(float).reshape(n, width)
