"""How sure one can be of a score, and whether two systems differ: resampling over examples or clusters."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np

from danseo.metrics.statistic import Array, Counts, Statistic

Key = TypeVar("Key", bound=Hashable)
OnRounds = Callable[[int], None]
"""Told how many more rounds are done."""
LEVEL = 0.95
_CHUNK = 4_000_000  # weights held at a time, so that memory stays small whatever the number of examples


def clusters_of(keys: Sequence[str] | None, n: int) -> Array:
    """The cluster number of every example; without keys each is its own."""
    if keys is None:
        return np.arange(n)
    index: dict[str, int] = {}
    return np.array([index.setdefault(key, len(index)) for key in keys])


def bootstrap_weights(clusters: Array, rounds: int, rng: np.random.Generator) -> Iterator[Array]:
    """How often each example is drawn in each resample of the clusters, some resamples at a time."""
    n = int(clusters.max()) + 1
    for size in _chunks(rounds, len(clusters)):
        drawn = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        yield (counts if n == len(clusters) else counts[:, clusters]).astype(float)


def _chunks(rounds: int, n: int) -> Iterator[int]:
    size = max(1, _CHUNK // max(n, 1))
    for done in range(0, rounds, size):
        yield min(size, rounds - done)


def bootstrap(
    statistics: Mapping[Key, Statistic],
    clusters: Array,
    *,
    rounds: int,
    rng: np.random.Generator,
    on_rounds: OnRounds | None = None,
) -> dict[Key, Array]:
    """The scores of every resample; all statistics see the same resamples, so their differences are paired."""
    parts: dict[Key, list[Array]] = {key: [] for key in statistics}
    for weights in bootstrap_weights(clusters, rounds, rng):
        for key, statistic in statistics.items():
            parts[key].append(statistic.values(weights))
        if on_rounds:
            on_rounds(len(weights))
    return {key: np.concatenate(values) for key, values in parts.items()}


def interval(
    resampled: Array, observed: float, statistics: Sequence[Statistic], clusters: Array, level: float = LEVEL
) -> tuple[float, float]:
    """The bias-corrected percentile interval of a score, or of the difference of two; NaN where it is undefined.

    Some scores, such as areas under curves, come out higher on average in resamples, where examples repeat;
    the correction moves the quantiles by as much as the observed value is off the middle of the resamples. Where it is
    so far off that no quantile reaches it, the plain interval is moved there as it is.
    Where all resamples are the same, they say nothing, and the interval is that of what may have been missed.
    """
    defined = resampled[~np.isnan(resampled)]
    if not len(defined) or np.isnan(observed):
        return float("nan"), float("nan")
    if is_constant(defined):
        return unseen_interval(observed, statistics, clusters, level)
    below = (np.sum(defined < observed - 1e-9) + np.sum(defined <= observed + 1e-9)) / (2 * len(defined))
    normal = NormalDist()
    shift = normal.inv_cdf(float(np.clip(below, 1 / len(defined), 1 - 1 / len(defined)))) if len(defined) > 2 else 0.0
    ends = [normal.cdf(2 * shift + normal.inv_cdf(tail)) for tail in ((1 - level) / 2, (1 + level) / 2)]
    low, high = np.quantile(defined, ends)
    if not low - 1e-9 <= observed <= high + 1e-9:
        low, middle, high = np.quantile(defined, [(1 - level) / 2, 0.5, (1 + level) / 2])
        low, high = np.clip([low + observed - middle, high + observed - middle], *_ends(statistics))
    return float(low), float(high)


def _ends(statistics: Sequence[Statistic]) -> tuple[float, float]:
    """Between what a score, or the difference of two, lies."""
    lowest, highest = min(statistic.lowest for statistic in statistics), 100.0
    return (lowest - highest, highest - lowest) if len(statistics) == 2 else (lowest, highest)


def is_constant(resampled: Array) -> bool:
    """Whether there was nothing to resample: all examples count the same, or there is only one."""
    defined = resampled[~np.isnan(resampled)]
    return bool(len(defined)) and float(np.ptp(defined)) <= 1e-9


def unseen_interval(
    observed: float, statistics: Sequence[Statistic], clusters: Array, level: float = LEVEL
) -> tuple[float, float]:
    """The interval of a number that all examples agree on: the share of them that may have been missed can be anything.

    For 3 of 3 right answers that is the exact binomial interval, from 29.24 to 100.
    """
    unseen = max(unseen_share(statistic, clusters, level) for statistic in statistics)
    lowest, highest = _ends(statistics)
    return observed - unseen * (observed - lowest), observed + unseen * (highest - observed)


def unseen_share(statistic: Statistic, clusters: Array, level: float = LEVEL) -> float:
    """The largest part of a score that may rest on examples unlike every one that was seen.

    If their share is q, n clusters show none of them with probability (1 - q)^n, which should be no rarer than the tail
    of the level. They may be of all classes, or of a few: in a mean over classes, rare ones carry most of it.
    """
    parts = statistic.support(clusters)
    return max(_largest_mean(parts, level), _largest_mean(np.array([len(np.unique(clusters))]), level))


def _largest_mean(support: Array, level: float) -> float:
    """The largest mean of the classes' shares for which nothing shows in any class with the probability of the tail."""
    seen = np.sort(support[support > 0]).astype(float)
    if not len(seen):
        return 1.0
    costs = np.log(seen)
    levels = (np.cumsum(seen * costs) - np.log((1 - level) / 2)) / np.cumsum(seen)  # Lagrange's multiplier
    reached = np.maximum(levels[np.flatnonzero(levels > costs)[-1]] - costs, 0)
    return float(np.mean(1 - np.exp(-reached)))


