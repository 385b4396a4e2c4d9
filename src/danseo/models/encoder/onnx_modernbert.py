"""ModernBERT layers for ONNX export: the same results with fewer copies.

Traced as they stand, a layer cuts what one product made into its parts and turns positions by slicing; here each part
is a product of its own, whose weights are cut once and for all, and the turning is one operation of the runtime.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear, softmax


def optimize_for_onnx(network: Any) -> None:
    """Replace the forward of known layers for tracing; the export compares the results."""
    known: dict[str, Callable[..., Any]] = {"ModernBertMLP": _gated_mlp, "ModernBertAttention": _attend}
    found = [(layer, known[name]) for layer in network.modules() if (name := type(layer).__name__) in known]
    for layer, forward in found:
        layer.forward = partial(forward, layer)
    if found:
        network.model.set_attn_implementation("eager")  # masks to add, which are there for every batch


def _split_products(states: Tensor, whole: Linear, count: int) -> list[Tensor]:
    """Return the output of a linear layer in equal parts."""
    weights = whole.weight.chunk(count)
    biases = [None] * count if whole.bias is None else whole.bias.chunk(count)
    return [linear(states, weight, bias) for weight, bias in zip(weights, biases, strict=True)]


def _gated_mlp(layer: Any, states: Tensor) -> Tensor:
    values, gates = _split_products(states, layer.Wi, 2)
    made: Tensor = layer.Wo(layer.act(values) * gates)
    return made


def _attend(
    layer: Any, hidden_states: Tensor, position_embeddings: Any = None, attention_mask: Any = None, **_: Any
) -> tuple[Tensor, None]:
    batch, length = hidden_states.shape[:2]
    parts = _split_products(hidden_states, layer.Wqkv, 3)
    query, key, value = (part.view(batch, length, -1, layer.head_dim).transpose(1, 2) for part in parts)
    angles = [each[0, :, : layer.head_dim // 2] for each in position_embeddings]
    start = torch.zeros(1, dtype=torch.long)
    query, key = (_RotaryEmbedding.apply(each, start, *angles) for each in (query, key))  # type: ignore[no-untyped-call]
    weights = query @ key.transpose(2, 3) * layer.head_dim**-0.5 + attention_mask
    states = (softmax(weights, dim=-1) @ value).transpose(1, 2).reshape(batch, length, -1)
    return layer.Wo(states), None


class _RotaryEmbedding(torch.autograd.Function):
    """Rotary position embedding as one operator of ONNX Runtime."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, start: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        first, second = states.chunk(2, dim=-1)
        return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)

    @staticmethod
    def symbolic(graph: Any, states: Any, start: Any, cosines: Any, sines: Any) -> Any:
        made = graph.op("com.microsoft::RotaryEmbedding", states, start, cosines, sines, interleaved_i=0)
        made.setType(states.type())
        return made
