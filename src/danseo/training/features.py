"""The interface between models and training: features and objectives; needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
