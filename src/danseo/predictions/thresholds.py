"""When to give no answer, or a label: the threshold that serves answers with gold best; needs no torch."""

from collections.abc import Callable, Sequence

import numpy as np

from danseo.metrics.answering import best_overlap
from danseo.predictions.evidence import Array, Spans

Overlap = Callable[[tuple[str, ...], str], float]


def fitted_threshold(
    golds: Sequence[tuple[str, ...]], candidates: Sequence[Spans], overlap: Overlap = best_overlap
) -> float:
    """How far "" may be above the best text of a question and this still be the answer."""
    best = [listed[0] if len(listed) > 1 else ("", -np.inf) for listed in candidates]
    margins = [listed[-1][1] - score for listed, (_, score) in zip(candidates, best, strict=True)]
    given = [overlap(gold, text) for gold, (text, _) in zip(golds, best, strict=True)]
    return best_threshold(np.array(margins), np.array(given), np.array([overlap(gold, "") for gold in golds]))


def best_threshold(margins: Array, given: Array, kept_back: Array) -> float:
    """The threshold with the highest total; of equal ones that nearest to 0.

    An answer is kept back, and earns the one number rather than the other, where its margin is above the threshold.
    """
    order = np.argsort(margins, kind="stable")
    order = order[np.isfinite(margins[order])]
    levels = margins[order]
    if not len(levels):
        return 0.0
    between = np.concatenate([[levels[0] - 1], (levels[:-1] + levels[1:]) / 2, [levels[-1] + 1], [0.0]])
    gains = np.concatenate([[0.0], np.cumsum(given[order] - kept_back[order])])
    totals = gains[np.searchsorted(levels, between, side="right")].round(9)
    best = between[totals == totals.max()]
    return float(best[np.abs(best).argmin()])


_STEPS = np.arange(1, 20) / 20


def label_threshold(chances: Array, golds: Array, metric: str) -> float:
    """From which chance on labels are answered best, in steps of 0.05: by the metric; of equal ones nearest to 0.5."""
    found = [(_quality(chances > step, golds, metric), -abs(step - 0.5), float(step)) for step in _STEPS]
    return max(found)[2]


def _quality(chosen: Array, golds: Array, metric: str) -> float:
    """Rounded, so that sums in another order decide nothing."""
    if "subset" in metric:
        return round(float((chosen == golds).all(axis=1).mean()), 9)
    hits, both = (chosen & golds).sum(axis=0), chosen.sum(axis=0) + golds.sum(axis=0)
    if "macro" in metric:
        there = both > 0
        return round(float((2 * hits[there] / both[there]).mean()), 9) if there.any() else 0.0
    return round(float(2 * hits.sum() / max(1, both.sum())), 9)
