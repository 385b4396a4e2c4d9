"""Which labels the types of two entities allow: learned from training examples, widened by a table, hard or soft."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.predictions.evidence import Array
from danseo.tasks.relation_types import possible
from danseo.tasks.task import Task


def type_pair(example: Any) -> str:
    """The types of subject and object: PER-ORG."""
    return f"{example.subject.type}-{example.object.type}"


@dataclass(frozen=True)
class TypeMask:
    """How often each pair of types had each label, and what follows from it."""

    labels: tuple[str, ...]
    nothing: str
    counts: Mapping[str, Mapping[str, int]]
    least: int = 1
    is_widened: bool = True
    strength: float = 0.0
    """Above 0 nothing is forbidden: labels get this times the log of their smoothed share with the pair."""

    def allows(self, pair: str, label: str) -> bool:
        """Whether a pair of types can have a label."""
        if label == self.nothing or self.counts.get(pair, {}).get(label, 0) >= self.least:
            return True
        if self.is_widened and label in possible(pair):
            return True
        return pair not in self.counts and self._fits(pair.split("-")[0], label)

    def _fits(self, subject: str, label: str) -> bool:
        """Of a pair that train does not have: labels that speak of such a subject; all where no label does."""
        known = {name.split("-")[0] for name in self.counts}
        return subject not in known or label.split(":")[0] == subject.lower()

    def bias(self, pair: str) -> Array:
        """What is added to the logits of the labels: minus infinity forbids one."""
        if self.strength:
            found = self.counts.get(pair, {})
            total = sum(found.values()) + len(self.labels)
            return np.array([self.strength * math.log((found.get(label, 0) + 1) / total) for label in self.labels])
        return np.array([0.0 if self.allows(pair, label) else -math.inf for label in self.labels])

    def outside(self, examples: Sequence[Any]) -> list[Any]:
        """The examples whose gold is forbidden: no answer to them can be right."""
        return [] if self.strength else [e for e in examples if not self.allows(type_pair(e), e.gold)]

    def masked(self, table: Array, examples: Sequence[Any]) -> Array:
        """Probabilities of the examples, a row each, with forbidden labels at 0 and rows that add up to 1."""
        kinds = {pair: np.exp(self.bias(pair)) for pair in {type_pair(example) for example in examples}}
        weighed = table * np.array([kinds[type_pair(example)] for example in examples])
        totals = weighed.sum(axis=1, keepdims=True)
        return np.where(totals > 0, weighed / np.where(totals > 0, totals, 1), table)

    def as_dict(self) -> dict[str, Any]:
        return {
            "counts": {pair: dict(labels) for pair, labels in self.counts.items()},
            "least": self.least,
            "is_widened": self.is_widened,
            "strength": self.strength,
        }


def learned_mask(
    task: Task, train: Sequence[Any], *, least: int = 1, is_widened: bool = True, strength: float = 0.0
) -> TypeMask:
    """The mask of training examples."""
    if task.form != "relation":
        raise DanseoError(f"a mask by types needs the types of two entities, which {task.name} has not; leave it out")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example in train:
        counts[type_pair(example)][example.gold] += 1
    return TypeMask(task.labels, task.nothing, dict(counts), least, is_widened, strength)
