"""Compare systems on the same examples: by how much they differ, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from danseo.metrics.statistic import Array, Statistic
from danseo.records import Prediction
from danseo.scoring import example_clusters, measure
from danseo.stats import as_json_number, bootstrap, generator, holm, interval, mcnemar_p, permutation_p, tie_groups
from danseo.tasks.task import Task

ALPHA = 0.05
_POWER = 2.8016  # standard errors that a true difference needs to be found at 5 % in four of five samples


@dataclass(frozen=True)
class Difference:
    """How system b differs from system a in one metric, in points."""

    metric: str
    a: str
    b: str
    value: float
    low: float
    high: float
    p: float
    p_holm: float
    mcnemar: float | None
    detectable: float
    """The smallest true difference that a test at 5 % would find in four of five sets of this size."""

    @property
    def is_significant(self) -> bool:
        return self.p_holm < ALPHA

    def as_dict(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "a": self.a,
            "b": self.b,
            "difference": as_json_number(self.value),
            "interval": [as_json_number(self.low), as_json_number(self.high)],
            "p_permutation": as_json_number(self.p),
            "p_holm": as_json_number(self.p_holm),
            "p_mcnemar": as_json_number(self.mcnemar),
            "smallest_detectable": as_json_number(self.detectable),
            "significant": self.is_significant,
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
) -> Comparison:
    """Every pair of systems in every metric; p values are corrected over the pairs of a metric."""
    clusters = example_clusters(task, examples)
    measured = {name: measure(task, examples, predictions, skip) for name, predictions in systems.items()}
    flat = {(name, id_): statistic for name, scores in measured.items() for id_, statistic in scores.items()}
    resampled = bootstrap(flat, clusters, rounds=rounds, rng=generator(seed))
    pairs = list(combinations(systems, 2))
    permuted = [permutation_p(measured[a], measured[b], clusters, rounds=rounds, rng=generator(seed)) for a, b in pairs]
    differences: list[Difference] = []
    for id_ in measured[next(iter(systems))]:
        corrected = holm([p[id_] for p in permuted])
        for (a, b), p, p_holm in zip(pairs, permuted, corrected, strict=True):
            spread = resampled[b, id_] - resampled[a, id_]
            differences.append(_difference(id_, a, b, flat, spread, clusters, p[id_], p_holm))
    values = {id_: {name: measured[name][id_].value() for name in systems} for id_ in measured[next(iter(systems))]}
    return Comparison(len(examples), int(clusters.max()) + 1, values, differences)


def _difference(
    id_: str,
    a: str,
    b: str,
    statistics: Mapping[tuple[str, str], Statistic],
    resampled: Array,
    clusters: Array,
    p: float,
    p_holm: float,
) -> Difference:
    first, second = statistics[a, id_], statistics[b, id_]
    value = second.value() - first.value()
    defined = resampled[~np.isnan(resampled)]
    error = float(defined.std(ddof=1)) if len(defined) > 1 else float("nan")
    low, high = interval(resampled, value)
    return Difference(id_, a, b, value, low, high, p, p_holm, mcnemar_p(first, second, clusters), _POWER * error)
