"""Masked language models of every family: the body on a batch, and the vocabulary head only where it is asked for."""

from typing import Any

import torch
from torch import Tensor

from danseo.errors import DanseoError
from danseo.models.encoder.last_layer import last_layer, taken

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta-v2", "modernbert")


def vocabulary_logits(model: Any, hidden: Tensor) -> Tensor:
    """The model's own head on hidden states of any leading shape; its cost is per state, so gather them first."""
    kind = model.config.model_type
    if kind == "electra":
        logits: Tensor = model.generator_lm_head(model.generator_predictions(hidden))
    elif kind == "modernbert":
        logits = model.decoder(model.head(hidden))
    elif hasattr(model, "lm_head"):
        logits = model.lm_head(hidden)
    elif hasattr(model, "lm_predictions"):
        logits = model.lm_predictions(hidden, model.deberta.embeddings.word_embeddings)
    elif hasattr(model, "cls"):
        logits = model.cls(hidden)
    else:
        raise DanseoError(f"danseo knows no head of {kind} models; known families: {', '.join(FAMILIES)}")
    return logits


def hidden_states(model: Any, ids: Tensor, mask: Tensor, documents: Tensor | None = None) -> Tensor:
    """The last hidden states; rows that hold several documents number them, and no piece sees another's document."""
    if documents is None:
        outputs = model.base_model(input_ids=ids, attention_mask=mask)
    elif model.config.model_type == "deberta-v2":
        body = model.base_model
        embedded = body.embeddings(input_ids=ids, position_ids=restarted(documents), mask=mask)
        outputs = body.encoder(embedded, _together(documents, mask).unsqueeze(1), output_hidden_states=False)
    else:
        offset = model.config.pad_token_id + 1 if model.config.model_type in _COUNTED_FROM_PADDING else 0
        positions = (restarted(documents) + offset) * mask if offset else restarted(documents)
        attention = _attention(model, _together(documents, mask).unsqueeze(1))
        outputs = model.base_model(input_ids=ids, attention_mask=attention, position_ids=positions)
    states: Tensor = outputs.last_hidden_state
    return states


def states_at(model: Any, positions: Tensor, ids: Tensor, mask: Tensor, documents: Tensor | None = None) -> Tensor:
    """As hidden_states, but only those at some positions of each row: rows x positions x width."""
    with last_layer(model).at(positions) as shortened:
        states = hidden_states(model, ids, mask, documents)
    return states if shortened else taken(states, positions)


_COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "camembert")


def restarted(documents: Tensor) -> Tensor:
    """Positions that begin at 0 with every document of a row: 0 0 0 1 1 gives 0 1 2 0 1."""
    positions = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return positions - torch.where(begins, positions, 0).cummax(dim=1).values


def _together(documents: Tensor, mask: Tensor) -> Tensor:
    """Which pieces see each other; padding sees only itself, because a row of nothing has no softmax."""
    same = (documents.unsqueeze(1) == documents.unsqueeze(2)) & mask.bool().unsqueeze(1)
    return same | torch.eye(documents.shape[1], dtype=torch.bool, device=documents.device)


def _attention(model: Any, together: Tensor) -> Any:
    """The mask as the attention in use takes it; ModernBERT has a second one for its local layers."""
    if model.config.model_type != "modernbert":
        return _as_bias(model, together)
    positions = torch.arange(together.shape[-1], device=together.device)
    near = (positions.unsqueeze(0) - positions.unsqueeze(1)).abs() <= model.config.local_attention // 2
    return {"full_attention": _as_bias(model, together), "sliding_attention": _as_bias(model, together & near)}


def _as_bias(model: Any, together: Tensor) -> Tensor:
    if model.config._attn_implementation == "sdpa":
        return together  # takes booleans, whatever the precision
    return torch.zeros(together.shape, device=together.device).masked_fill_(~together, torch.finfo(torch.float32).min)
