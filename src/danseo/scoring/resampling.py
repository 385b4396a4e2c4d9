"""Intervals of scores and tests of differences, by resampling examples or clusters of them."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from danseo.metrics.statistic import Array, Counts, Statistic

Key = TypeVar("Key", bound=Hashable)
OnRounds = Callable[[int], None]
"""Called with the number of new rounds."""
LEVEL = 0.95
_EQUAL = 1e-9  # points within which two differences are the same
_CHUNK = 4_000_000  # weights per chunk, which limits the memory


def number_clusters(keys: Sequence[str] | None, n: int) -> Array:
    """Return the cluster number of every example; without keys each is its own cluster."""
    if keys is None:
        return np.arange(n)
    index: dict[str, int] = {}
    return np.array([index.setdefault(key, len(index)) for key in keys])


def draw_weights(clusters: Array, rounds: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield how often each example is drawn in each resample of the clusters, in chunks of resamples."""
    n = int(clusters.max()) + 1
    for size in _split_rounds(rounds, len(clusters)):
        drawn = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        yield (counts if n == len(clusters) else counts[:, clusters]).astype(float)


def _split_rounds(rounds: int, n: int) -> Iterator[int]:
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
    """Return the scores of every resample; all statistics have the same resamples, so their differences are paired."""
    parts: dict[Key, list[Array]] = {key: [] for key in statistics}
    for weights in draw_weights(clusters, rounds, rng):
        for key, statistic in statistics.items():
            parts[key].append(statistic.values(weights))
        if on_rounds:
            on_rounds(len(weights))
    return {key: np.concatenate(values) for key, values in parts.items()}


def interval(
    resampled: Array, observed: float, statistics: Sequence[Statistic], clusters: Array, level: float = LEVEL
) -> tuple[float, float]:
    """Return the bias-corrected percentile interval of a score, or of the difference of two; NaN if it is undefined.

    Some scores, such as areas under curves, are higher on average in resamples, where examples repeat; the correction
    moves the quantiles by the distance of the observed value from the median. If no quantile reaches the observed
    value, the plain interval is centred on it. If all resamples are equal, see `unseen_interval`.
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
        low, high = np.clip([low + observed - middle, high + observed - middle], *_find_limits(statistics))
    return float(low), float(high)


def _find_limits(statistics: Sequence[Statistic]) -> tuple[float, float]:
    """Return the limits of a score, or of the difference of two."""
    lowest, highest = min(statistic.lowest for statistic in statistics), 100.0
    return (lowest - highest, highest - lowest) if len(statistics) == 2 else (lowest, highest)


def is_constant(resampled: Array) -> bool:
    """Return whether all resamples are equal: all examples score the same, or there is only one."""
    defined = resampled[~np.isnan(resampled)]
    return bool(len(defined)) and float(np.ptp(defined)) <= 1e-9


def unseen_interval(
    observed: float, statistics: Sequence[Statistic], clusters: Array, level: float = LEVEL
) -> tuple[float, float]:
    """Return the interval of a score that all examples agree on: examples that were not seen may score anything.

    For 3 of 3 right answers this is the exact binomial interval, from 29.24 to 100.
    """
    unseen = max(unseen_share(statistic, clusters, level) for statistic in statistics)
    lowest, highest = _find_limits(statistics)
    return observed - unseen * (observed - lowest), observed + unseen * (highest - observed)


def unseen_share(statistic: Statistic, clusters: Array, level: float = LEVEL) -> float:
    """Return the largest share of a score that may depend on examples unlike all that were seen.

    If their share is q, n clusters contain none of them with probability (1 - q)^n, which must be at least the tail
    of the level. They may be of all classes, or of a few: in a mean over classes, rare ones matter most.
    """
    supports = statistic.support(clusters), np.array([len(np.unique(clusters))])
    return max(_find_largest_mean(support, level) for support in supports)


def _find_largest_mean(support: Array, level: float) -> float:
    """Return the largest mean share over classes that stays unseen in all classes with the tail's probability."""
    seen = np.sort(support[support > 0]).astype(float)
    if not len(seen):
        return 1.0
    costs = np.log(seen)
    levels = (np.cumsum(seen * costs) - np.log((1 - level) / 2)) / np.cumsum(seen)  # Lagrange's multiplier
    reached = np.maximum(levels[np.flatnonzero(levels > costs)[-1]] - costs, 0)
    return float(np.mean(1 - np.exp(-reached)))


def permute_answers(
    a: Mapping[Key, Statistic],
    b: Mapping[Key, Statistic],
    clusters: Array,
    *,
    rounds: int,
    rng: np.random.Generator,
    on_rounds: OnRounds | None = None,
) -> dict[Key, Array]:
    """Return the differences of two systems in points, with their answers swapped at random, per round."""
    parts: dict[Key, list[Array]] = {key: [] for key in a}
    n = int(clusters.max()) + 1
    for size in _split_rounds(rounds, 4 * len(clusters)):
        drawn = rng.integers(0, 2, (size, n))
        swap = (drawn if n == len(clusters) else drawn[:, clusters]).astype(float)
        for key in a:
            first, second = a[key].swap_answers(b[key], swap)
            parts[key].append(np.abs(second - first))
        if on_rounds:
            on_rounds(size)
    return {key: np.concatenate(values) for key, values in parts.items()}


