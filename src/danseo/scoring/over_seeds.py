"""Compare systems that were run with several seeds: examples and seeds are both sources of noise.

A score of a system is the mean over its seeds. How far such a mean is off has two parts: other examples would have been
scored differently (resampled, as always, all runs on the same resamples), and other seeds would have been trained
differently (seen in the spread over the seeds at hand). What seeds and examples do together shows in both, so it is
counted once. With few seeds their spread is itself uncertain: Student's t with Satterthwaite's degrees of freedom.
"""

import math
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.metrics.statistic import Array, Statistic
from danseo.scoring.compare import ALPHA, Paired
from danseo.scoring.resampling import OnRounds, as_json_number, bootstrap, generator, holm, is_constant, unseen_share

POWER = 0.8
_MOST = 200  # seeds; more is no answer
_BAND = 0.8  # how sure the range of seeds is, as far as the spread over seeds goes


@dataclass(frozen=True)
class System:
    """What the runs of one system say about a metric."""

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
    def mixed(self) -> float:
        """The part of this variance that comes from which examples there are: seeds err on different ones."""
        apart = self.resampled - self.resampled.mean(axis=0)
        return float(_variance(apart).mean() * self.seeds / (self.seeds - 1))

    @property
    def own(self) -> float:
        """The part that would remain with endless examples."""
        return self.own_if(1.0)

    def own_if(self, factor: float) -> float:
        """The same, were the true spread over seeds so many times the one that was seen."""
        return max(0.0, factor * self.spread - self.mixed)


@dataclass(frozen=True)
class SeedDifference(Paired):
    """A difference over examples and seeds."""

    from_examples: float
    """Standard error that the choice of examples alone makes."""
    from_seeds: float
    """Standard error that the choice of seeds alone makes."""
    needed: "Needed | None"
    """Where the difference is not shown and the answers are not the same."""

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.found("p"),
            "error_from_examples": as_json_number(self.from_examples),
            "error_from_seeds": as_json_number(self.from_seeds),
            "significant": self.is_significant,
            "identical_answers": self.identical,
            "seeds_needed": self.needed.as_dict() if self.needed else None,
        }


@dataclass(frozen=True)
class Needed:
    """Seeds per system that would show the observed difference in four of five studies, if it is the true one."""

    seeds: int | None
    low: int | None
    high: int | None
    """The range if the spread over seeds is as small or as large as it may well be; None: no number would do."""

    def as_dict(self) -> dict[str, Any]:
        return {"seeds": self.seeds, "low": self.low, "high": self.high, "power": POWER, "band": _BAND}

    def words(self) -> str:
        """about 6 (3 – 20)."""
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
    """Every pair of systems in every metric, each system given as the measured metrics of its seeds.

    Identical names the metrics and pairs whose runs gave the same answers.
    """
    for name, runs in systems.items():
        if len(runs) < 2:
            raise DanseoError(f"--over seeds: {name} has one run; two seeds show a spread, three or more are better")
    flat = {(n, k, id_): s for n, runs in systems.items() for k, m in enumerate(runs) for id_, s in m.items()}
    resampled = bootstrap(flat, clusters, rounds=rounds, rng=generator(seed), on_rounds=on_rounds)
    metrics = list(next(iter(systems.values()))[0])
    found = {
        id_: {
            name: _system([run[id_] for run in runs], [resampled[name, k, id_] for k in range(len(runs))], clusters)
            for name, runs in systems.items()
        }
        for id_ in metrics
    }
    differences: list[SeedDifference] = []
    for id_, by_name in found.items():
        tested = [_tested(by_name[a], by_name[b]) for a, b in combinations(by_name, 2)]
        corrected = holm([test.p for test in tested])
        for (a, b), test, p_holm in zip(combinations(by_name, 2), tested, corrected, strict=True):
            is_same = (id_, a, b) in identical
            needed = None if is_same or p_holm < ALPHA else needed_seeds(by_name[a], by_name[b])
            numbers = (test.value, *test.interval, test.p, p_holm, *test.errors)
            differences.append(SeedDifference(id_, a, b, *numbers, needed, identical=is_same))
    return found, differences


@dataclass(frozen=True)
class AgainstBase:
    """Systems, and how each differs from one of them."""

    systems: dict[str, System]
    differences: list[SeedDifference]


