"""Score predictions: every metric of the task with its interval, beside the floor and the ceiling."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.metrics.statistic import Statistic
from danseo.records import Prediction
from danseo.scoring.baselines import NAMES, baseline
from danseo.scoring.resampling import OnRounds, as_json_number, bootstrap, clusters_of, generator, interval
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Score:
    """One metric of one set of predictions, from 0 to 100."""

    id: str
    value: float
    low: float
    high: float
    n: int
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        ends = [as_json_number(self.low), as_json_number(self.high)]
        return {
            "id": self.id,
            "value": as_json_number(self.value),
            "interval": ends if None not in ends else None,
            "n": self.n,
            **({"note": self.note} if self.note else {}),
        }


def measure(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], skip: Sequence[str] = ()
) -> dict[str, Statistic]:
    """The statistics of the predictions, in the task's order of metrics."""
    if [example.guid for example in examples] != [prediction.guid for prediction in predictions]:
        raise ValueError("examples and predictions should stand in the same order")
    measured = task.measure(examples, predictions)
    return {id_: measured[id_] for id_ in task.metrics if id_ in measured and id_ not in skip}


def score(
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    rounds: int = 1000,
    seed: int = 0,
    skip: Sequence[str] = (),
    extra: Mapping[str, Statistic] | None = None,
    on_rounds: OnRounds | None = None,
) -> list[Score]:
    """All metrics, and any extra statistics of the same examples; rounds=0 leaves the intervals out."""
    statistics = {**measure(task, examples, predictions, skip), **(extra or {})}
    clusters = example_clusters(task, examples)
    rng = generator(seed)
    resampled = bootstrap(statistics, clusters, rounds=rounds, rng=rng, on_rounds=on_rounds) if rounds else {}
    scores = []
    for id_, statistic in statistics.items():
        value = statistic.value()
        low, high = interval(resampled[id_], value, [statistic], clusters) if rounds else (math.nan, math.nan)
        scores.append(Score(id_, value, low, high, len(examples), note_on(task, id_, value, examples)))
    return scores


def note_on(task: Task, id_: str, value: float, examples: Sequence[Any]) -> str:
    """Why a score is undefined, in a few words."""
    if not np.isnan(value):
        return ""
    if id_ in task.needs_probabilities:
        absent = [label for label in task.labels if label not in {example.gold for example in examples}]
        return f"undefined: {len(absent)} labels do not occur in gold ({', '.join(absent[:3])}…)"
    if "/pearson@" in id_:
        return "undefined: all answers, or all golds, are the same number"
    if "precision" in id_:
        return "undefined: nothing answered"
    return "undefined: nothing to find" + ("" if "recall" in id_ else " and nothing answered")


def example_clusters(task: Task, examples: Sequence[Any]) -> Any:
    """What resampling keeps together: passages, dialogues, or single examples."""
    keys = [task.cluster(example) for example in examples] if task.cluster else None
    return clusters_of(keys, len(examples))


def baseline_scores(
    task: Task, examples: Sequence[Any], skip: Sequence[str] = (), seed: int = 0, names: Iterable[str] = NAMES
) -> dict[str, dict[str, float]]:
    """Baseline -> metric -> score, on the same examples."""
    return {
        name: {
            s.id: s.value for s in score(task, examples, baseline(name, task, examples, seed=seed), rounds=0, skip=skip)
        }
        for name in names
    }
