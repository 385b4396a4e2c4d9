"""Longer inputs for a trained model: position tables grown as each architecture needs it, and nothing else changed."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from danseo.errors import DanseoError
from danseo.models.encoder.network import usable_positions

_COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "camembert")
_TABLE = "embeddings.position_embeddings.weight"


def extend(model: Any, seq_len: int) -> tuple[Any, str]:
    """The model with room for that many pieces, and a line that says what was done.

    New rows repeat the learned ones from the first on, so that inputs of the old length give the same outputs and
    longer ones start from rows that mean something. A plain from_pretrained loads what is saved.
    """
    family, room = model.config.model_type, usable_positions(model.config)
    if family == "modernbert":
        if seq_len > room:
            model.config.max_position_embeddings = seq_len
        return model, f"modernbert turns positions into angles: no weights are added for {seq_len} pieces"
    if family == "deberta-v2" and not getattr(model.config, "position_biased_input", True):
        return model, (
            f"deberta-v2 without absolute positions has no limit: nothing is added for {seq_len} pieces, and "
            f"max_position_embeddings stays {model.config.max_position_embeddings}, the scale of its buckets"
        )
    if family not in ("bert", "electra", "deberta-v2", *_COUNTED_FROM_PADDING):
        raise DanseoError(f"danseo cannot extend {family} models; use one of at least {seq_len} positions")
    if seq_len <= room:
        return model, f"{room} positions are enough for {seq_len} pieces"
    return _regrown(model, seq_len), f"position table extended from {room} to {seq_len} pieces"


def _regrown(model: Any, seq_len: int) -> Any:
    config = deepcopy(model.config)
    counted = config.model_type in _COUNTED_FROM_PADDING
    skipped = config.pad_token_id + 1 if counted else 0
    if config.model_type == "deberta-v2":  # its relative tables and buckets are scaled by the old number unless told
        stated = getattr(config, "max_relative_positions", -1)
        config.max_relative_positions = stated if stated >= 1 else config.max_position_embeddings
    config.max_position_embeddings = seq_len + skipped
    state = {
        name: _tiled(tensor, seq_len, skipped) if name.endswith(_TABLE) else tensor
        for name, tensor in model.state_dict().items()
    }
    with torch.random.fork_rng(devices=[]):
        grown = type(model)(config)
    grown.load_state_dict(state)
    grown.tie_weights()
    return grown.train(model.training)


def _tiled(table: Tensor, seq_len: int, skipped: int) -> Tensor:
    """The rows before the first position as they are, then the learned ones over and over."""
    learned = table[skipped:]
    positions = torch.arange(seq_len, device=table.device) % len(learned)
    return torch.cat([table[:skipped], learned[positions]])
