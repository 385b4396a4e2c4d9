"""Compute the last layer of an encoder only at some positions: the first token, or gaps."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from danseo.models.encoder.packed_texts import PackedTexts, attend, is_packed

_NAME = "danseo_last_layer"


class LastLayer:
    """Replaces the self-attention of the last layer, so that only some positions are queries.

    It knows the layers of BERT's relatives; other families, and layers that are computed again in the backward pass,
    stay as they are.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.positions: Tensor | None = None
        self.texts: PackedTexts | None = None
        self.counts: Sequence[int] = ()
        attention = _last_attention(model)
        self.is_known = attention is not None
        if self.is_known:
            self.inner = attention.self
            self._whole = self.inner.forward
            self.inner.forward = self._forward
            attention.output.register_forward_pre_hook(self._residual)

    @contextmanager
    def at(
        self, positions: Tensor, texts: PackedTexts | None = None, counts: Sequence[int] | None = None
    ) -> Iterator[bool]:
        """Compute only the states at some positions inside the block; yield whether that works.

        Positions are columns of each row, and the states rows x positions. Those of packed texts are indices of tokens
        with their count per text (one by default), and the states tokens x 1.
        """
        usable = self.is_known and (texts is not None) == is_packed(self.model)
        usable = usable and not getattr(self.model, "is_gradient_checkpointing", False)
        self.positions = positions if usable else None
        self.texts, self.counts = texts, counts or [1] * len(positions)
        try:
            yield usable
        finally:
            self.positions = self.texts = None

    def _residual(self, module: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        return states if self.positions is None else (states[0], self._select(states[1]))

    def _select(self, states: Tensor) -> Tensor:
        assert self.positions is not None
        if self.texts is not None:
            return states[0].index_select(0, self.positions).unsqueeze(1)
        return gather_states(states, self.positions)

    def _forward(self, hidden: Tensor, attention_mask: Tensor | None = None, **options: Any) -> Any:
        if self.positions is None:
            return self._whole(hidden, attention_mask, **options)
        inner = self.inner
        query = self._split_heads(inner.query(self._select(hidden)))
        key, value = (self._split_heads(part(hidden)) for part in (inner.key, inner.value))
        dropout = inner.dropout.p if inner.training else 0.0
        if self.texts is not None:
            query, options = query.permute(2, 1, 0, 3), {"dropout_p": dropout, "scale": inner.scaling}
            context = attend(query, key, value, self.texts, self.counts, window=None, causal=False, **options)
            return context.flatten(2).transpose(0, 1), None
        context = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, self._mask(attention_mask, query), dropout_p=dropout, scale=inner.scaling
        )
        return context.transpose(1, 2).flatten(2), None

    def _split_heads(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], -1, self.inner.attention_head_size).transpose(1, 2)

    def _mask(self, mask: Tensor | None, query: Tensor) -> Tensor | None:
        """Return the rows of the mask for the queries; it may have one row for all."""
        assert self.positions is not None
        if mask is None:
            return None
        if mask.shape[-2] > 1:
            mask = mask.gather(2, self.positions[:, None, :, None].expand(-1, mask.shape[1], -1, mask.shape[3]))
        return mask if mask.dtype == torch.bool else mask.to(query.dtype)


def _last_attention(model: Any) -> Any:
    """Return the attention of the last layer if it is built as in BERT, else None."""
    layers = getattr(getattr(model.base_model, "encoder", None), "layer", [None])
    attention = getattr(layers[-1], "attention", None)
    inner = getattr(attention, "self", None)
    known = all(hasattr(inner, name) for name in ("query", "key", "value", "scaling", "dropout"))
    return attention if known else None


def gather_states(states: Tensor, positions: Tensor) -> Tensor:
    """Return the states at some positions of each row."""
    return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def get_last_layer(model: Any) -> LastLayer:
    """Return the LastLayer of a model; create it at the first call."""
    if not hasattr(model.base_model, _NAME):
        setattr(model.base_model, _NAME, LastLayer(model))
    found: LastLayer = getattr(model.base_model, _NAME)
    return found
