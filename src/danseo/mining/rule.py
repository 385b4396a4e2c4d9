"""Which examples are hard, which are likely mislabelled, and what each weighs: functions of probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from danseo.errors import DanseoError
from danseo.records import Prediction
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Rule:
    """What counts as hard, and what as too hard to be right."""

    threshold: float = 0.55
    """Hard is an example whose own label has less than this."""
    boost: float = 2.0
    """The weight at the threshold; below it, it grows as the probability shrinks."""
    cap: float = 4.0
    """The largest weight."""
    sure: float = 0.95
    """Whoever has more than this for another label is to be looked at, and weighs as all others."""

    def weight(self, probability: float) -> float:
        """What an example weighs whose own label has this probability."""
        if probability >= self.threshold:
            return 1.0
        return min(self.cap, self.boost * self.threshold / max(probability, 1e-9))


@dataclass(frozen=True)
class Judged:
    """A training example, what a model that did not learn from it says, and what becomes of it."""

    example: Any
    prediction: Prediction
    weight: float
    is_doubtful: bool
    """Whether its label is likely wrong."""

    @property
    def own(self) -> float:
        """The probability of its label."""
        return dict(self.prediction.probabilities or {}).get(self.example.gold, 0.0)

    @property
    def confidence(self) -> float:
        """The probability of the answer."""
        return dict(self.prediction.probabilities or {}).get(self.prediction.answer, 0.0)


def judged(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], rule: Rule) -> list[Judged]:
    """Every example by the rule; of a task with a label for nothing only those that have it can be hard."""
    return [_judge(task, *pair, rule) for pair in zip(examples, predictions, strict=True)]


def _judge(task: Task, example: Any, prediction: Prediction, rule: Rule) -> Judged:
    if prediction.probabilities is None:
        raise DanseoError(f"the answer to {example.guid} has no probabilities, without which nothing can be mined")
    if task.nothing and example.gold != task.nothing:
        return Judged(example, prediction, 1.0, is_doubtful=False)
    found = dict(prediction.probabilities)
    own = found.pop(example.gold, 0.0)
    is_doubtful = max(found.values(), default=0.0) > rule.sure
    return Judged(example, prediction, 1.0 if is_doubtful else rule.weight(own), is_doubtful)
