"""What training knows of a model: inputs of numbers, and an objective; needs no torch."""

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
"""What the network made of one features record: numpy arrays without padding."""


@dataclass(slots=True)
class Features:
    """One input of the network; an example may have several (windows) and says which it belongs to."""

    example: int
    ids: list[int]
    segments: list[int]
    fields: dict[str, Any] = field(default_factory=dict)
    """What the objective itself needs: offsets, word positions, labels."""

    def __len__(self) -> int:
        return len(self.ids)


class Objective(Protocol):
    """What a network is trained for; it holds no weights."""

    usual_weight: float | None
    """What an ordinary training example weighs in the loss, where long ones weigh more than short ones."""

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Called before every training step with its number and its whole batch, for what is drawn anew each time."""

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The summed loss of the batch and the weight it is summed over."""

    def unpack(
        self, outputs: dict[str, Tensor], batch: dict[str, Tensor], features: Sequence[Features]
    ) -> list[Outputs]:
        """The outputs of each features record as numpy arrays, padding cut off."""


def padded(rows: Sequence[Any], value: int) -> Array:
    """Rows of different length, lists or arrays, as one table."""
    width = max(len(row) for row in rows)
    table = np.full((len(rows), width), value, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def as_array(output: Any) -> Array:
    """What a network made, in full precision: a tensor on whatever device, or what is an array already."""
    return output if isinstance(output, np.ndarray) else output.float().cpu().numpy()
