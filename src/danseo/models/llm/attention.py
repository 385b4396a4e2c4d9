"""Attention behind a long beginning: heads that share keys read them where they lie, and no key is copied.

The library copies the keys for every head that shares them, in every layer at every token: most of the time of a step
behind some hundred tokens. Here such heads stand one below the other as further questions to the same keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

GROUPED = "danseo_grouped"


@contextmanager
def shared_keys(model: Any) -> Iterator[None]:
    """For as long as the block lasts, where the model computes by sdpa."""
    before = model.config._attn_implementation
    if before != "sdpa":
        yield
        return
    _register()
    model.set_attn_implementation(GROUPED)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def takes_flags(model: Any) -> bool:
    """Whether the attention that the model uses takes masks of flags; others want numbers to add."""
    return model.config._attn_implementation in ("sdpa", GROUPED)


def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(GROUPED, grouped)
    with suppress(ImportError):  # of libraries that make masks otherwise
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

        AttentionMaskInterface.register(GROUPED, sdpa_mask)


def grouped(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """As the library's sdpa, of states (rows, heads, tokens, width) and masks of flags (rows, 1, tokens, keys)."""
    if attention_mask is None or query.shape[1] == key.shape[1]:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        others |= {"dropout": dropout, "scaling": scaling}
        found: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **others)[0]
        return found, None
    rows, heads, tokens, width = query.shape
    shared, keys = key.shape[1], key.shape[2]
    sharing = heads // shared
    mask = attention_mask[:, :, None, :, :keys].expand(-1, -1, sharing, -1, -1).flatten(2, 3)
    below = query.reshape(rows, shared, sharing * tokens, width)
    attend = torch.nn.functional.scaled_dot_product_attention
    states = attend(below, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return states.reshape(rows, heads, tokens, width).transpose(1, 2).contiguous(), None
