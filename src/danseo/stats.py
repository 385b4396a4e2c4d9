"""How sure one can be of a score, and whether two systems differ: resampling over examples or clusters."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np

from danseo.metrics.statistic import Array, Counts, Statistic

Key = TypeVar("Key", bound=Hashable)
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
    statistics: Mapping[Key, Statistic], clusters: Array, *, rounds: int, rng: np.random.Generator
) -> dict[Key, Array]:
    """The scores of every resample; all statistics see the same resamples, so their differences are paired."""
    parts: dict[Key, list[Array]] = {key: [] for key in statistics}
    for weights in bootstrap_weights(clusters, rounds, rng):
        for key, statistic in statistics.items():
            parts[key].append(statistic.values(weights))
    return {key: np.concatenate(values) for key, values in parts.items()}


def interval(resampled: Array, observed: float, level: float = LEVEL) -> tuple[float, float]:
    """The bias-corrected percentile interval; NaN where the score is undefined.

    Some scores, such as areas under curves, come out higher on average in resamples, where examples repeat;
    the correction moves the quantiles by as much as the observed value is off the middle of the resamples.
    """
    defined = resampled[~np.isnan(resampled)]
    if not len(defined) or np.isnan(observed):
        return float("nan"), float("nan")
    below = (np.sum(defined < observed - 1e-9) + np.sum(defined <= observed + 1e-9)) / (2 * len(defined))
    normal = NormalDist()
    shift = normal.inv_cdf(float(np.clip(below, 1 / len(defined), 1 - 1 / len(defined)))) if len(defined) > 2 else 0.0
    ends = [normal.cdf(2 * shift + normal.inv_cdf(tail)) for tail in ((1 - level) / 2, (1 + level) / 2)]
    low, high = np.quantile(defined, ends)
    return float(low), float(high)


def permutation_p(
    a: Mapping[Key, Statistic], b: Mapping[Key, Statistic], clusters: Array, *, rounds: int, rng: np.random.Generator
) -> dict[Key, float]:
    """How often exchanging the two systems' answers at random gives a larger difference than the observed one.

    Equal differences count half (the mid-p value): counts of examples move in steps, and counting steps in full
    would find too few true differences. No difference at all has p = 1.
    """
    observed = {key: abs(b[key].value() - a[key].value()) for key in a}
    both = {key: a[key].stacked(b[key]) for key in a}
    extreme = dict.fromkeys(a, 0.0)
    for size in _chunks(rounds, 4 * len(clusters)):
        swap = rng.integers(0, 2, (size, int(clusters.max()) + 1))[:, clusters].astype(float)
        weights = np.concatenate([np.concatenate([1 - swap, swap], axis=1), np.concatenate([swap, 1 - swap], axis=1)])
        for key, statistic in both.items():
            first, second = np.split(statistic.values(weights), 2)
            excess = np.abs(second - first) - observed[key]
            extreme[key] += float((excess > 1e-9).sum() + (np.abs(excess) <= 1e-9).sum() / 2)
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
    for rank, place in enumerate(order):
        floor = max(floor, min(1.0, (len(order) - rank) * p_values[place]))
        corrected[place] = floor
    return corrected


def tie_groups(names: Sequence[str], tied: set[frozenset[str]]) -> dict[str, str]:
    """Letters per system: two systems share a letter exactly when they are tied with each other."""
    groups = sorted(_cliques(set(), list(names), [], tied), key=lambda group: [n not in group for n in names])
    letters = "abcdefghijklmnopqrstuvwxyz"
    marks = [letters[k] if k < 26 else f"{letters[k % 26]}{k // 26}" for k in range(len(groups))]
    return {name: "".join(m for m, group in zip(marks, groups, strict=True) if name in group) for name in names}


def _cliques(chosen: set[str], open_: list[str], closed: list[str], tied: set[frozenset[str]]) -> list[set[str]]:
    """The largest sets of systems that are all tied with each other (Bron and Kerbosch)."""
    if not open_ and not closed:
        return [chosen]
    found: list[set[str]] = []
    while open_:
        name = open_[0]
        near = [[other for other in side if frozenset((name, other)) in tied] for side in (open_, closed)]
        found += _cliques(chosen | {name}, near[0], near[1], tied)
        open_, closed = open_[1:], [*closed, name]
    return found


def generator(seed: int) -> np.random.Generator:
    """The source of randomness for a seed."""
    return np.random.default_rng(seed)


def as_json_number(value: Any) -> float | None:
    """NaN has no place in JSON: it becomes null."""
    return None if value is None or np.isnan(value) else float(value)