def permutation_p(
    a: Mapping[Key, Statistic],
    b: Mapping[Key, Statistic],
    clusters: Array,
    *,
    rounds: int,
    rng: np.random.Generator,
    on_rounds: OnRounds | None = None,
) -> dict[Key, float]:
    """How often exchanging the two systems' answers at random gives a larger difference than the observed one.

    Equal differences count half (the mid-p value): counts of examples move in steps, and counting steps in full
    would find too few true differences. No difference at all has p = 1.
    """
    observed = {key: abs(b[key].value() - a[key].value()) for key in a}
    extreme = dict.fromkeys(a, 0.0)
    n = int(clusters.max()) + 1
    for size in _chunks(rounds, 4 * len(clusters)):
        drawn = rng.integers(0, 2, (size, n))
        swap = (drawn if n == len(clusters) else drawn[:, clusters]).astype(float)
        for key in a:
            first, second = a[key].exchanged(b[key], swap)
            excess = np.abs(second - first) - observed[key]
            extreme[key] += float((excess > 1e-9).sum() + (np.abs(excess) <= 1e-9).sum() / 2)
        if on_rounds:
            on_rounds(size)
    return {key: _p(extreme[key], observed[key], rounds) for key in a}


def _p(extreme: float, observed: float, rounds: int) -> float:
    if np.isnan(observed):
        return float("nan")
    return 1.0 if observed <= 1e-9 else min(1.0, (extreme + 1) / (rounds + 1))


def mcnemar_p(a: Statistic, b: Statistic, clusters: Array) -> float | None:
    """The exact test on the examples that only one system got right; only for shares of independent examples."""
    if not (isinstance(a, Counts) and isinstance(b, Counts) and a.is_mean_of_hits() and b.is_mean_of_hits()):
        return None
    if len(np.unique(clusters)) < len(clusters):
        return None
    from scipy.stats import binomtest

    only_a = int(((a.table[:, 0] == 1) & (b.table[:, 0] == 0)).sum())
    only_b = int(((a.table[:, 0] == 0) & (b.table[:, 0] == 1)).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """P values corrected for their number by Holm's step-down rule; an undefined one stays undefined."""
    order = sorted((i for i, p in enumerate(p_values) if not np.isnan(p)), key=lambda i: p_values[i])
    corrected, floor = [float(p) for p in p_values], 0.0
    for rank, position in enumerate(order):
        floor = max(floor, min(1.0, (len(order) - rank) * p_values[position]))
        corrected[position] = floor
    return corrected


def tie_groups(names: Sequence[str], tied: set[frozenset[str]]) -> dict[str, str]:
    """Letters per system: two systems share a letter exactly when they are tied with each other."""
    near = [_bits(k for k, other in enumerate(names) if frozenset((name, other)) in tied) for name in names]
    groups = sorted(_positions(group) for group in _tied_groups(near))
    letters = "abcdefghijklmnopqrstuvwxyz"
    marks: list[list[str]] = [[] for _ in names]
    for k, group in enumerate(groups):
        for position in group:
            marks[position].append(letters[k] if k < 26 else f"{letters[k % 26]}{k // 26}")
    return {name: ("" if len(groups) <= 26 else " ").join(own) for name, own in zip(names, marks, strict=True)}


def _tied_groups(near: Sequence[int]) -> Iterator[int]:
    """Sets of systems, all tied with each other, that together hold every tie; systems are bits.

    The fewest such sets take exponential time to find. Here every tie that no set holds yet begins one, which grows by
    whoever brings the most such ties, best first; where ties follow the ranking, these are the fewest.
    """
    loose = list(near)
    for position, others in enumerate(near):
        if not others:
            yield 1 << position
        while loose[position]:
            group, open_ = 1 << position, others
            while open_:
                brought = [(ties & group).bit_count() for ties in loose]
                added = max(_positions(open_), key=brought.__getitem__)
                group, open_ = group | 1 << added, open_ & near[added]
            for member in _positions(group):
                loose[member] &= ~group
            yield group


def _bits(positions: Iterable[int]) -> int:
    return sum(1 << position for position in positions)


def _positions(bits: int) -> list[int]:
    return [position for position in range(bits.bit_length()) if bits >> position & 1]


def generator(seed: int) -> np.random.Generator:
    """The source of randomness for a seed."""
    return np.random.default_rng(seed)


def as_json_number(value: Any) -> float | None:
    """NaN has no place in JSON: it becomes null."""
    return None if value is None or np.isnan(value) else float(value)
