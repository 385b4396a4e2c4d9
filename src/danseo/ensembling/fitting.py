"""Which members, and how much of each: fitted on the select half of dev only."""

from collections.abc import Callable, Sequence

import numpy as np

from danseo.ensembling.blend import Array, Blend, make_blend, shares
from danseo.errors import DanseoError
from danseo.runs.answers import Members, headline

_STEPS = (0.0, 0.25, 0.5, 2.0, 4.0)  # times the present weight; 0 leaves the member out
_PASSES = 3
_BETTER = 1e-9


class Judge:
    """The headline of weights on the select half; every set of weights is blended once."""

    def __init__(self, members: Members, method: str, on_note: Callable[[str], None] = lambda note: None) -> None:
        self.half = members.half("select")
        if not self.half.examples:
            raise DanseoError("no dev example falls into the select half, so nothing can be fitted; give weights")
        self.blend: Blend = make_blend(self.half, method)
        self.seen: dict[tuple[float, ...], float] = {}
        self.best, self.on_note = -np.inf, on_note

    def __call__(self, weights: Array) -> float:
        key = tuple((weights / weights.sum()).round(9).tolist())
        if key not in self.seen:
            score = headline(self.half.task, self.half.examples, self.blend(weights)[0])
            self.seen[key] = -np.inf if np.isnan(score) else score
            if self.seen[key] > self.best:
                self.best = self.seen[key]
                self.on_note(
                    f"fitting: {score:.2f} on the select half with weights {', '.join(f'{w:.2f}' for w in key)}"
                )
        return self.seen[key]


def fitted_weights(judge: Judge, start: Array) -> Array:
    """Climb one member at a time from the start; a change has to be strictly better."""
    weights, best = start.copy(), judge(start)
    for _ in range(_PASSES):
        before = best
        for position in np.flatnonzero(start).tolist():
            for step in _STEPS:
                tried = weights.copy()
                tried[position] = (weights[position] or start[position]) * step
                if tried.any() and judge(tried) > best + _BETTER:
                    weights, best = tried, judge(tried)
        if best <= before + _BETTER:
            break
    return shares(weights)


def greedy_weights(judge: Judge, start: Array) -> Array:
    """Begin with the best member and add, one at a time, whichever helps most; stop when none does."""
    chosen: list[int] = []
    best, left = -np.inf, list(range(len(start)))
    while left:
        scores = [judge(only(start, [*chosen, position])) for position in left]
        position = left[int(np.argmax(scores))]
        if max(scores) <= best + _BETTER:
            break
        best = max(scores)
        chosen.append(position)
        left.remove(position)
    return only(start, chosen)


def only(weights: Array, positions: Sequence[int]) -> Array:
    """The weights of some members, 0 for the others."""
    kept = np.zeros_like(weights)
    kept[list(positions)] = weights[list(positions)]
    return kept


def parse_weights(text: str | None, members: int) -> Array:
    """1,2 as numbers, one per member and not all 0; equal weights where nothing is said."""
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
