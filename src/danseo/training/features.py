"""What training knows of a model: inputs of numbers, a network that makes outputs of them, and an objective."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

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
    """What the objective itself needs: offsets, word places, labels."""

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


class TrainableNetwork(nn.Module):
    """A network that training can drive: it makes its own batches, and `model` is the library's part of it."""

    model: Any
    keeps_frozen: bool = True
    """Whether checkpoints hold weights that do not learn as well."""

    def use_attention(self, name: str) -> None:
        """Compute attention in this of the library's ways."""
        self.model.set_attn_implementation(name)

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Tensor]:
        """Features as padded tensors; with_gold adds what the loss needs."""
        raise NotImplementedError


def padded(rows: Sequence[Any], value: int) -> Tensor:
    """Rows of different length, lists or arrays, as one tensor."""
    width = max(len(row) for row in rows)
    table = np.full((len(rows), width), value, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)
