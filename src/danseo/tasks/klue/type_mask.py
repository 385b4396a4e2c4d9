"""Mask of the labels that two entity types allow: learned from training examples, extended by a table, hard or soft."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.tasks.klue.re import possible_relations, type_pair
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding.arrays import Array
from danseo.tasktypes.relation import Relation


@dataclass(frozen=True)
class TypeMask:
    """How often each pair of entity types had each label, and which labels that allows."""

    labels: tuple[str, ...]
    nothing: str
    counts: Mapping[str, Mapping[str, int]]
    min_count: int = 1
    is_widened: bool = True
    """Whether the table of `possible_relations` allows more labels."""
    strength: float = 0.0
    """Above 0 no label is forbidden: logits get this factor times the log of the label's smoothed share."""

    def allows(self, pair: str, label: str) -> bool:
        """Return whether a pair of types can have a label."""
        if label == self.nothing or self.counts.get(pair, {}).get(label, 0) >= self.min_count:
            return True
        if self.is_widened and label in possible_relations(pair):
            return True
        return pair not in self.counts and self._fits_subject(pair.split("-")[0], label)

    def _fits_subject(self, subject: str, label: str) -> bool:
        """Return whether a label has the prefix of the subject's type; a type that train lacks fits all labels."""
        known = {name.split("-")[0] for name in self.counts}
        return subject not in known or label.split(":")[0] == subject.lower()

    def bias(self, pair: str) -> Array:
        """Return what is added to the logits of the labels: minus infinity forbids one."""
        if self.strength:
            counts = self.counts.get(pair, {})
            total = sum(counts.values()) + len(self.labels)
            return np.array([self.strength * math.log((counts.get(label, 0) + 1) / total) for label in self.labels])
        return np.array([0.0 if self.allows(pair, label) else -math.inf for label in self.labels])

    def find_forbidden(self, examples: Sequence[Any]) -> list[Any]:
        """Return the examples whose gold label is forbidden."""
        return [] if self.strength else [e for e in examples if not self.allows(type_pair(e), e.gold)]

    def apply(self, table: Array, examples: Sequence[Any]) -> Array:
        """Return the probabilities (a row per example) without forbidden labels; rows still sum to 1."""
        factors = {pair: np.exp(self.bias(pair)) for pair in {type_pair(example) for example in examples}}
        products = table * np.array([factors[type_pair(example)] for example in examples])
        totals = products.sum(axis=1, keepdims=True)
        return np.where(totals > 0, products / np.where(totals > 0, totals, 1), table)

    def as_dict(self) -> dict[str, Any]:
        return {
            "counts": {pair: dict(labels) for pair, labels in self.counts.items()},
            "min_count": self.min_count,
            "is_widened": self.is_widened,
            "strength": self.strength,
        }


def learn_type_mask(
    task: Task, train: Sequence[Any], *, min_count: int = 1, is_widened: bool = True, strength: float = 0.0
) -> TypeMask:
    """Return the mask of training examples."""
    if not isinstance(task.type, Relation):
        raise DanseoError(f"type_mask: {task.name} has no pairs of entity types; leave the setting out")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example in train:
        counts[type_pair(example)][example.gold] += 1
    return TypeMask(task.labels, task.nothing, dict(counts), min_count, is_widened, strength)
