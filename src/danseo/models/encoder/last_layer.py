"""The last layer of an encoder, computed only where its states are read: at the first piece, or at the gaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_NAME = "danseo_last_layer"


class LastLayer:
    """Stands in for the self-attention of the last layer, so that only some positions ask, and all are asked.

    It knows the layers of BERT's relatives; other families, and layers that are computed again in the backward pass,
    stay as they are.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.positions: Tensor | None = None
        attention = _last_attention(model)
        self.is_known = attention is not None
        if self.is_known:
            self.inner = attention.self
            self._whole = self.inner.forward
            self.inner.forward = self._forward
            attention.output.register_forward_pre_hook(self._residual)

    @contextmanager
    def at(self, positions: Tensor) -> Iterator[bool]:
        """Within the block the body's states are those at the positions (rows x positions); says whether they are."""
        attention = getattr(self.model.config, "_attn_implementation", None)
        usable = self.is_known and attention in ("sdpa", "eager")
        usable = usable and not getattr(self.model, "is_gradient_checkpointing", False)
        self.positions = positions if usable else None
        try:
            yield usable
        finally:
            self.positions = None

    def _residual(self, module: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        return states if self.positions is None else (states[0], taken(states[1], self.positions))

    def _forward(self, hidden: Tensor, attention_mask: Tensor | None = None, **options: Any) -> Any:
        if self.positions is None:
            return self._whole(hidden, attention_mask, **options)
        inner = self.inner
        query = self._heads(inner.query(taken(hidden, self.positions)))
        key, value = (self._heads(part(hidden)) for part in (inner.key, inner.value))
        context = torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=self._mask(attention_mask, query),
            dropout_p=inner.dropout.p if inner.training else 0.0,
            scale=inner.scaling,
        )
        return context.transpose(1, 2).flatten(2), None

    def _heads(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], -1, self.inner.attention_head_size).transpose(1, 2)

    def _mask(self, mask: Tensor | None, query: Tensor) -> Tensor | None:
        """The rows of the mask that ask; it may have one row for all."""
        assert self.positions is not None
        if mask is None:
            return None
        if mask.shape[-2] > 1:
            mask = mask.gather(2, self.positions[:, None, :, None].expand(-1, mask.shape[1], -1, mask.shape[3]))
        return mask if mask.dtype == torch.bool else mask.to(query.dtype)


def _last_attention(model: Any) -> Any:
    """The attention of the last layer where it is built as BERT's, else None."""
    layers = getattr(getattr(model.base_model, "encoder", None), "layer", [None])
    attention = getattr(layers[-1], "attention", None)
    inner = getattr(attention, "self", None)
    known = all(hasattr(inner, name) for name in ("query", "key", "value", "scaling", "dropout"))
    return attention if known else None


def taken(states: Tensor, positions: Tensor) -> Tensor:
    """The states at some positions of each row."""
    return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def last_layer(model: Any) -> LastLayer:
    """The one of a model; made at the first call."""
    if not hasattr(model.base_model, _NAME):
        setattr(model.base_model, _NAME, LastLayer(model))
    found: LastLayer = getattr(model.base_model, _NAME)
    return found
