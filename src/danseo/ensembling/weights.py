"""Weights of members: parsed, fitted or selected greedily, on the select split of dev only."""

from collections.abc import Callable, Sequence

import numpy as np

from danseo.errors import DanseoError
from danseo.runs.predictions import MemberSet
from danseo.scoring.score import compute_headline
from danseo.tasktypes.combination import normalize_weights
from danseo.tasktypes.decoding.arrays import Array

_STEPS = (0.0, 0.25, 0.5, 2.0, 4.0)  # times the present weight; 0 leaves the member out
_PASSES = 3
_BETTER = 1e-9


class WeightScorer:
    """Returns the headline of weights on the select split; each set of weights is combined once."""

    def __init__(self, members: MemberSet, method: str, on_note: Callable[[str], None] = lambda note: None) -> None:
        self.select = members.select_split("select")
        if not self.select.examples:
            raise DanseoError("no dev example is in the select split, so nothing can be fitted; give weights")
        self.combiner = members.task.type.make_combiner(self.select, method)
        self.seen: dict[tuple[float, ...], float] = {}
        self.best, self.on_note = -np.inf, on_note

    def __call__(self, weights: Array) -> float:
        key = tuple((weights / weights.sum()).round(9).tolist())
        if key not in self.seen:
            score = compute_headline(self.select.task, self.select.examples, self.combiner(weights)[0])
            self.seen[key] = -np.inf if np.isnan(score) else score
            if self.seen[key] > self.best:
                self.best = self.seen[key]
                self.on_note(
                    f"fitting: {score:.2f} on the select split with weights {', '.join(f'{w:.2f}' for w in key)}"
                )
        return self.seen[key]


def fit_weights(scorer: WeightScorer, start: Array) -> Array:
    """Return weights found by coordinate ascent from the start; a change must be strictly better."""
    weights, best = start.copy(), scorer(start)
    for _ in range(_PASSES):
        before = best
        for position in np.flatnonzero(start).tolist():
            for step in _STEPS:
                tried = weights.copy()
                tried[position] = (weights[position] or start[position]) * step
                if tried.any() and scorer(tried) > best + _BETTER:
                    weights, best = tried, scorer(tried)
        if best <= before + _BETTER:
            break
    return normalize_weights(weights)


def select_greedily(scorer: WeightScorer, start: Array) -> Array:
    """Return the weights of the best member and of those that, added one by one, improve the score most."""
    chosen: list[int] = []
    best, others = -np.inf, list(range(len(start)))
    while others:
        scores = [scorer(keep_weights(start, [*chosen, position])) for position in others]
        position = others[int(np.argmax(scores))]
        if max(scores) <= best + _BETTER:
            break
        best = max(scores)
        chosen.append(position)
        others.remove(position)
    return keep_weights(start, chosen)


def keep_weights(weights: Array, positions: Sequence[int]) -> Array:
    """Return the weights of some members, 0 for the others."""
    kept = np.zeros_like(weights)
    kept[list(positions)] = weights[list(positions)]
    return kept


def parse_weights(text: str | None, members: int) -> Array:
    """Return weights such as 1,2 as numbers, one per member; equal weights for None and "fit"."""
    if text in (None, "fit"):
        return np.ones(members)
    try:
        weights = np.array([float(part) for part in str(text).split(",")])
    except ValueError:
        raise DanseoError(f"--weights {text}: write fit, or a number per run, such as 1,2") from None
    if len(weights) != members:
        raise DanseoError(f"--weights {text}: {len(weights)} numbers for {members} runs; write one per run")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise DanseoError(f"--weights {text}: weights should be 0 or more, and not all 0")
    return weights
