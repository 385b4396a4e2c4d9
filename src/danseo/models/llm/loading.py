"""Language models from folders and the Hub, with what fine-tuning added."""

from pathlib import Path
from typing import Any

import torch

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.hub import pretrained
from danseo.models.encoder.facts import above_embeddings
from danseo.models.encoder.network import quiet_transformers
from danseo.runs.directory import folder_identity
from danseo.training.speed import keeps_half


def load_language_model(
    config: RunConfig, name: str, device: torch.device, adapters: Path | None = None, *, learns: bool = False
) -> tuple[Any, Any, str]:
    """The model on its device, its tokenizer, and what tells it from others; weights that learn lie in float32."""
    transformers = quiet_transformers()
    found = check_kind(name, config.trust_remote_code)
    dtype = torch.float32 if learns else dtype_of(config, found, device)
    source, options = pretrained(name)
    options |= {"trust_remote_code": config.trust_remote_code}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    except (OSError, ValueError, KeyError) as error:
        raise DanseoError(f"llm:{name} cannot be loaded: {' '.join(str(error).split())[:200]}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise DanseoError(f"llm:{name} has no fast tokenizer, which guided replies need; use another checkpoint")
    identity = folder_identity(Path(name)) if Path(name).is_dir() else name
    if adapters:
        identity = f"{identity}+{folder_identity(adapters)}"
    return model.to(device), tokenizer, identity


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


def dtype_of(config: RunConfig, body: Any, device: torch.device) -> torch.dtype:
    """How weights that stay as they are lie: as the settings say, else in bf16 where the device gains by it."""
    named = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    if config.train.precision in named:
        return named[config.train.precision]
    return torch.bfloat16 if keeps_half(above_embeddings(vars(body)), device) else torch.float32
