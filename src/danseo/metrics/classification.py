"""Scores of label answers: accuracy, F1 and areas under precision-recall curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from danseo.metrics.statistic import Array, Counts, class_f1, mean, micro_f1_or_zero


def accuracy(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Share of exact matches."""
    return mean([gold == answer for gold, answer in zip(golds, answers, strict=True)])


def label_macro_f1(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Mean F1 over the labels that occur in gold or answers."""
    return class_f1(np.arange(len(golds)), golds, answers, len(golds))


def relation_counts(golds: Sequence[str], answers: Sequence[str], negative: str = "no_relation") -> Array:
    """Per example: right relation, relation answered, relation in gold; the negative label is none."""
    rows = [(g == a != negative, a != negative, g != negative) for g, a in zip(golds, answers, strict=True)]
    return np.array(rows, dtype=float).reshape(-1, 3)


def relation_micro_f1(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """F1 pooled over the relations, no_relation left out; 0 when there is none on either side."""
    return Counts(relation_counts(golds, answers), micro_f1_or_zero)


def relation_precision(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Share of the answered relations that are right."""
    return Counts(relation_counts(golds, answers), lambda sums: 100 * sums[..., 0] / sums[..., 1])


def relation_recall(golds: Sequence[str], answers: Sequence[str]) -> Counts:
    """Share of the gold relations that were found."""
    return Counts(relation_counts(golds, answers), lambda sums: 100 * sums[..., 0] / sums[..., 2])


class Curves:
    """The one-against-rest precision-recall curves of label probabilities, for any weighting of the examples."""

    def __init__(self, scores: Array, golds: Array) -> None:
        self.scores, self.golds = scores, golds
        self._latest: tuple[Array, tuple[Array, Array]] | None = None

    def areas(self, weights: Array) -> tuple[Array, Array]:
        """Areas by trapezoids and by steps, a row per label; the latest are kept, since several scores ask."""
        if self._latest is None or self._latest[0] is not weights:
            columns = np.ascontiguousarray(weights.T, dtype=np.float32)  # whole counts, so float32 is exact
            labels = [self._label_areas(columns, label) for label in range(self.scores.shape[1])]
            trapezoids, steps = (np.stack(areas) for areas in zip(*labels, strict=True))
            self._latest = weights, (trapezoids, steps)
        return self._latest[1]

    def _label_areas(self, columns: Array, label: int) -> tuple[Array, Array]:
        """Both areas of one label, NaN where its gold weighs nothing.

        Recall only grows at scores that some gold example has, so the curve is needed just before and at those.
        """
        order = np.argsort(-self.scores[:, label], kind="stable")
        score, gold = self.scores[order, label], np.flatnonzero(self.golds[order] == label)
        if not len(gold):
            undefined = np.full(columns.shape[1], np.nan)
            return undefined, undefined
        first = np.searchsorted(-score, -score[gold], side="left")  # tied scores make one point
        last = np.searchsorted(-score, -score[gold], side="right")
        starts, heads = np.unique(first, return_index=True)
        hits = np.cumsum(np.add.reduceat(columns[order[gold]], heads, axis=0), axis=0)
        bounds = np.unique(np.concatenate([[0], starts, last]))
        segments = bounds[bounds < len(order)]
        chosen = np.zeros((len(segments) + 1, columns.shape[1]), dtype=np.float32)
        np.cumsum(np.add.reduceat(columns[order], segments, axis=0), axis=0, out=chosen[1:])
        before, at = (chosen[np.searchsorted(segments, edge)] for edge in (starts, last[heads]))
        hits_before = np.concatenate([np.zeros_like(hits[:1]), hits[:-1]])
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.where(at > 0, np.divide(hits, at, dtype=float), 1.0)
            precision_before = np.where(before > 0, np.divide(hits_before, before, dtype=float), 1.0)
            width = np.divide(hits - hits_before, hits[-1:], dtype=float)
        return (width * (precision + precision_before) / 2).sum(axis=0), (width * precision).sum(axis=0)

    def stacked(self, other: "Curves") -> "Curves":
        return Curves(np.concatenate([self.scores, other.scores]), np.concatenate([self.golds, other.golds]))


@dataclass(frozen=True)
class Ranking:
    """The mean area under the curves of all labels.

    The trapezoid form starts at recall 0, precision 1 and joins the points by lines, as the official code does;
    the step form is average precision. A label without gold makes the official score NaN.
    """

    curves: Curves
    trapezoid: bool = True
    only_present: bool = False

    def values(self, weights: Array) -> Array:
        areas = self.curves.areas(weights)[0 if self.trapezoid else 1]
        if self.only_present:
            present = ~np.isnan(areas)
            area: Array = np.where(present, areas, 0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
        else:
            area = areas.mean(axis=0)
        return 100 * area

    def stacked(self, other: Self) -> Self:
        return replace(self, curves=self.curves.stacked(other.curves))

    def value(self) -> float:
        return float(self.values(np.ones((1, len(self.curves.golds))))[0])


def curves(golds: Sequence[str], probabilities: Sequence[Mapping[str, float]], labels: Sequence[str]) -> Curves:
    """The curves of label probabilities; a label that is not named has probability 0."""
    scores = np.array([[row.get(label, 0.0) for label in labels] for row in probabilities], dtype=float)
    index = {label: number for number, label in enumerate(labels)}
    return Curves(scores, np.array([index[gold] for gold in golds]))
