"""How many pieces a masked language model reads, by the rules of its architecture."""

from typing import Any

from danseo.errors import DanseoError

_SENSIBLE = 1_000_000  # tokenizers without a limit name an astronomical one
_OFFSET_FAMILIES = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "longformer", "data2vec-text")


def position_limit(config: Any) -> tuple[int | None, bool]:
    """The length that the configuration states, and whether more is impossible.

    RoBERTa's positions start behind its padding id: 514 rows are 512 pieces. DeBERTa-v2 without absolute positions
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


def readable_length(config: Any, tokenizer: Any, asked: int | None = None) -> int:
    """The length to probe with: what was asked for, else what model and tokenizer state."""
    limit, is_hard = position_limit(config)
    if asked is not None:
        if limit is not None and is_hard and asked > limit:
            raise DanseoError(f"--seq-len {asked} is more than the {limit} pieces that this {config.model_type} reads")
        return asked
    if limit is None:
        raise DanseoError("the checkpoint's config.json states no max_position_embeddings; give --seq-len")
    stated = getattr(tokenizer, "model_max_length", None) or _SENSIBLE
    return min(limit, int(stated)) if stated < _SENSIBLE else limit
