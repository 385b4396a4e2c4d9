"""Scores of label answers: accuracy, F1 and areas under precision-recall curves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from danseo.metrics.statistic import Array, ClassCounts, Counts, class_f1, macro_f1, mean, micro_f1_or_zero, share

Areas = tuple[Array, Array]
T = TypeVar("T")
_BLOCK = 16  # resamples at a time: running sums down a wide table would miss the cache at every step


def accuracy(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Share of exact matches."""
    return mean([gold == answer for gold, answer in zip(golds, answers, strict=True)])


def label_macro_f1(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Mean F1 over the labels that occur in gold or answers; "" is no answer, not a label."""
    return class_f1(np.arange(len(golds)), golds, answers, len(golds), missing="")


def set_counts(golds: Sequence[Sequence[str]], answers: Sequence[Sequence[str]], labels: Sequence[str]) -> ClassCounts:
    """Of examples with several labels, per example and label: right, answered, in gold; its value is the mean F1."""
    gold, answer = (np.array([[label in row for label in labels] for row in side]) for side in (golds, answers))
    table = np.stack([gold & answer, answer, gold], axis=-1).astype(float)
    return ClassCounts(table.reshape(len(golds), 3 * len(labels)), macro_f1, tuple(labels))


def relation_counts(golds: Sequence[str], answers: Sequence[str], negative: str = "no_relation") -> Array:
    """Per example: right relation, relation answered, relation in gold; the negative label is none."""
    rows = [(g == a != negative, a != negative, g != negative) for g, a in zip(golds, answers, strict=True)]
    return np.array(rows, dtype=float).reshape(-1, 3)


def relation_micro_f1(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """F1 pooled over the relations, no_relation left out; 0 when there is none on either side."""
    return Counts(relation_counts(golds, answers), micro_f1_or_zero)


def relation_precision(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Share of the answered relations that are right."""
    hits, answered, _ = relation_counts(golds, answers).T
    return share(hits, answered)


def relation_recall(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Share of the gold relations that were found."""
    hits, _, gold = relation_counts(golds, answers).T
    return share(hits, gold)


class Curves:
    """The one-against-rest precision-recall curves of label probabilities, for any whole weights of the examples.

    Recall only grows at scores that some gold example has, so these are the points of a curve. They are found by
    sorting once; what lies between them is then a sparse product with the weights, for all labels together.
    """

    def __init__(self, scores: Array, golds: Array) -> None:
        self.scores, self.golds = scores, golds
        self._latest: tuple[tuple[object, ...], Any] = (), None
        self._stack: tuple[Curves, Curves] | None = None

    @cached_property
    def plain(self) -> Areas:
        """The areas of the examples as they are."""
        return self._areas(np.ones((1, len(self.golds))))

    def areas(self, weights: Array) -> Areas:
        """Areas by trapezoids and by steps, a row per label; NaN where the gold of a label weighs nothing."""
        return self._remembered(lambda: self._areas(weights), weights)

    def exchanged(self, other: "Curves", swap: Array) -> tuple[Areas, Areas]:
        """The areas of both systems after their answers to the marked examples have changed sides."""
        return self._remembered(lambda: self._exchanged(other, swap), other, swap)

    def _exchanged(self, other: "Curves", swap: Array) -> tuple[Areas, Areas]:
        both, sides = self._stacked(other), (1 - swap, swap)
        return both._areas(np.concatenate(sides, axis=1)), both._areas(np.concatenate(sides[::-1], axis=1))

    def _remembered(self, make: Callable[[], T], *arguments: object) -> T:
        """What was made last for the same arguments, since several scores ask for the same areas."""
        known = self._latest[0]
        if len(known) != len(arguments) or any(a is not b for a, b in zip(known, arguments, strict=True)):
            self._latest = arguments, make()
        found: T = self._latest[1]
        return found

    def _stacked(self, other: "Curves") -> "Curves":
        """The curves of both systems' answers, one after the other; kept, since resamples come in parts."""
        if self._stack is None or self._stack[0] is not other:
            scores, golds = np.concatenate([self.scores, other.scores]), np.concatenate([self.golds, other.golds])
            self._stack = other, Curves(scores, golds)
        return self._stack[1]

    def _areas(self, weights: Array) -> Areas:
        trapezoids = np.full((self.scores.shape[1], len(weights)), np.nan)
        steps, points = trapezoids.copy(), self._points
        for first in range(0, len(weights), _BLOCK):
            rows = slice(first, first + _BLOCK)
            block = np.ascontiguousarray(weights[rows].T, dtype=np.float32)  # whole counts, so float32 is exact
            trapezoids[points.labels, rows], steps[points.labels, rows] = points.areas(block)
        return trapezoids, steps

    @cached_property
    def _points(self) -> "Points":
        return Points.of(self.scores, self.golds)


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
    def of(cls, scores: Array, golds: Array) -> "Points":
        from scipy.sparse import vstack

        labels = np.unique(golds)
        parts = [_label_points(scores[:, label], golds == label) for label in labels]
        starts = np.cumsum([0, *(part[0].shape[0] for part in parts)])[:-1]
        return cls(labels, starts, vstack([vstack(kind) for kind in zip(*parts, strict=True)], format="csr"))

    def areas(self, weights: Array) -> Areas:
        """Both areas of every label, for weights with a column per resample."""
        grown, tied, passed = np.split(self.examples @ weights, 3)
        hits, chosen = self._running(grown), self._running(passed)
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.divide(hits, np.maximum(chosen, 1), dtype=float)
            steps = np.add.reduceat(grown * precision, self.starts, axis=0)
            before = chosen - tied
            hits_before = np.where(before > 0, hits - grown, 1)  # a curve begins with precision 1
            precision = np.divide(hits_before, np.maximum(before, 1), dtype=float)
            others = np.add.reduceat(grown * precision, self.starts, axis=0)
            total = np.add.reduceat(grown, self.starts, axis=0).astype(float)
            return (steps + others) / 2 / total, steps / total

    def _running(self, numbers: Array) -> Array:
        """The sums so far along each curve."""
        sums = np.empty_like(numbers)
        for start, end in zip(self.starts, (*self.starts[1:], len(numbers)), strict=True):
            np.cumsum(numbers[start:end], axis=0, out=sums[start:end])
        return sums


def _label_points(scores: Array, is_gold: Array) -> tuple[Any, Any, Any]:
    """Which examples are the golds of each point, all of it, and all since the point before; ties make one point."""
    order = np.argsort(-scores, kind="stable")
    falling, gold = -scores[order], np.flatnonzero(is_gold[order])
    starts, heads = np.unique(np.searchsorted(falling, falling[gold], side="left"), return_index=True)
    ends = np.searchsorted(falling, falling[gold[heads]], side="right")
    tied = np.concatenate([order[start:end] for start, end in zip(starts, ends, strict=True)])
    return (
        _rows(order[gold], [*heads, len(gold)], len(order)),
        _rows(tied, [0, *np.cumsum(ends - starts)], len(order)),
        _rows(order[: ends[-1]], [0, *ends], len(order)),
    )


def _rows(examples: Array, bounds: Sequence[int], n: int) -> Any:
    """A sparse matrix whose k-th row marks the examples between two bounds."""
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

    def values(self, weights: Array) -> Array:
        return self._mean(self.curves.areas(weights))

    def exchanged(self, other: Self, swap: Array) -> tuple[Array, Array]:
        first, second = self.curves.exchanged(other.curves, swap)
        return self._mean(first), self._mean(second)

    def _mean(self, both: Areas) -> Array:
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
        return float(self._mean(self.curves.plain)[0])


def curves(golds: Sequence[str], probabilities: Sequence[Mapping[str, float]], labels: Sequence[str]) -> Curves:
    """The curves of label probabilities; a label that is not named has probability 0."""
    scores = np.array([[row.get(label, 0.0) for label in labels] for row in probabilities], dtype=float)
    index = {label: number for number, label in enumerate(labels)}
    return Curves(scores, np.array([index[gold] for gold in golds]))
