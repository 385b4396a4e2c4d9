"""Score predictions: every metric of the task with its interval, beside the baseline and the ceiling."""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.files import to_finite
from danseo.language import _
from danseo.metrics.statistic import Statistic
from danseo.records import Prediction
from danseo.scoring.resampling import OnRounds, bootstrap, interval, number_clusters
from danseo.tasktypes.base import Task
from danseo.tasktypes.classification import label_shares

NAMES = {
    "oracle": _("the gold answers"),
    "majority": _("the most frequent answer, whatever the input"),
    "random": _("the gold answers of other examples, at random"),
}


def baseline(name: str, task: Task, examples: Sequence[Any], *, seed: int = 0) -> list[Prediction]:
    """Return the predictions of a baseline named in NAMES."""
    makers: dict[str, Callable[[], list[Any]]] = {
        "oracle": lambda: [task.type.gold_answer(example) for example in examples],
        "majority": lambda: majority_answers(task, examples, find_most_frequent(task, examples)),
        "random": lambda: task.type.shuffle_answers(examples, random.Random(seed)),
    }
    answers = makers[name]()
    probabilities = label_shares(examples) if name == "majority" and task.needs_probabilities else None
    return [
        Prediction(example.guid, answer, probabilities or ({answer: 1.0} if task.needs_probabilities else None))
        for example, answer in zip(examples, answers, strict=True)
    ]


def find_most_frequent(task: Task, examples: Sequence[Any]) -> Any:
    """Return the most frequent label or relation among the golds, or their mean; None if answers need neither."""
    return task.type.most_frequent([example.gold for example in examples])


def majority_answers(task: Task, examples: Sequence[Any], most_frequent: Any) -> list[Any]:
    """Return the answers that ignore the input."""
    return [task.type.majority_answer(example, most_frequent) for example in examples]


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
        ends = [to_finite(self.low), to_finite(self.high)]
        return {
            "id": self.id,
            "value": to_finite(self.value),
            "interval": ends if None not in ends else None,
            "n": self.n,
            **({"note": self.note} if self.note else {}),
        }


def measure(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], skip: Sequence[str] = ()
) -> dict[str, Statistic]:
    """Return the statistics of the predictions, in the task's order of metrics."""
    if [example.guid for example in examples] != [prediction.guid for prediction in predictions]:
        raise ValueError("examples and predictions should be in the same order")
    measured = task.measure(examples, predictions)
    return {id_: measured[id_] for id_ in task.metrics if id_ in measured and id_ not in skip}


def compute_headline(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> float:
    """Return the headline score; NaN if it is undefined or there are no examples."""
    return measure(task, examples, predictions)[task.headline].value() if examples else math.nan


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
    """Return the scores of all metrics, and of extra statistics of the same examples; rounds=0 omits intervals."""
    statistics = {**measure(task, examples, predictions, skip), **(extra or {})}
    clusters = example_clusters(task, examples)
    rng = np.random.default_rng(seed)
    resampled = bootstrap(statistics, clusters, rounds=rounds, rng=rng, on_rounds=on_rounds) if rounds else {}
    scores = []
    for id_, statistic in statistics.items():
        value = statistic.value()
        low, high = interval(resampled[id_], value, [statistic], clusters) if rounds else (math.nan, math.nan)
        note = f"undefined: {statistic.undefined_reason}" if math.isnan(value) else ""
        scores.append(Score(id_, value, low, high, len(examples), note))
    return scores


def example_clusters(task: Task, examples: Sequence[Any]) -> Any:
    """Return the cluster number of every example: resampling keeps passages and dialogues together."""
    keys = [task.cluster(example) for example in examples] if task.cluster else None
    return number_clusters(keys, len(examples))


def baseline_scores(
    task: Task, examples: Sequence[Any], skip: Sequence[str] = (), seed: int = 0, names: Iterable[str] = NAMES
) -> dict[str, dict[str, float]]:
    """Return baseline -> metric -> score, on the same examples."""
    answers = {name: baseline(name, task, examples, seed=seed) for name in names}
    return {name: {s.id: s.value for s in score(task, examples, a, rounds=0, skip=skip)} for name, a in answers.items()}
