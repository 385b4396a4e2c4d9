"""Run models of transformers on the texts of a batch, as one row of tokens or padded; the last layer as needed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from danseo.models.encoder.packed_texts import PackedTexts, PaddedTexts, attend, is_packed, pack_inputs
from danseo.training.features import Features


def make_row(features: Sequence[Features], with_segments: bool) -> dict[str, Any]:
    """Return the tokens of all features in one row, and where each text is in it."""
    names = ("ids", "segments") if with_segments else ("ids",)
    rows = [np.concatenate([getattr(record, name) for record in features]).astype(np.int64) for name in names]
    tensors = {key: torch.from_numpy(row) for key, row in zip(("input_ids", "segments"), rows, strict=False)}
    return {**tensors, "texts": PackedTexts.of([len(record) for record in features])}


def run_model(
    model: Any,
    ids: Tensor,
    texts: PackedTexts | PaddedTexts,
    segments: Tensor | None = None,
    masks: Callable[[Tensor], Any] | None = None,
    sees_ahead: bool | None = None,
) -> dict[str, Any]:
    """Return the outputs of a model for the tokens of each text, in the order of the row."""
    if is_packed(model):
        assert isinstance(texts, PackedTexts)
        outputs = model(**pack_inputs(model, ids, texts, segments, sees_ahead))
        return {key: value[0] if isinstance(value, Tensor) else value for key, value in outputs.items()}
    outputs = model(**_pad_inputs(model, ids, texts, segments, masks))
    return {
        key: texts.unpad(value)
        for key, value in outputs.items()
        if isinstance(value, Tensor) and value.shape[:2] == texts.mask.shape
    }


def classify_texts(model: Any, ids: Tensor, texts: PackedTexts | PaddedTexts, segments: Tensor | None = None) -> Tensor:
    """Return the logits of a stock classifier for each text; its last layer computes only the first tokens."""
    if not is_packed(model):
        inputs = _pad_inputs(model, ids, texts, segments)
        with get_last_layer(model).at(torch.zeros_like(inputs["input_ids"][:, :1])):
            return model(**inputs).logits  # type: ignore[no-any-return]
    assert isinstance(texts, PackedTexts)
    inputs = pack_inputs(model, ids, texts, segments, None)
    with get_last_layer(model).at(texts.starts, texts) as shortened:
        if shortened:
            return model(**inputs).logits  # type: ignore[no-any-return]
        with _pool_output(model.base_model, texts):
            return model(**inputs).logits  # type: ignore[no-any-return]


def states_at(model: Any, ids: Tensor, texts: PackedTexts, positions: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the states of some tokens of the row, as many of each text as the counts say."""
    body = model.base_model
    with get_last_layer(model).at(positions, texts, counts) as shortened:
        if shortened:
            states: Tensor = body(**pack_inputs(model, ids, texts, None, None)).last_hidden_state.squeeze(1)
            return states
    return run_model(body, ids, texts)["last_hidden_state"].index_select(0, positions)  # type: ignore[no-any-return]


def _pad_inputs(
    model: Any,
    ids: Tensor,
    texts: PackedTexts | PaddedTexts,
    segments: Tensor | None,
    masks: Callable[[Tensor], Any] | None = None,
) -> dict[str, Any]:
    """Return the inputs of a model that reads padded texts."""
    mask = texts.mask.long()
    padding = model.config.pad_token_id or 0  # which RoBERTa's positions depend on
    inputs = {"input_ids": _fill_padding(ids, texts, padding), "attention_mask": masks(mask) if masks else mask}
    return inputs | ({} if segments is None else {"token_type_ids": _fill_padding(segments, texts, 0)})


def _fill_padding(rows: Tensor, texts: PackedTexts | PaddedTexts, value: int) -> Tensor:
    return rows if isinstance(texts, PaddedTexts) else texts.pad(rows).masked_fill(~texts.mask, value)


@contextmanager
def _pool_output(body: Any, texts: PackedTexts) -> Iterator[None]:
    """Let a body return one state per text inside the block: the one that stock classifiers read."""

    def pool(module: Any, inputs: Any, outputs: Any) -> Any:
        row = outputs.last_hidden_state[0]
        if getattr(module.config, "classifier_pooling", "cls") == "mean":
            weights = texts.mask.unsqueeze(-1).to(row.dtype)
            states = (texts.pad(row) * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
        else:
            states = row.index_select(0, texts.starts).unsqueeze(1)
        outputs["last_hidden_state"] = states
        if outputs.get("pooler_output") is not None:
            outputs["pooler_output"] = module.pooler(states)
        return outputs

    handle = body.register_forward_hook(pool)
    try:
        yield
    finally:
        handle.remove()


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
        return states.gather(1, self.positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))

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


def get_last_layer(model: Any) -> LastLayer:
    """Return the LastLayer of a model; create it at the first call."""
    if not hasattr(model.base_model, _NAME):
        setattr(model.base_model, _NAME, LastLayer(model))
    found: LastLayer = getattr(model.base_model, _NAME)
    return found
