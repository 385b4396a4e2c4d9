"""Load transformers checkpoints safely: no code, no pickles, and no missing weights go unnoticed."""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.files import read_json
from danseo.hub import find_model_folder, load_from_hub, resolve_model
from danseo.language import _
from danseo.models.remote_code import find_code, no_model_code
from danseo.runs.store import Run

_REPEATED = re.compile("layer|expert|label|head|group|depth|stage")
"""Settings that count objects which are created one by one."""
_MAX_REPEATED = 100_000
_NEEDED = ("num_hidden_layers", "n_layer", "n_layers", "num_attention_heads", "n_head", "n_heads")
_MAX_CONFIG_BYTES = 1 << 26
_COPIES = 4  # of a table that several parts of a model share and a file holds once
_NEW_WEIGHTS, _NEW_TENSORS = 1 << 24, 2_000  # a head that the file does not have yet
_PACKED = 8  # weights in a byte of a quantized checkpoint, at most


class _TooLarge(Exception):
    """The configuration needs more weights than the files contain."""


def check_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a checkpoint folder; refuse an unreadable one, or one with impossible counts."""
    path = folder / "config.json"
    try:
        if not path.is_file() or path.stat().st_size > _MAX_CONFIG_BYTES:
            raise ValueError("no file of a usual size")
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no object")
        counts = [(name, float(count)) for name, count in _find_counts(found)]
    except (OSError, ValueError, RecursionError, OverflowError):
        raise DanseoError(
            _("model {folder} is not a checkpoint folder: no readable config.json").format(folder=folder)
        ) from None
    for name, count in counts:
        least = 1 if name in _NEEDED else 0 if name.startswith(("num_", "n_")) else -_MAX_REPEATED
        if not least <= count <= _MAX_REPEATED:
            raise DanseoError(f"{path}: {name} = {count:g} is not possible; get the checkpoint again")
    return found


def _find_counts(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a configuration that count repeated parts."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _find_counts(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from _find_counts(each, name)
    elif (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and _REPEATED.search(name)
        and not name.endswith("_dim")
    ):
        yield name, value


def check_size(folder: Path, auto: Any, config: Any) -> None:
    """Refuse a folder whose configuration asks for far more weights than its safetensors files hold.

    The model is made without memory (on torch's meta device); the making stops where it becomes too large.
    """
    import torch

    held, tensors = count_held(folder)
    if not tensors:
        return  # the library says so, and makes nothing
    if getattr(config, "quantization_config", None):
        held *= _PACKED * 4
    most = _COPIES * held + _NEW_WEIGHTS
    try:
        limits = _limit_weights(most, 2 * _COPIES * tensors + _NEW_TENSORS)
        with torch.random.fork_rng(devices=[]), limits, torch.device("meta"):
            auto.from_config(config)
    except _TooLarge:
        raise DanseoError(
            f"{folder}: config.json asks for more weights than its safetensors files hold ({held:,}); get it again"
        ) from None


@contextmanager
def _limit_weights(most: int, most_tensors: int) -> Iterator[None]:
    """Raise _TooLarge inside the block once a model has more weights, or more tensors, than this."""
    from torch.nn.modules import module

    weights = tensors = 0

    def count(owner: Any, name: str, tensor: Any) -> None:
        nonlocal weights, tensors
        tensors += 1
        weights += tensor.numel() if tensor is not None else 0
        if weights > most or tensors > most_tensors:
            raise _TooLarge

    handles = (
        module.register_module_parameter_registration_hook(count),
        module.register_module_buffer_registration_hook(count),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def count_held(folder: Path) -> tuple[int, int]:
    """Count the weights and the tensors in the safetensors files of a folder by their headers alone."""
    from safetensors import SafetensorError, safe_open

    weights = tensors = 0
    for path in sorted(folder.glob("*.safetensors")):
        if not path.is_file():  # a pipe would be waited for
            raise DanseoError(f"{path} is not a file; get the checkpoint again")
        try:
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    weights += math.prod(file.get_slice(name).get_shape())
                    tensors += 1
        except (OSError, SafetensorError, ValueError) as error:
            raise DanseoError(f"{path} is corrupted: {' '.join(str(error).split())[:120]}; get it again") from None
    return weights, tensors


_SHOWN = 3


def check_new(name: str, model: Any, report: Mapping[str, Any], *, head: str = "") -> list[str]:
    """Refuse a checkpoint that lacks more than a head or a pooling layer; return the new weights.

    These may be absent because they are about to be learned, each part as a whole: masked language models have no
    pooling layer, and no checkpoint has a head for the task. A head that is named is one part.
    """
    missing = set(report["missing_keys"])
    found = {_part(model, key, head) for key in _own_names(model) - missing}
    refuse_missing(name, [key for key in missing if _part(model, key, head) in ("", *found)], report)
    refuse_nonfinite(name, model.named_parameters())
    return sorted(missing)


def check_whole(name: str, model: Any, report: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that lacks any weight of its model."""
    refuse_missing(name, report["missing_keys"], report)
    refuse_nonfinite(name, model.named_parameters())


def refuse_missing(name: str, missing: Collection[str], report: Mapping[str, Any]) -> None:
    """Refuse a model with missing weights; name these and the unexpected ones."""
    if missing:
        instead = f", while {_few(found)} have no place in it" if (found := report["unexpected_keys"]) else ""
        raise DanseoError(f"{name} lacks {_few(missing)}{instead}; its weights are corrupted or of another model")


def is_head(model: Any, key: str) -> bool:
    """Return whether a weight belongs to the head."""
    return model.base_model is not model and not key.startswith(f"{model.base_model_prefix}.")


def _part(model: Any, key: str, head: str) -> str:
    """Return the part of a weight that may be new: the pooling layer or a part of the head; "" for the body."""
    steps = key.split(".")
    return "pooler" if "pooler" in steps else head or steps[0] if is_head(model, key) else ""


def _own_names(model: Any) -> set[str]:
    """Return the names of all weights; a head that shares the embeddings has none for them."""
    shared = model.get_input_embeddings().weight
    return {key for key, weight in model.named_parameters() if weight is not shared or not is_head(model, key)}


def refuse_nonfinite(name: str | Path, weights: Iterable[tuple[str, Any]]) -> None:
    """Refuse named weights that are NaN or infinite."""
    odd = [key for key, weight in weights if weight.is_floating_point() and not weight.isfinite().all()]
    if odd:
        raise DanseoError(f"{name}: {_few(odd)} with NaN or infinite numbers; get or train it again")


def _few(keys: Collection[str]) -> str:
    """Return the number of weights and the first names."""
    count = f"{len(keys):,} weight{'s' if len(keys) != 1 else ''}"
    return f"{count} ({', '.join(sorted(keys)[:_SHOWN])}{', …' if len(keys) > _SHOWN else ''})"


def apply_trust(run: Run, trust_remote_code: bool) -> RunConfig:
    """Return the settings of a run; whether code of its model may run is decided by the command, never by the run."""
    config = run.config
    if config.trust_remote_code and not trust_remote_code:
        raise DanseoError(
            f"{run.path} was trained with code that came with its checkpoint; if you trust it, add "
            "--trust-remote-code to run it again"
        )
    return config.model_copy(update={"trust_remote_code": trust_remote_code})


def refuse_code(folder: Path, trust_remote_code: bool) -> None:
    """Refuse a model folder that contains or names Python code, unless the command allows it."""
    if not trust_remote_code and (found := find_code(folder)):
        raise DanseoError(
            _("model code is not allowed: {file}; allow it with --trust-remote-code").format(file=folder / found)
        )


def load_config(model: str, trust_remote_code: bool, **more: Any) -> Any:
    """Return the configuration of a checkpoint, of a type that transformers knows."""
    if folder := find_model_folder(model):
        check_config(folder)
    config = _load("AutoConfig", model, trust_remote_code, more)
    if not trust_remote_code:
        forget_code(config)
        _refuse_kernels(model, config)
    return config


def load_tokenizer(model: str, trust_remote_code: bool, **more: Any) -> Any:
    """Return the tokenizer of a checkpoint."""
    tokenizer = _load("AutoTokenizer", model, trust_remote_code, more)
    if not trust_remote_code:
        tokenizer.init_kwargs.pop("auto_map", None)  # or it would be saved with the run
    tokenizer("가\U0010ffff")  # one that cannot read what it does not know fails here
    _ = tokenizer.pad_token_id, tokenizer.unk_token_id  # and one whose special tokens are not in its vocabulary here
    return tokenizer


def load_weights(auto: str, model: str, trust_remote_code: bool, **more: Any) -> tuple[Any, Any]:
    """Return a model made by an AutoModel class with weights from safetensors, and what transformers reports of it."""
    if folder := find_model_folder(model):
        _refuse_other_weights(folder)
        config = load_config(model, trust_remote_code)  # refuses what must not be loaded
        if not trust_remote_code:
            check_size(folder, getattr(quiet_transformers(), auto), config)
    more |= {"use_safetensors": True, "output_loading_info": True}
    made, report = _load(auto, model, trust_remote_code, more)
    if not trust_remote_code:
        forget_code(made.config)
    forget_gguf(made)
    return made, report


def _load(auto: str, model: str, trust_remote_code: bool, more: dict[str, Any]) -> Any:
    name, options = resolve_model(model)
    if folder := find_model_folder(model):
        refuse_code(folder, trust_remote_code)
    make = getattr(quiet_transformers(), auto).from_pretrained
    with no_model_code(trust_remote_code):
        return load_from_hub(name, lambda: make(name, **options, **more, trust_remote_code=trust_remote_code))


def quiet_transformers() -> Any:
    """Return the library without its reports of loading, its progress bars and the Hub's report of every retry."""
    import logging

    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for library in ("transformers", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.ERROR)
    return transformers


def forget_code(config: Any) -> None:
    """Remove every name of code from a configuration, so that no library finds it there later."""
    for each in _with_parts(config):
        each.__dict__.pop("auto_map", None)


def forget_gguf(model: Any) -> None:
    """Remove the mark that weights were read from GGUF, which would prevent saving them."""
    quantizer = getattr(model, "hf_quantizer", None)
    if getattr(getattr(quantizer, "quantization_config", None), "quant_method", None) == "gguf":
        model.hf_quantizer, model.is_quantized = None, False
        for each in _with_parts(model.config):
            each.__dict__.pop("quantization_config", None)


def _refuse_kernels(model: str, config: Any) -> None:
    """Refuse attention and expert layers that would be fetched from the Hub as compiled code."""
    for each in _with_parts(config):
        for name in ("_attn_implementation", "_experts_implementation"):
            if "/" in str(getattr(each, name, None) or ""):
                raise DanseoError(
                    f"model code is not allowed: {model} names {getattr(each, name)}; allow it with --trust-remote-code"
                )


def _with_parts(config: Any) -> list[Any]:
    """Return a configuration and its nested ones."""
    inner = [value for value in vars(config).values() if hasattr(value, "model_type") and hasattr(value, "to_dict")]
    return [config, *(each for value in inner for each in _with_parts(value))]


def _refuse_other_weights(folder: Path) -> None:
    """Refuse pickled weights, and adapters next to a model."""
    if (folder / "adapter_config.json").exists():
        raise DanseoError(f"{folder} holds adapters, not a whole model; merge them first (danseo export --to merged)")
    for path in folder.glob("*.safetensors.index.json"):
        index = read_json(path)
        parts = index.get("weight_map") if isinstance(index, dict) else None
        names = parts.values() if isinstance(parts, dict) else ()
        if any(not str(name).endswith(".safetensors") or Path(str(name)).name != name for name in names):
            raise DanseoError(f"{path} names files that are no safetensors of this folder; get the checkpoint again")
