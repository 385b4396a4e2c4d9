"""Load language models from folders and the Hub."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.hub import find_model_folder
from danseo.models.checkpoint import check_whole, load_config, load_tokenizer, load_weights, quiet_transformers
from danseo.models.encoder.decoder_only import is_decoder
from danseo.models.encoder.lora import add_adapters
from danseo.models.encoder.model_info import above_embeddings
from danseo.models.encoder.network import loading_error, loading_reason
from danseo.models.llm.family import get_checkpoint
from danseo.runs.store import hash_folder
from danseo.training.precision import stores_bf16


def load_language_model(
    config: RunConfig,
    name: str,
    device: torch.device,
    adapters: Path | None = None,
    *,
    learns: bool = False,
    as_stored: bool = False,
) -> tuple[Any, Any, str]:
    """Return model, tokenizer and identity hash; weights that train are in float32, or as in the file."""
    found = check_causal_model(name, config.trust_remote_code)
    try:
        kept = getattr(found, "dtype", None) if as_stored else None
        dtype = (kept or torch.float32) if learns else choose_dtype(config, found, device)
        tokenizer = load_tokenizer(name, config.trust_remote_code)
        quantized = make_quantization_config(config.llm.quantization, dtype)
        more = {"quantization_config": quantized, "device_map": {"": device}} if quantized else {}
        model, report = load_weights("AutoModelForCausalLM", name, config.trust_remote_code, dtype=dtype, **more)
    except Exception as error:  # the library raises many kinds for the same few causes
        raise loading_error(name, error) from None
    check_whole(f"llm:{name}", model, report)
    if learns and getattr(model, "hf_quantizer", None):
        raise DanseoError(f"llm:{name}: quantized weights cannot be trained; train adapters: --set llm.lora_rank=16")
    if not getattr(tokenizer, "is_fast", False):
        raise DanseoError(f"llm:{name} has no fast tokenizer, which guided replies need; use another checkpoint")
    folder = find_model_folder(name)
    identity = hash_folder(folder) if folder else name
    if adapters:
        identity = f"{identity}+{hash_folder(adapters)}"
    model = model if quantized else model.to(device)
    check_forward(f"llm:{name}", model, (tokenizer.bos_token_id, tokenizer.eos_token_id))
    return model, tokenizer, identity


def make_empty_language_model(config: RunConfig, device: torch.device) -> Any:
    """Return the model of a fine-tuning with weights that were never loaded; call it where tensors need no memory."""
    name, lora = get_checkpoint(config.model), config.llm
    found = check_causal_model(name, config.trust_remote_code)
    make = quiet_transformers().AutoModelForCausalLM.from_config
    dtype = choose_dtype(config, found, device) if lora.lora_rank else torch.float32
    model = make(found, trust_remote_code=config.trust_remote_code, dtype=dtype)
    model.config.use_cache = False
    if lora.lora_rank:
        add_adapters(model, lora)
    return model


def make_quantization_config(quantization: str, dtype: torch.dtype) -> Any:
    """Return how bitsandbytes quantizes frozen weights while they are loaded; None if it does not."""
    if quantization == "none":
        return None
    from transformers import BitsAndBytesConfig

    if quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=quantization,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def check_forward(name: str, model: Any, special_ids: Sequence[int | None] = ()) -> None:
    """Refuse a model whose logits for a few tokens are not finite."""
    ids = [0, 1, *(token for token in special_ids if token is not None)]
    try:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([ids], device=model.device)).logits
        is_finite = bool(logits.isfinite().all())
    except Exception as error:  # of any layer, for any setting that does not fit the others
        raise DanseoError(
            f"{name} cannot compute: {loading_reason(error)}; check its config.json and tokenizer"
        ) from None
    if not is_finite:
        raise DanseoError(f"{name} computes NaN or infinite numbers ({model.dtype}); try --set precision=fp32")


def check_causal_model(name: str, trust_remote_code: bool = False) -> Any:
    """Return the configuration of a causal language model; refuse others before loading weights."""
    try:
        found = load_config(name, trust_remote_code)
    except Exception as error:  # as above
        raise loading_error(name, error) from None
    if not is_decoder(found):
        raise DanseoError(
            f"llm:{name} is no language model that writes ({found.model_type}); without llm: it can be trained"
        )
    return found


def choose_dtype(config: RunConfig, body: Any, device: torch.device) -> torch.dtype:
    """Return the dtype of frozen weights: by the settings, else bf16 if the device gains by it."""
    named = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    if config.train.precision in named:
        return named[config.train.precision]
    return torch.bfloat16 if stores_bf16(above_embeddings(vars(body)), device) else torch.float32
