"""The interface of networks that can be trained."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from danseo.training.features import Features


class TrainableNetwork(nn.Module):
    """A network that makes its own batches; `model` is the part from transformers."""

    model: Any
    keeps_frozen: bool = True
    """Whether checkpoints also hold frozen weights."""

    gathers_half: bool = False
    """Whether a sharded training evaluates and leaves weights in bf16 if it computes in it."""

    @property
    def is_packed(self) -> bool:
        """Return whether the network reads the tokens of a batch as one row without padding."""
        return False

    def use_attention(self, name: str) -> None:
        """Switch to an attention of transformers or of danseo; raise ValueError if the network does not have it."""
        self.model.set_attn_implementation(name)

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Any]:
        """Return features as tensors; with_gold adds what the loss needs."""
        raise NotImplementedError


def to_tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch of arrays as tensors that share their memory; tuples stay on the CPU."""
    return {key: value if isinstance(value, tuple) else torch.from_numpy(value) for key, value in arrays.items()}