def permutation_p(permuted: Array, observed: float) -> float:
    """Return how often swapping the two systems' answers at random gives a larger difference than the observed one.

    Equal differences count half (the mid-p value): counts of examples move in steps, and counting steps in full
    would find too few true differences. No difference at all has p = 1.
    """
    if np.isnan(observed):
        return float("nan")
    if abs(observed) <= _EQUAL:
        return 1.0
    excess = permuted - abs(observed)
    extreme = float((excess > _EQUAL).sum() + (np.abs(excess) <= _EQUAL).sum() / 2)
    return min(1.0, (extreme + 1) / (len(permuted) + 1))


def difference_interval(
    permuted: Array, observed: float, statistics: Sequence[Statistic], clusters: Array, level: float = LEVEL
) -> tuple[float, float]:
    """Return the interval of a difference that agrees with permutation_p: 0 is outside if p is below 1 - level.

    If every example scores the same for both systems, see `unseen_interval`.
    """
    if np.isnan(observed) or np.isnan(permuted).all():
        return float("nan"), float("nan")
    if abs(observed) <= _EQUAL and np.nanmax(permuted) <= _EQUAL:
        return unseen_interval(observed, statistics, clusters, level)
    margin = critical_difference(permuted, level)
    low, high = np.clip([observed - margin, observed + margin], *_find_limits(statistics))
    return float(np.round(low, 9) + 0.0), float(np.round(high, 9) + 0.0)


def critical_difference(permuted: Array, level: float = LEVEL) -> float:
    """Return the largest difference whose permutation_p is not below 1 - level; between two steps, their middle."""
    values, counts = np.unique(np.round(permuted[~np.isnan(permuted)], 9), return_counts=True)
    above = counts.sum() - np.cumsum(counts)
    rounds = len(permuted) + 1
    is_within = (above + counts / 2 + 1) / rounds >= 1 - level
    if not is_within.any():  # most rounds are undefined
        return 0.0
    last = int(np.flatnonzero(is_within)[-1])
    if (above[last] + 1) / rounds < 1 - level:  # p is below it right after this value
        return float(values[last])
    return float("inf") if last + 1 == len(values) else float(values[last : last + 2].mean())


def mcnemar_p(a: Statistic, b: Statistic, clusters: Array) -> float | None:
    """Return p of McNemar's exact test; None for scores that are no share of independent right examples."""
    if not (isinstance(a, Counts) and isinstance(b, Counts) and a.is_mean_of_hits() and b.is_mean_of_hits()):
        return None
    if len(np.unique(clusters)) < len(clusters):
        return None
    from scipy.stats import binomtest

    only_a = int(((a.table[:, 0] == 1) & (b.table[:, 0] == 0)).sum())
    only_b = int(((a.table[:, 0] == 0) & (b.table[:, 0] == 1)).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def correct_holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number by Holm's step-down rule; NaN stays NaN."""
    order = sorted((i for i, p in enumerate(p_values) if not np.isnan(p)), key=lambda i: p_values[i])
    corrected, lowest = [float(p) for p in p_values], 0.0
    for rank, position in enumerate(order):
        lowest = max(lowest, min(1.0, (len(order) - rank) * p_values[position]))
        corrected[position] = lowest
    return corrected


def group_ties(names: Sequence[str], tied: set[frozenset[str]]) -> dict[str, str]:
    """Return letters per system: two systems share a letter exactly if they are tied."""
    near = [sum(1 << k for k, other in enumerate(names) if frozenset((name, other)) in tied) for name in names]
    groups = sorted(_list_bits(group) for group in _find_tied_sets(near))
    letters = "abcdefghijklmnopqrstuvwxyz"
    marks: list[list[str]] = [[] for _ in names]
    for k, group in enumerate(groups):
        for position in group:
            marks[position].append(letters[k] if k < 26 else f"{letters[k % 26]}{k // 26}")
    return {name: ("" if len(groups) <= 26 else " ").join(own) for name, own in zip(names, marks, strict=True)}


def _find_tied_sets(near: Sequence[int]) -> Iterator[int]:
    """Yield sets of systems, all tied with each other, that together contain every tie; systems are bits.

    The minimum takes exponential time. Here every tie that no set contains yet starts one, which grows by the system
    that adds the most such ties, best first; if ties follow the ranking, this is the minimum.
    """
    uncovered = list(near)
    for position, others in enumerate(near):
        if not others:
            yield 1 << position
        while uncovered[position]:
            group, candidates = 1 << position, others
            while candidates:
                gains = [(ties & group).bit_count() for ties in uncovered]
                added = max(_list_bits(candidates), key=gains.__getitem__)
                group, candidates = group | 1 << added, candidates & near[added]
            for member in _list_bits(group):
                uncovered[member] &= ~group
            yield group


def _list_bits(bits: int) -> list[int]:
    return [position for position in range(bits.bit_length()) if bits >> position & 1]
