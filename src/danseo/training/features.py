"""The interface between models and training: features, objectives and batches; needs no torch."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor


Array = npt.NDArray[Any]
IGNORED = -100
Outputs = dict[str, Any]
"""Outputs of the network for one features record: numpy arrays without padding."""


@dataclass(slots=True)
class Features:
    """One input of the network; an example may have several (windows)."""

    example: int
    ids: list[int]
    segments: list[int]
    fields: dict[str, Any] = field(default_factory=dict)
    """Values for the objective: offsets, word positions, labels."""

    def __len__(self) -> int:
        return len(self.ids)


class Objective(Protocol):
    """The loss of a network, and how its outputs are read; it holds no weights."""

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Prepare a training step, for objectives that sample at every step."""

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the summed loss of the batch, and the weight that it is summed over."""

    def unpack(self, outputs: dict[str, Tensor], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        """Return the outputs of each features record as numpy arrays without padding."""


def pad_rows(rows: Sequence[Any], value: int) -> Array:
    """Return rows of different length, lists or arrays, as one padded table."""
    width = max(len(row) for row in rows)
    table = np.full((len(rows), width), value, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def split_row(row: Any, features: Sequence[Features]) -> list[Array]:
    """Split values of all tokens of a batch into those of each record."""
    return [part.copy() for part in np.split(to_array(row), np.cumsum([len(record) for record in features])[:-1])]


def to_array(output: Any) -> Array:
    """Return a tensor from any device, or an array, as an array in full precision."""
    return output if isinstance(output, np.ndarray) else output.float().cpu().numpy()


def make_epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int, weights: Sequence[float] | None = None
) -> list[list[int]]:
    """Return the random batches of an epoch; every example once, or sampled by weight."""
    rng = random.Random(f"{seed} {epoch}")
    order = rng.sample(range(count), count)
    order = sample_weighted(order, weights, rng) if weights else order
    return [order[start : start + batch_size] for start in range(0, count, batch_size)]


def make_token_batches(
    indices: Sequence[int], lengths: Sequence[int], tokens: int, padding: float = math.inf, *, packed: bool = False
) -> list[list[int]]:
    """Split indices, from long to short, into batches of at most this many tokens and tokens of padding.

    Packed batches have no padding; others count it.
    """
    parts: list[list[int]] = []
    width = size = spare = 0
    for index in sorted(indices, key=lambda k: (-lengths[k], k)):
        added = lengths[index] if packed else width
        spare += width - lengths[index]
        if not parts or size + added > tokens or spare > padding:
            parts.append([])
            width, size, spare = lengths[index], 0, 0
            added = width
        size += added
        parts[-1].append(index)
    return parts


def sample_weighted(order: Sequence[int], weights: Sequence[float], rng: random.Random) -> list[int]:
    """Sample as many indices as there are, each as often as its weight says, rounded up or down at random.

    Systematic sampling over the summed weights: independent draws would leave out a third of all examples.
    """
    reached = list(accumulate(weights[index] for index in order))
    distance = reached[-1] / len(order)
    start = rng.random() * distance
    last = len(order) - 1
    sampled = [order[min(last, bisect_right(reached, start + k * distance))] for k in range(len(order))]
    rng.shuffle(sampled)  # otherwise copies are neighbours
    return sampled
