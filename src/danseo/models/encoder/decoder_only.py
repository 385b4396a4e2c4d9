"""Decoder-only language models as bodies: detection, special tokens, and attention masks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from danseo.errors import DanseoError

Masks = Callable[[Tensor], Any]
"""Function from the padding mask (batch, tokens) to the attention mask of the model."""


def is_decoder(body_config: Any) -> bool:
    """Return whether a checkpoint is a causal language model without a masked variant."""
    from transformers.models.auto import modeling_auto

    kind = body_config.model_type
    writes = kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return writes and kind not in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def check_body(name: str, body_config: Any) -> None:
    """Refuse multimodal checkpoints."""
    if not getattr(body_config, "hidden_size", None):
        raise DanseoError(
            f"{name} is not a plain language model ({body_config.model_type}); use its text-only checkpoint"
        )


def frame_inputs(tokenizer: Any) -> None:
    """Make every input begin with <bos> and every text end with <eos>.

    Heads ask for the names that encoders have for such tokens. Some tokenizers know no beginning, or no padding: the
    token that ends a text stands for both.
    """
    from tokenizers.processors import TemplateProcessing

    end = tokenizer.eos_token or tokenizer.pad_token
    if end is None:
        raise DanseoError(f"{tokenizer.name_or_path}: its tokenizer has no end-of-text token (eos_token)")
    first = tokenizer.bos_token or end
    tokenizer.pad_token = tokenizer.pad_token or end
    tokenizer.cls_token, tokenizer.sep_token = first, end
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {end}",
        pair=f"{first} $A {end} $B:1 {end}:1",
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in {first, end}],
    )


def masks_for(name: str, model: Any, attention: str) -> Masks:
    """Return the masks for this attention direction; check that the model follows them."""
    ways: list[Masks] = [lambda there: there] if attention == "causal" else _both_ways(model)
    for masks in ways:
        if _sees_ahead(model, masks) == (attention == "bidirectional"):
            return masks
    other = "causal" if attention == "bidirectional" else "bidirectional"
    raise DanseoError(f"{name}: its attention cannot be made {attention}; use encoder.attention_direction={other}")


def _both_ways(model: Any) -> list[Masks]:
    """Return masks per layer type, and one mask for all layers."""
    window = getattr(model.config, "sliding_window", None)
    types = set(getattr(model.config, "layer_types", None) or ())

    def by_type(there: Tensor) -> dict[str, Tensor]:
        return {name: open_mask(there, model, window if "sliding" in name else None) for name in types}

    def one(there: Tensor) -> Tensor:
        return open_mask(there, model, window)

    return [by_type, one] if types else [one]


def open_mask(there: Tensor, model: Any, window: int | None) -> Tensor:
    """Return a mask (batch, 1, tokens, tokens) to all real tokens, or to those within the window."""
    positions = torch.arange(there.shape[1], device=there.device)
    away = (positions[:, None] - positions[None, :]).abs()
    seen = there.bool()[:, None, None, :] & (away < (window or len(positions) + 1))
    seen = seen | (away == 0)  # padding sees itself: a softmax over nothing is no number
    if model.config._attn_implementation == "sdpa":
        return seen
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, torch.finfo(torch.float32).min)


@torch.no_grad()
def _sees_ahead(model: Any, masks: Masks) -> bool:
    """Return whether the last token changes the first state."""
    was_training = model.training
    model.eval()
    ids = torch.tensor([[1, 2, 3], [1, 2, 4]], device=model.device)
    try:
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=model.dtype == torch.bfloat16):
            states = model(input_ids=ids, attention_mask=masks(torch.ones_like(ids))).last_hidden_state.float()
    except (AttributeError, KeyError, TypeError, ValueError):  # of a mask in the other form
        return False
    finally:
        model.train(was_training)
    return not torch.allclose(states[0, 0], states[1, 0], rtol=1e-4, atol=1e-5)
