"""Compare systems on the same examples: differences with intervals and p values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from danseo.files import to_finite
from danseo.language import _
from danseo.metrics.statistic import Array, Statistic
from danseo.records import Prediction
from danseo.scoring.resampling import (
    OnRounds,
    correct_holm,
    difference_interval,
    group_ties,
    mcnemar_p,
    permutation_p,
    permute_answers,
)
from danseo.scoring.score import example_clusters, measure
from danseo.tasktypes.base import Task, golds_of

ALPHA = 0.05
OnProgress = Callable[[float, float], None]
"""Called with the work done so far, and the total."""
_POWER = 2.8016  # standard errors of a true difference that is found at 5 % with a power of 80 %


@dataclass(frozen=True)
class Paired:
    """The difference of system b from system a in one metric, in points, with interval and p value."""

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
        if self.identical:
            return _("identical answers")
        return _("yes") if self.is_significant else _("not significant")

    def as_common_dict(self, test: str) -> dict[str, Any]:
        """Return the fields that all differences have in JSON; the p value is named by its test."""
        return {
            "metric": self.metric,
            "a": self.a,
            "b": self.b,
            "difference": to_finite(self.value),
            "interval": [to_finite(self.low), to_finite(self.high)],
            test: to_finite(self.p),
            "p_holm": to_finite(self.p_holm),
        }


@dataclass(frozen=True)
class Difference(Paired):
    """A difference on the same examples."""

    mcnemar: float | None
    detectable: float
    """The smallest true difference that a test at 5 % would find in four of five sets of this size."""

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.as_common_dict("p_permutation"),
            "p_mcnemar": to_finite(self.mcnemar),
            "smallest_detectable": to_finite(self.detectable),
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
        """Return letters per system, best first: systems with the same letter do not differ significantly."""
        names = sorted(self.values[metric], key=lambda name: -np.nan_to_num(self.values[metric][name], nan=-1e9))
        pairs = [d for d in self.differences if d.metric == metric]
        return group_ties(names, {frozenset((d.a, d.b)) for d in pairs if not d.is_significant})


def compare(
    task: Task,
    examples: Sequence[Any],
    systems: Mapping[str, Sequence[Prediction]],
    *,
    rounds: int = 2000,
    seed: int = 0,
    skip: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    copies: Mapping[str, Sequence[Any]] | None = None,
) -> Comparison:
    """Compare every pair of systems in every metric; p values are corrected over the pairs of a metric.

    `copies` holds the examples as a system saw them, with their gold, if they are changed copies of the examples.
    """
    clusters, copies = example_clusters(task, examples), copies or {}
    measured = {
        name: measure(task, copies.get(name, examples), predictions, skip) for name, predictions in systems.items()
    }
    pairs = list(combinations(systems, 2))
    count = count_work(on_progress, rounds * len(pairs))
    permuted = [
        permute_answers(
            measured[a], measured[b], clusters, rounds=rounds, rng=np.random.default_rng(seed), on_rounds=count
        )
        for a, b in pairs
    ]
    metrics = list(measured[next(iter(systems))])
    differences: list[Difference] = []
    for id_ in metrics:
        tested = [
            _test_difference(measured[a][id_], measured[b][id_], each[id_], clusters)
            for (a, b), each in zip(pairs, permuted, strict=True)
        ]
        corrected = correct_holm([each["p"] for each in tested])
        for (a, b), test, p_holm in zip(pairs, tested, corrected, strict=True):
            golds = [golds_of(copies.get(name, examples)) for name in (a, b)]
            if golds[0] == golds[1] and is_identical(
                systems[a], systems[b], with_probabilities=id_ in task.needs_probabilities
            ):
                test |= {"low": 0.0, "high": 0.0, "identical": True}
            differences.append(Difference(id_, a, b, p_holm=p_holm, **test))
    values = {id_: {name: measured[name][id_].value() for name in systems} for id_ in metrics}
    return Comparison(len(examples), int(clusters.max()) + 1, values, differences)


def count_work(on_progress: OnProgress | None, total: float) -> OnRounds:
    """Return a function that adds up the rounds that are done, and reports them with the total."""
    report, done = on_progress or (lambda done, total: None), 0
    report(0, total)

    def count(rounds: int) -> None:
        nonlocal done
        done += rounds
        report(done, total)

    return count


def is_identical(a: Sequence[Prediction], b: Sequence[Prediction], *, with_probabilities: bool) -> bool:
    """Return whether two systems answer every example the same."""
    return all(
        x.answer == y.answer and (not with_probabilities or x.probabilities == y.probabilities)
        for x, y in zip(a, b, strict=True)
    )


def _test_difference(a: Statistic, b: Statistic, permuted: Array, clusters: Array) -> dict[str, Any]:
    """Return a difference with its p value and interval, which agree, and the smallest detectable difference."""
    value = b.value() - a.value()
    low, high = difference_interval(permuted, value, [a, b], clusters)
    error = float(np.sqrt(np.mean(np.square(permuted[~np.isnan(permuted)])))) or float("nan")
    p, mcnemar = permutation_p(permuted, value), mcnemar_p(a, b, clusters)
    return {"value": value, "low": low, "high": high, "p": p, "mcnemar": mcnemar, "detectable": _POWER * error}
