"""Language models from folders and the Hub, with what fine-tuning added."""

from pathlib import Path
from typing import Any

import torch

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.hub import pretrained
from danseo.models.encoder.network import quiet_transformers
from danseo.runs.directory import folder_identity


def load_language_model(config: RunConfig, name: str, adapters: Path | None = None) -> tuple[Any, Any, str]:
    """The model in memory, its tokenizer, and what tells it from others."""
    transformers = quiet_transformers()
    check_kind(name, config.trust_remote_code)
    source, options = pretrained(name)
    options |= {"trust_remote_code": config.trust_remote_code}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype_of(config), **options)
    except (OSError, ValueError, KeyError) as error:
        raise DanseoError(f"llm:{name} cannot be loaded: {' '.join(str(error).split())[:200]}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise DanseoError(f"llm:{name} has no fast tokenizer, which guided replies need; use another checkpoint")
    identity = folder_identity(Path(name)) if Path(name).is_dir() else name
    if adapters:
        identity = f"{identity}+{folder_identity(adapters)}"
    return model, tokenizer, identity


def check_kind(name: str, trust_remote_code: bool = False) -> Any:
    """The configuration of a checkpoint that writes; others are refused before their weights are read."""
    from danseo.models.encoder.decoder import is_decoder

    source, options = pretrained(name)
    try:
        found = quiet_transformers().AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code, **options)
    except (OSError, ValueError) as error:
        raise DanseoError(f"llm:{name} cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not is_decoder(found):
        raise DanseoError(
            f"llm:{name} is no language model that writes ({found.model_type}); without llm: it can be trained"
        )
    return found


def dtype_of(config: RunConfig) -> torch.dtype:
    """bf16 where the device gains by it, else full."""
    named = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    if config.train.precision in named:
        return named[config.train.precision]
    return torch.bfloat16 if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else torch.float32
