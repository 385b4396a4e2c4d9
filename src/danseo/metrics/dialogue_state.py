"""Scores of dialogue states: whole states, and their slot values."""

from collections.abc import Sequence

import numpy as np

from danseo.metrics.statistic import Array, Counts, mean, micro_f1

State = Sequence[str]


def joint_goal(golds: Sequence[State], answers: Sequence[State]) -> Counts:
    """Return the share of turns whose state is exactly right, in any order."""
    return mean([set(gold) == set(answer) for gold, answer in zip(golds, answers, strict=True)])


def _count_values(golds: Sequence[State], answers: Sequence[State]) -> Array:
    """Return per turn: right values, answered ones (a repeated right one once, a wrong one each time), gold ones."""
    rows = []
    for gold, answer in zip(golds, answers, strict=True):
        hits = len(set(gold) & set(answer))
        rows.append((hits, hits + sum(value not in gold for value in answer), len(set(gold))))
    return np.array(rows, dtype=float).reshape(-1, 3)


def turn_f1(golds: Sequence[State], answers: Sequence[State]) -> Counts:
    """Return the official slot F1: the mean over turns of the F1 of slot values; two empty states agree."""
    hits, answered, gold = _count_values(golds, answers).T
    total = answered + gold
    return mean(np.where(total == 0, 1.0, 2 * hits / np.maximum(total, 1)))


def pooled_f1(golds: Sequence[State], answers: Sequence[State]) -> Counts:
    """Return the F1 of slot values pooled over all turns."""
    return Counts(_count_values(golds, answers), micro_f1)
