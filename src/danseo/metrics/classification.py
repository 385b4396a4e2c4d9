"""Scores of label answers: accuracy, F1 and areas under precision-recall curves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from danseo.metrics.statistic import Array, ClassCounts, Counts, class_f1, macro_f1, mean, micro_f1_or_zero, share

Areas = tuple[Array, Array]
T = TypeVar("T")
_BLOCK = 16  # resamples per block: running sums down a wide table would miss the cache at every step


def accuracy(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Return the share of exact matches."""
    return mean([gold == answer for gold, answer in zip(golds, answers, strict=True)])


def label_macro_f1(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Return the mean F1 over the labels that occur in gold or answers; "" is no answer, not a label."""
    return class_f1(np.arange(len(golds)), golds, answers, len(golds), missing="")


def set_counts(golds: Sequence[Sequence[str]], answers: Sequence[Sequence[str]], labels: Sequence[str]) -> ClassCounts:
    """Return the mean F1 over labels of examples with several; the table has right, answered and gold per label."""
    gold, answer = (np.array([[label in row for label in labels] for row in side]) for side in (golds, answers))
    table = np.stack([gold & answer, answer, gold], axis=-1).astype(float)
    return ClassCounts(table.reshape(len(golds), 3 * len(labels)), macro_f1, tuple(labels))


def relation_counts(golds: Sequence[str], answers: Sequence[str], negative: str = "no_relation") -> Array:
    """Return per example whether the relation is right, one is answered, gold has one; the negative label is none."""
    rows = [(g == a != negative, a != negative, g != negative) for g, a in zip(golds, answers, strict=True)]
    return np.array(rows, dtype=float).reshape(-1, 3)


def relation_micro_f1(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Return the F1 pooled over the relations without no_relation; 0 if there is none on either side."""
    return Counts(relation_counts(golds, answers), micro_f1_or_zero)


def relation_precision(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Return the share of answered relations that are right."""
    hits, answered, _ = relation_counts(golds, answers).T
    return share(hits, answered, "nothing answered")


def relation_recall(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Return the share of gold relations that were found."""
    hits, _, gold = relation_counts(golds, answers).T
    return share(hits, gold, "nothing to find")


class Curves:
    """The one-against-rest precision-recall curves of label probabilities, for any whole weights of the examples.

    Recall only grows at scores that some gold example has, so these are the points of a curve. They are found by
    sorting once; what lies between them is then a sparse product with the weights, for all labels together.
    """

    def __init__(self, scores: Array, golds: Array, labels: Sequence[str]) -> None:
        self.scores, self.golds, self.labels = scores, golds, labels
        self._last: tuple[tuple[object, ...], Any] = (), None
        self._joined: tuple[Curves, Curves] | None = None

    @cached_property
    def plain(self) -> Areas:
        """The areas of the examples as they are."""
        return self._compute_areas(np.ones((1, len(self.golds))))

    def compute_areas(self, weights: Array) -> Areas:
        """Return the areas by trapezoids and by steps, a row per label; NaN if no gold of a label has a weight."""
        return self._cache_last(lambda: self._compute_areas(weights), weights)

    def swap_answers(self, other: "Curves", swap: Array) -> tuple[Areas, Areas]:
        """Return the areas of both systems with their answers to the marked examples swapped."""
        return self._cache_last(lambda: self._swap_answers(other, swap), other, swap)

    def _swap_answers(self, other: "Curves", swap: Array) -> tuple[Areas, Areas]:
        both, sides = self._join(other), (1 - swap, swap)
        first, second = (np.concatenate(parts, axis=1) for parts in (sides, sides[::-1]))
        return both._compute_areas(first), both._compute_areas(second)

    def _cache_last(self, make: Callable[[], T], *arguments: object) -> T:
        """Return the last result if the arguments are the same: several scores need the same areas."""
        known = self._last[0]
        if len(known) != len(arguments) or any(a is not b for a, b in zip(known, arguments, strict=True)):
            self._last = arguments, make()
        result: T = self._last[1]
        return result

    def _join(self, other: "Curves") -> "Curves":
        """Return the curves of both systems' answers, one after the other; cached, since resamples come in parts."""
        if self._joined is None or self._joined[0] is not other:
            scores, golds = np.concatenate([self.scores, other.scores]), np.concatenate([self.golds, other.golds])
            self._joined = other, Curves(scores, golds, self.labels)
        return self._joined[1]

    def _compute_areas(self, weights: Array) -> Areas:
        trapezoids = np.full((self.scores.shape[1], len(weights)), np.nan)
        steps, points = trapezoids.copy(), self._points
        for first in range(0, len(weights), _BLOCK):
            rows = slice(first, first + _BLOCK)
            block = np.ascontiguousarray(weights[rows].T, dtype=np.float32)  # whole counts, so float32 is exact
            trapezoids[points.labels, rows], steps[points.labels, rows] = points.compute_areas(block)
        return trapezoids, steps

    @cached_property
    def _points(self) -> "Points":
        return Points.find(self.scores, self.golds)


@dataclass(frozen=True)
class Points:
    """The points of all curves, label by label, best score first."""

    labels: Array
    """The labels that have gold examples."""
    starts: Array
    """The first point of each."""
    examples: Any
    """Three sparse matrices on top of each other, a row per point: its golds, all its examples, all since the last."""

    @classmethod
    def find(cls, scores: Array, golds: Array) -> "Points":
        from scipy.sparse import vstack

        labels = np.unique(golds)
        parts = [_find_label_points(scores[:, label], golds == label) for label in labels]
        starts = np.cumsum([0, *(part[0].shape[0] for part in parts)])[:-1]
        return cls(labels, starts, vstack([vstack(matrices) for matrices in zip(*parts, strict=True)], format="csr"))

    def compute_areas(self, weights: Array) -> Areas:
        """Return both areas of every label, for weights with a column per resample."""
        grown, tied, passed = np.split(self.examples @ weights, 3)
        hits, chosen = self._accumulate(grown), self._accumulate(passed)
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.divide(hits, np.maximum(chosen, 1), dtype=float)
            steps = np.add.reduceat(grown * precision, self.starts, axis=0)
            before = chosen - tied
            hits_before = np.where(before > 0, hits - grown, 1)  # a curve begins with precision 1
            precision = np.divide(hits_before, np.maximum(before, 1), dtype=float)
            others = np.add.reduceat(grown * precision, self.starts, axis=0)
            total = np.add.reduceat(grown, self.starts, axis=0).astype(float)
            return (steps + others) / 2 / total, steps / total

    def _accumulate(self, numbers: Array) -> Array:
        """Return the cumulative sums along each curve."""
        sums = np.empty_like(numbers)
        for start, end in zip(self.starts, (*self.starts[1:], len(numbers)), strict=True):
            np.cumsum(numbers[start:end], axis=0, out=sums[start:end])
        return sums


def _find_label_points(scores: Array, is_gold: Array) -> tuple[Any, Any, Any]:
    """Return the golds of each point, all its examples, and all since the point before; ties are one point."""
    order = np.argsort(-scores, kind="stable")
    falling, gold = -scores[order], np.flatnonzero(is_gold[order])
    starts, heads = np.unique(np.searchsorted(falling, falling[gold], side="left"), return_index=True)
    ends = np.searchsorted(falling, falling[gold[heads]], side="right")
    tied = np.concatenate([order[start:end] for start, end in zip(starts, ends, strict=True)])
    return (
        _mark_rows(order[gold], [*heads, len(gold)], len(order)),
        _mark_rows(tied, [0, *np.cumsum(ends - starts)], len(order)),
        _mark_rows(order[: ends[-1]], [0, *ends], len(order)),
    )


def _mark_rows(examples: Array, bounds: Sequence[int], n: int) -> Any:
    """Return a sparse matrix whose k-th row marks the examples between two bounds."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(examples), dtype=np.float32), examples, bounds), shape=(len(bounds) - 1, n))


@dataclass(frozen=True)
class Ranking:
    """The mean area under the curves of all labels.

    The trapezoid form starts at recall 0, precision 1 and joins the points by lines, as the official code does;
    the step form is average precision. A label without gold makes the official score NaN.
    """

    curves: Curves
    trapezoid: bool = True
    only_present: bool = False
    lowest: ClassVar[float] = 0.0

    @property
    def undefined_reason(self) -> str:
        absent = [label for k, label in enumerate(self.curves.labels) if k not in self.curves.golds]
        return f"{len(absent)} labels do not occur in gold ({', '.join(absent[:3])}…)"

    def values(self, weights: Array) -> Array:
        return self._average(self.curves.compute_areas(weights))

    def swap_answers(self, other: Self, swap: Array) -> tuple[Array, Array]:
        first, second = self.curves.swap_answers(other.curves, swap)
        return self._average(first), self._average(second)

    def _average(self, both: Areas) -> Array:
        areas = both[0 if self.trapezoid else 1]
        if self.only_present:
            present = ~np.isnan(areas)
            area: Array = np.where(present, areas, 0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
        else:
            area = areas.mean(axis=0)
        return 100 * area

    def support(self, clusters: Array) -> Array:
        labels = np.unique(self.curves.golds)
        return np.array([len(np.unique(clusters[self.curves.golds == label])) for label in labels])

    def value(self) -> float:
        return float(self._average(self.curves.plain)[0])


def make_curves(golds: Sequence[str], probabilities: Sequence[Mapping[str, float]], labels: Sequence[str]) -> Curves:
    """Return the curves of label probabilities; a label that is not named has probability 0."""
    scores = np.array([[row.get(label, 0.0) for label in labels] for row in probabilities], dtype=float)
    index = {label: number for number, label in enumerate(labels)}
    return Curves(scores, np.array([index[gold] for gold in golds]), labels)
