"""Input lengths of masked language models: limits of each architecture, and longer position tables."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from danseo.errors import DanseoError
from danseo.models.encoder.model_info import usable_positions
from danseo.models.mlm.objective import COUNTED_FROM_PADDING

_NO_LIMIT = 1_000_000  # tokenizers without a limit have a larger number
_OFFSET_FAMILIES = (*COUNTED_FROM_PADDING, "xlm-roberta-xl", "longformer", "data2vec-text")


def get_position_limit(config: Any) -> tuple[int | None, bool]:
    """Return the length that the configuration states, and whether it is a hard limit.

    RoBERTa's positions start behind its padding id: 514 rows are 512 tokens. DeBERTa-v2 without absolute positions
    has no limit: its number only scales the buckets of far distances.
    """
    stated = getattr(config, "max_position_embeddings", None)
    if not isinstance(stated, int) or stated <= 0:
        return None, False
    if config.model_type in _OFFSET_FAMILIES:
        return stated - (config.pad_token_id or 0) - 1, True
    if config.model_type in ("deberta", "deberta-v2"):
        return stated, bool(getattr(config, "position_biased_input", True))
    return stated, True


def choose_length(config: Any, tokenizer: Any, requested: int | None = None) -> int:
    """Return the requested length, else that of model and tokenizer."""
    limit, is_hard = get_position_limit(config)
    if requested is not None:
        if limit is not None and is_hard and requested > limit:
            raise DanseoError(
                f"--seq-len {requested} is more than the {limit} tokens that this {config.model_type} reads; lower it"
            )
        return requested
    if limit is None:
        raise DanseoError("the checkpoint's config.json states no max_position_embeddings; give --seq-len")
    stated = getattr(tokenizer, "model_max_length", None) or _NO_LIMIT
    return min(limit, int(stated)) if stated < _NO_LIMIT else limit


_TABLE = "embeddings.position_embeddings.weight"


def extend_positions(model: Any, seq_len: int) -> tuple[Any, str]:
    """Extend the positions of a model; return it and a line that describes the change.

    New rows repeat the learned ones from the first on, so that inputs of the old length give the same outputs and
    longer ones start from rows that mean something. A plain from_pretrained loads what is saved.
    """
    architecture, positions = model.config.model_type, usable_positions(model.config)
    if architecture == "modernbert":
        if seq_len > positions:
            model.config.max_position_embeddings = seq_len
        return model, f"modernbert turns positions into angles: no weights are added for {seq_len} tokens"
    if architecture == "deberta-v2" and not getattr(model.config, "position_biased_input", True):
        return model, (
            f"deberta-v2 without absolute positions has no limit: nothing is added for {seq_len} tokens, and "
            f"max_position_embeddings stays {model.config.max_position_embeddings}, the scale of its buckets"
        )
    if architecture not in ("bert", "electra", "deberta-v2", *COUNTED_FROM_PADDING):
        raise DanseoError(
            f"positions of {architecture} models cannot be extended; use one of at least {seq_len} positions"
        )
    if seq_len <= positions:
        return model, f"{positions} positions are enough for {seq_len} tokens"
    return _extend_table(model, seq_len), f"position table extended from {positions} to {seq_len} tokens"


def _extend_table(model: Any, seq_len: int) -> Any:
    """Return a copy of the model whose position table has a row for each of `seq_len` tokens."""
    config = deepcopy(model.config)
    skipped = config.pad_token_id + 1 if config.model_type in COUNTED_FROM_PADDING else 0
    if config.model_type == "deberta-v2":  # without this its relative tables and buckets get another scale
        stated = getattr(config, "max_relative_positions", -1)
        config.max_relative_positions = stated if stated >= 1 else config.max_position_embeddings
    config.max_position_embeddings = seq_len + skipped
    state = {
        name: _repeat_rows(tensor, seq_len, skipped) if name.endswith(_TABLE) else tensor
        for name, tensor in model.state_dict().items()
    }
    with torch.random.fork_rng(devices=[]):
        extended = type(model)(config)
    extended.load_state_dict(state)
    extended.tie_weights()
    return extended.train(model.training)


def _repeat_rows(table: Tensor, seq_len: int, skipped: int) -> Tensor:
    """Repeat the learned rows; the rows before the first position stay unchanged."""
    learned = table[skipped:]
    positions = torch.arange(seq_len, device=table.device) % len(learned)
    return torch.cat([table[:skipped], learned[positions]])
