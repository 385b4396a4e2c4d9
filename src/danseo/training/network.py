"""What training knows of a network: it makes its own batches, and `model` is the library's part of it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from danseo.training.features import Array, Features


class TrainableNetwork(nn.Module):
    """A network that training can drive."""

    model: Any
    keeps_frozen: bool = True
    """Whether checkpoints hold weights that do not learn as well."""

    @property
    def takes_flash(self) -> bool:
        """Whether rows differ in their lengths alone, which FlashAttention takes without their padding."""
        return False

    def use_attention(self, name: str) -> None:
        """Compute attention in this of the library's ways."""
        self.model.set_attn_implementation(name)

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Tensor]:
        """Features as padded tensors; with_gold adds what the loss needs."""
        raise NotImplementedError


def tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """A batch of arrays as tensors, which share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