def compare_with_base(
    systems: Mapping[str, Sequence[Mapping[str, Statistic]]],
    base: str,
    metric: str,
    clusters: Array,
    *,
    rounds: int = 2000,
    seed: int = 0,
) -> AgainstBase:
    """Every system against the base in one metric; Holm's correction is over these comparisons alone."""
    flat = {(name, k): run[metric] for name, runs in systems.items() for k, run in enumerate(runs)}
    resampled = bootstrap(flat, clusters, rounds=rounds, rng=generator(seed))
    found = {
        name: _system([run[metric] for run in runs], [resampled[name, k] for k in range(len(runs))], clusters)
        for name, runs in systems.items()
    }
    others = [name for name in found if name != base]
    tested = [_tested(found[base], found[name]) for name in others]
    differences = [
        SeedDifference(metric, base, name, test.value, *test.interval, test.p, p_holm, *test.errors, None)
        for name, test, p_holm in zip(others, tested, holm([test.p for test in tested]), strict=True)
    ]
    return AgainstBase(found, differences)


def _system(runs: Sequence[Statistic], resampled: Sequence[Array], clusters: Array) -> System:
    values = np.array([run.value() for run in runs])
    unseen = max(unseen_share(run, clusters) for run in runs)
    return System(values, np.array(resampled), unseen, runs[0].lowest)


@dataclass(frozen=True)
class Test:
    """A difference of means with the variance of its parts."""

    value: float
    examples: float
    """Variance over examples, what seeds and examples do together included."""
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

        half = float(t.ppf(1 - ALPHA / 2, self.freedom)) * math.sqrt(self.examples + self.seeds)
        return self.value - half, self.value + half

    @property
    def errors(self) -> tuple[float, float]:
        return math.sqrt(self.examples), math.sqrt(self.seeds)


def _variance(values: Any) -> Any:
    """The variance of what is defined along the last axis; NaN, without a warning, where fewer than two values are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanvar(values, axis=-1, ddof=1)


def _tested(a: System, b: System) -> Test:
    examples = _from_examples(a, b)
    seeds = a.own / a.seeds + b.own / b.seeds
    return Test(b.mean - a.mean, examples, seeds, _freedom(examples + seeds, a, b))


def _from_examples(a: System, b: System) -> float:
    """The variance over examples; where they all say the same, as large as those that were not seen may make it."""
    gap = b.resampled.mean(axis=0) - a.resampled.mean(axis=0)
    if not is_constant(gap):
        return float(_variance(gap))
    farthest = 100 - min(a.lowest, b.lowest) + abs(b.mean - a.mean)
    return float((max(a.unseen, b.unseen) * farthest / NormalDist().inv_cdf(1 - ALPHA / 2)) ** 2)


def _freedom(total: float, a: System, b: System) -> float:
    """How many independent numbers the variance rests on: few seeds, few; where examples rule, many."""
    parts = sum((system.spread / system.seeds) ** 2 / (system.seeds - 1) for system in (a, b))
    least = min(a.seeds, b.seeds) - 1
    return max(float(least), min(1e6, total**2 / parts)) if parts > 0 else 1e6


def needed_seeds(a: System, b: System) -> Needed:
    """The seeds that would do for the observed difference, and for less and more spread over seeds."""
    from scipy.stats import chi2

    freedom = a.seeds + b.seeds - 2
    tails = [chi2.ppf(q, freedom) / freedom for q in ((1 + _BAND) / 2, 0.5, (1 - _BAND) / 2)]
    low, seeds, high = (_seeds(a, b, 1 / tail if k != 1 else 1.0) for k, tail in enumerate(tails))
    return Needed(seeds, low, high)


def _seeds(a: System, b: System, factor: float) -> int | None:
    """The smallest number of seeds per system with which the difference is found in four of five studies."""
    low, high = 2, _MOST
    if not _would_do(a, b, factor, high):
        return None
    while low < high:  # more seeds never do worse
        middle = (low + high) // 2
        low, high = (low, middle) if _would_do(a, b, factor, middle) else (middle + 1, high)
    return low


def _would_do(a: System, b: System, factor: float, seeds: int) -> bool:
    """Whether so many seeds would show the observed difference, their spread being factor times as seen."""
    from scipy.stats import t

    lasting = max(0.0, _tested(a, b).examples - a.mixed / a.seeds - b.mixed / b.seeds)
    varying = a.own_if(factor) + b.own_if(factor) + a.mixed + b.mixed
    total, part = lasting + varying / seeds, varying / 2 / seeds
    freedom = max(seeds - 1, min(1e6, total**2 / (2 * part**2 / (seeds - 1)))) if part > 0 else 1e6
    reach = float(t.ppf(1 - ALPHA / 2, freedom) + t.ppf(POWER, freedom))
    return abs(b.mean - a.mean) >= reach * math.sqrt(total)
