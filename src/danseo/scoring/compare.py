"""Compare systems on the same examples: by how much they differ, and how sure that is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from danseo.metrics.statistic import Array, Statistic
from danseo.records import Prediction
from danseo.scoring.resampling import (
    as_json_number,
    bootstrap,
    generator,
    holm,
    interval,
    is_constant,
    mcnemar_p,
    permutation_p,
    tie_groups,
)
from danseo.scoring.score import example_clusters, measure
from danseo.tasks.task import Task

ALPHA = 0.05
OnProgress = Callable[[float, float], None]
"""Told how much is done, and of how much."""
_PAIR = 4  # a test exchanges answers between two systems, and scores both: the work of four
_POWER = 2.8016  # standard errors that a true difference needs to be found at 5 % in four of five samples


@dataclass(frozen=True)
class Paired:
    """How system b differs from system a in one metric, in points, and how sure that is."""

    metric: str
    a: str
    b: str
    value: float
    low: float
    high: float
    p: float
    p_holm: float
    identical: bool = field(default=False, kw_only=True)
    """Whether both systems gave the same answers, with the same probabilities where the metric reads them."""

    @property
    def is_significant(self) -> bool:
        return self.p_holm < ALPHA

    @property
    def verdict(self) -> str:
        return "identical answers" if self.identical else "yes" if self.is_significant else "not shown"

    def found(self, test: str) -> dict[str, Any]:
        """What all differences say in JSON; the p value goes by the name of its test."""
        return {
            "metric": self.metric,
            "a": self.a,
            "b": self.b,
            "difference": as_json_number(self.value),
            "interval": [as_json_number(self.low), as_json_number(self.high)],
            test: as_json_number(self.p),
            "p_holm": as_json_number(self.p_holm),
        }


@dataclass(frozen=True)
class Difference(Paired):
    """A difference on the same examples."""

    mcnemar: float | None
    detectable: float
    """The smallest true difference that a test at 5 % would find in four of five sets of this size."""

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.found("p_permutation"),
            "p_mcnemar": as_json_number(self.mcnemar),
            "smallest_detectable": as_json_number(self.detectable),
            "significant": self.is_significant,
            "identical_answers": self.identical,
        }


@dataclass(frozen=True)
class Comparison:
    """All systems in all metrics."""

    n: int
    clusters: int
    values: dict[str, dict[str, float]]
    """Metric -> system -> score."""
    differences: list[Difference]

    def groups(self, metric: str) -> dict[str, str]:
        """Letters per system, best first: systems that share a letter are not told apart."""
        names = sorted(self.values[metric], key=lambda name: -np.nan_to_num(self.values[metric][name], nan=-1e9))
        pairs = [d for d in self.differences if d.metric == metric]
        return tie_groups(names, {frozenset((d.a, d.b)) for d in pairs if not d.is_significant})


def compare(
    task: Task,
    examples: Sequence[Any],
    systems: Mapping[str, Sequence[Prediction]],
    *,
    rounds: int = 2000,
    seed: int = 0,
    skip: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Every pair of systems in every metric; p values are corrected over the pairs of a metric."""
    clusters = example_clusters(task, examples)
    measured = {name: measure(task, examples, predictions, skip) for name, predictions in systems.items()}
    pairs = list(combinations(systems, 2))
    work = Work(on_progress, rounds * (len(systems) + _PAIR * len(pairs)))
    flat = {(name, id_): statistic for name, scores in measured.items() for id_, statistic in scores.items()}
    resampled = bootstrap(flat, clusters, rounds=rounds, rng=generator(seed), on_rounds=work.of(len(systems)))
    permuted = [
        permutation_p(measured[a], measured[b], clusters, rounds=rounds, rng=generator(seed), on_rounds=work.of(_PAIR))
        for a, b in pairs
    ]
    metrics = list(measured[next(iter(systems))])
    differences: list[Difference] = []
    for id_ in metrics:
        corrected = holm([p[id_] for p in permuted])
        for (a, b), p, p_holm in zip(pairs, permuted, corrected, strict=True):
            identical = is_identical(systems[a], systems[b], with_probabilities=id_ in task.needs_probabilities)
            tested = _tested(flat[a, id_], flat[b, id_], resampled[b, id_] - resampled[a, id_], clusters)
            differences.append(Difference(id_, a, b, p=p[id_], p_holm=p_holm, identical=identical, **tested))
    values = {id_: {name: measured[name][id_].value() for name in systems} for id_ in metrics}
    return Comparison(len(examples), int(clusters.max()) + 1, values, differences)


@dataclass
class Work:
    """How much of the resampling is done."""

    on_progress: OnProgress | None
    total: float
    done: float = 0.0

    def __post_init__(self) -> None:
        if self.on_progress:
            self.on_progress(0, self.total)

    def of(self, weight: int) -> Callable[[int], None]:
        """Counts rounds of so much work each."""

        def count(rounds: int) -> None:
            self.done += weight * rounds
            if self.on_progress:
                self.on_progress(self.done, self.total)

        return count


def is_identical(a: Sequence[Prediction], b: Sequence[Prediction], *, with_probabilities: bool) -> bool:
    """Whether two systems say the same about every example."""
    return all(
        x.answer == y.answer and (not with_probabilities or x.probabilities == y.probabilities)
        for x, y in zip(a, b, strict=True)
    )


def _tested(a: Statistic, b: Statistic, resampled: Array, clusters: Array) -> dict[str, Any]:
    """The difference, its interval, and what the examples can tell apart."""
    value = b.value() - a.value()
    low, high = interval(resampled, value, [a, b], clusters)
    defined = resampled[~np.isnan(resampled)]
    error = float("nan") if len(defined) < 2 or is_constant(defined) else float(defined.std(ddof=1))
    mcnemar = mcnemar_p(a, b, clusters)
    return {"value": value, "low": low, "high": high, "mcnemar": mcnemar, "detectable": _POWER * error}
