"""Compare systems that were run with several seeds: examples and seeds are both sources of noise.

The score of a system is the mean over its seeds. Its variance has two parts: that over examples (resampled, all runs
on the same resamples), and that over seeds. The interaction of seeds and examples is in both, so it is counted once.
With few seeds their variance is itself uncertain: Student's t with Satterthwaite's degrees of freedom.
"""

import math
import warnings
from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.files import to_finite
from danseo.metrics.statistic import Array, Statistic
from danseo.scoring.compare import ALPHA, Paired
from danseo.scoring.resampling import OnRounds, bootstrap, correct_holm, is_constant, unseen_share

POWER = 0.8
_MOST = 200  # seeds that are tried
_BAND = 0.8  # confidence of the range of seeds, given the variance over seeds


@dataclass(frozen=True)
class System:
    """The scores of the runs of one system in one metric."""

    values: Array
    """Score per seed."""
    resampled: Array
    """Seeds x resamples of the examples."""
    unseen: float = 0.0
    """The share of all examples that may be unlike those that were seen."""
    lowest: float = 0.0
    """The least that the score can be; the most is 100."""

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def seeds(self) -> int:
        return len(self.values)

    @property
    def spread(self) -> float:
        """The variance over seeds."""
        return float(self.values.var(ddof=1))

    @property
    def interaction_variance(self) -> float:
        """The part of this variance that is the interaction with examples: seeds err on different ones."""
        deviations = self.resampled - self.resampled.mean(axis=0)
        return float(_variance(deviations).mean() * self.seeds / (self.seeds - 1))

    @property
    def own(self) -> float:
        """The part that would remain with infinitely many examples."""
        return self.scale_own(1.0)

    def scale_own(self, factor: float) -> float:
        """Return this part if the true variance over seeds is a multiple of the observed one."""
        return max(0.0, factor * self.spread - self.interaction_variance)


@dataclass(frozen=True)
class SeedDifference(Paired):
    """A difference over examples and seeds."""

    from_examples: float
    """Standard error from the choice of examples."""
    from_seeds: float
    """Standard error from the choice of seeds."""
    needed: "NeededSeeds | None"
    """If the difference is not significant and the answers are not the same."""

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.as_common_dict("p"),
            "error_from_examples": to_finite(self.from_examples),
            "error_from_seeds": to_finite(self.from_seeds),
            "significant": self.is_significant,
            "identical_answers": self.identical,
            "seeds_needed": self.needed.as_dict() if self.needed else None,
        }


@dataclass(frozen=True)
class NeededSeeds:
    """Seeds per system with which the observed difference is significant in four of five studies, if it is true."""

    seeds: int | None
    low: int | None
    high: int | None
    """The range for a small and a large variance over seeds; None if no number is enough."""

    def as_dict(self) -> dict[str, Any]:
        return {"seeds": self.seeds, "low": self.low, "high": self.high, "power": POWER, "band": _BAND}

    def as_text(self) -> str:
        """Return the number with its range: about 6 (3 – 20)."""
        if self.seeds is None and self.low is None:
            return f"over {_MOST}: more examples would help more"
        show = [f"over {_MOST}" if number is None else str(number) for number in (self.seeds, self.low, self.high)]
        return f"about {show[0]} ({show[1]} – {show[2]})"


def compare_over_seeds(
    systems: Mapping[str, Sequence[Mapping[str, Statistic]]],
    clusters: Array,
    *,
    rounds: int = 2000,
    seed: int = 0,
    identical: Container[tuple[str, str, str]] = (),
    on_rounds: OnRounds | None = None,
) -> tuple[dict[str, dict[str, System]], list[SeedDifference]]:
    """Compare every pair of systems in every metric; a system is the statistics of its seeds.

    Identical has the metrics and pairs whose runs gave the same answers.
    """
    for name, runs in systems.items():
        if len(runs) < 2:
            raise DanseoError(f"--over seeds: {name} has one run; compare two or more seeds")
    flat = {(n, k, id_): s for n, runs in systems.items() for k, m in enumerate(runs) for id_, s in m.items()}
    resampled = bootstrap(flat, clusters, rounds=rounds, rng=np.random.default_rng(seed), on_rounds=on_rounds)
    metrics = list(next(iter(systems.values()))[0])
    compared = {
        id_: {
            name: _make_system(
                [run[id_] for run in runs], [resampled[name, k, id_] for k in range(len(runs))], clusters
            )
            for name, runs in systems.items()
        }
        for id_ in metrics
    }
    differences: list[SeedDifference] = []
    for id_, by_name in compared.items():
        tested = [_test_difference(by_name[a], by_name[b]) for a, b in combinations(by_name, 2)]
        corrected = correct_holm([test.p for test in tested])
        for (a, b), test, p_holm in zip(combinations(by_name, 2), tested, corrected, strict=True):
            is_same = (id_, a, b) in identical
            needed = None if is_same or p_holm < ALPHA else find_needed_seeds(by_name[a], by_name[b])
            interval = (0.0, 0.0) if is_same else test.interval
            numbers = (test.value, *interval, test.p, p_holm, *test.errors)
            differences.append(SeedDifference(id_, a, b, *numbers, needed, identical=is_same))
    return compared, differences


