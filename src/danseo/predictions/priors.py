"""Another prior after training: probabilities re-weighted to the label shares of the examples at hand."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from danseo.predictions.evidence import Array

_ROUNDS, _STILL = 1000, 1e-9
_LEAST = 1e-6  # share of a label that does not occur: rare, not impossible


def label_prior(examples: Sequence[Any], labels: Sequence[str]) -> Array:
    """The shares of the labels among examples."""
    counts = Counter(example.gold for example in examples)
    shares = np.array([max(counts[label] / max(1, len(examples)), _LEAST) for label in labels])
    normal: Array = shares / shares.sum()
    return normal


def reweighted(table: Array, source: Array, target: Array) -> Array:
    """Probabilities that a model learned under one prior, as they are under another."""
    weighed = table * (target / source)
    normal: Array = weighed / weighed.sum(axis=1, keepdims=True)
    return normal


def estimated_prior(table: Array, source: Array) -> Array:
    """The prior of the examples, without their gold: Saerens' EM from the prior that the model learned under."""
    target = source.copy()
    for _ in range(_ROUNDS):
        found = np.maximum(reweighted(table, source, target).mean(axis=0), 1e-12)
        if np.abs(found - target).max() < _STILL:
            break
        target = found
    normal: Array = target / target.sum()
    return normal
