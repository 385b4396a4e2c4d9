"""Thresholds fitted on answers with gold: when a question has no answer, and when a text has a label."""

from collections.abc import Callable, Sequence

import numpy as np

from danseo.metrics.question_answering import best_overlap
from danseo.tasktypes.decoding.arrays import Array

Candidates = list[tuple[str, float]]
"""The best answers to a question with their scores, and at the end "" with the score of no answer."""
Overlap = Callable[[tuple[str, ...], str], float]
_STEPS = np.arange(1, 20) / 20


def fit_no_answer_threshold(
    golds: Sequence[tuple[str, ...]], candidates: Sequence[Candidates], overlap: Overlap = best_overlap
) -> float:
    """Return by how much the score of "" may exceed that of the best text before the answer is ""."""
    best = [texts[0] if len(texts) > 1 else ("", -np.inf) for texts in candidates]
    margins = [texts[-1][1] - score for texts, (_, score) in zip(candidates, best, strict=True)]
    answered = [overlap(gold, text) for gold, (text, _) in zip(golds, best, strict=True)]
    return choose_threshold(np.array(margins), np.array(answered), np.array([overlap(gold, "") for gold in golds]))


def choose_threshold(margins: Array, answered: Array, unanswered: Array) -> float:
    """Return the threshold with the highest total score; of equal ones that nearest to 0.

    An example scores as unanswered if its margin is above the threshold, else as answered.
    """
    order = np.argsort(margins, kind="stable")
    order = order[np.isfinite(margins[order])]
    levels = margins[order]
    if not len(levels):
        return 0.0
    thresholds = np.concatenate([[levels[0] - 1], (levels[:-1] + levels[1:]) / 2, [levels[-1] + 1], [0.0]])
    gains = np.concatenate([[0.0], np.cumsum(answered[order] - unanswered[order])])
    totals = gains[np.searchsorted(levels, thresholds, side="right")].round(9)
    best = thresholds[totals == totals.max()]
    return float(best[np.abs(best).argmin()])


def fit_label_threshold(probabilities: Array, golds: Array, average: str) -> float:
    """Return the threshold of label probabilities, in steps of 0.05, with the best score; of equal ones nearest to 0.5.

    The score is the F1 of all labels pooled; for average = macro its mean over labels, for subset the exact match.
    """
    return float(max(_STEPS, key=lambda step: (_score_labels(probabilities > step, golds, average), -abs(step - 0.5))))


def _score_labels(chosen: Array, golds: Array, average: str) -> float:
    """Return the score, rounded so that the order of sums decides nothing."""
    if average == "subset":
        return round(float((chosen == golds).all(axis=1).mean()), 9)
    hits, both = (chosen & golds).sum(axis=0), chosen.sum(axis=0) + golds.sum(axis=0)
    if average == "macro":
        present = both > 0
        return round(float((2 * hits[present] / both[present]).mean()), 9) if present.any() else 0.0
    return round(float(2 * hits.sum() / max(1, both.sum())), 9)