def compare_with_base(
    systems: Mapping[str, Sequence[Mapping[str, Statistic]]],
    base: str,
    metric: str,
    clusters: Array,
    *,
    rounds: int = 2000,
    seed: int = 0,
) -> tuple[dict[str, System], list[SeedDifference]]:
    """Compare every system with the base in one metric; Holm's correction is over these comparisons alone."""
    flat = {(name, k): run[metric] for name, runs in systems.items() for k, run in enumerate(runs)}
    resampled = bootstrap(flat, clusters, rounds=rounds, rng=np.random.default_rng(seed))
    compared = {
        name: _make_system([run[metric] for run in runs], [resampled[name, k] for k in range(len(runs))], clusters)
        for name, runs in systems.items()
    }
    others = [name for name in compared if name != base]
    tested = [_test_difference(compared[base], compared[name]) for name in others]
    differences = [
        SeedDifference(metric, base, name, test.value, *test.interval, test.p, p_holm, *test.errors, None)
        for name, test, p_holm in zip(others, tested, correct_holm([test.p for test in tested]), strict=True)
    ]
    return compared, differences


def _make_system(runs: Sequence[Statistic], resampled: Sequence[Array], clusters: Array) -> System:
    values = np.array([run.value() for run in runs])
    unseen = max(unseen_share(run, clusters) for run in runs)
    return System(values, np.array(resampled), unseen, runs[0].lowest)


@dataclass(frozen=True)
class MeanDifference:
    """A difference of means with the variance of its parts, for Student's t-test."""

    value: float
    examples: float
    """Variance over examples, with the interaction of seeds and examples."""
    seeds: float
    """Variance over seeds alone."""
    freedom: float

    @property
    def p(self) -> float:
        from scipy.stats import t

        error = math.sqrt(self.examples + self.seeds)
        if math.isnan(self.value) or math.isnan(error):
            return math.nan
        if error < 1e-12:
            return 1.0 if abs(self.value) < 1e-9 else 0.0
        return float(2 * t.sf(abs(self.value) / error, self.freedom))

    @property
    def interval(self) -> tuple[float, float]:
        from scipy.stats import t

        margin = float(t.ppf(1 - ALPHA / 2, self.freedom)) * math.sqrt(self.examples + self.seeds)
        return self.value - margin, self.value + margin

    @property
    def errors(self) -> tuple[float, float]:
        return math.sqrt(self.examples), math.sqrt(self.seeds)


def _variance(values: Any) -> Any:
    """Return the variance of the defined values along the last axis; NaN, without a warning, for fewer than two."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanvar(values, axis=-1, ddof=1)


def _test_difference(a: System, b: System) -> MeanDifference:
    examples = _compute_example_variance(a, b)
    seeds = a.own / a.seeds + b.own / b.seeds
    return MeanDifference(b.mean - a.mean, examples, seeds, _compute_freedom(examples + seeds, a, b))


def _compute_example_variance(a: System, b: System) -> float:
    """Return the variance over examples; if they all score the same, that of examples that were not seen."""
    gap = b.resampled.mean(axis=0) - a.resampled.mean(axis=0)
    if not is_constant(gap):
        return float(_variance(gap))
    farthest = 100 - min(a.lowest, b.lowest) + abs(b.mean - a.mean)
    return float((max(a.unseen, b.unseen) * farthest / NormalDist().inv_cdf(1 - ALPHA / 2)) ** 2)


def _compute_freedom(total: float, a: System, b: System) -> float:
    """Return Satterthwaite's degrees of freedom: few for few seeds, many if the variance over examples dominates."""
    parts = sum((system.spread / system.seeds) ** 2 / (system.seeds - 1) for system in (a, b))
    least = min(a.seeds, b.seeds) - 1
    return max(float(least), min(1e6, total**2 / parts)) if parts > 0 else 1e6


def find_needed_seeds(a: System, b: System) -> NeededSeeds:
    """Return the seeds that are enough for the observed difference, and for less and more variance over seeds."""
    from scipy.stats import chi2

    freedom = a.seeds + b.seeds - 2
    tails = [chi2.ppf(q, freedom) / freedom for q in ((1 + _BAND) / 2, 0.5, (1 - _BAND) / 2)]
    low, seeds, high = (_find_seeds(a, b, 1 / tail if k != 1 else 1.0) for k, tail in enumerate(tails))
    return NeededSeeds(seeds, low, high)


def _find_seeds(a: System, b: System, factor: float) -> int | None:
    """Return the smallest number of seeds per system that is enough; more seeds are never worse."""
    low = bisect_left(range(2, _MOST + 1), True, key=lambda seeds: _are_enough(a, b, factor, seeds)) + 2
    return low if low <= _MOST else None


def _are_enough(a: System, b: System, factor: float, seeds: int) -> bool:
    """Return whether the observed difference is significant with this many seeds and a multiple of their variance."""
    from scipy.stats import t

    lasting = max(
        0.0, _compute_example_variance(a, b) - a.interaction_variance / a.seeds - b.interaction_variance / b.seeds
    )
    varying = a.scale_own(factor) + b.scale_own(factor) + a.interaction_variance + b.interaction_variance
    total, part = lasting + varying / seeds, varying / 2 / seeds
    freedom = max(seeds - 1, min(1e6, total**2 / (2 * part**2 / (seeds - 1)))) if part > 0 else 1e6
    reach = float(t.ppf(1 - ALPHA / 2, freedom) + t.ppf(POWER, freedom))
    return abs(b.mean - a.mean) >= reach * math.sqrt(total)
