"""Run models of transformers on the texts of a batch: as one row of tokens, or padded."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from danseo.models.encoder.last_layer import get_last_layer
from danseo.models.encoder.packed_texts import PackedTexts, PaddedTexts, is_packed, pack_inputs
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
    return {key: texts.unpad(value) for key, value in outputs.items() if _has_tokens(value, texts)}


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


def _has_tokens(value: Any, texts: PackedTexts | PaddedTexts) -> bool:
    """Return whether an output has a value for every token."""
    return isinstance(value, Tensor) and value.shape[:2] == texts.mask.shape


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
