"""LoRA adapters and embeddings of added tokens, for bodies whose own weights are frozen."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config.run import RunConfig
from danseo.config.train import LoraSettings, TrainSettings
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.files import write_atomically
from danseo.hub import BUNDLED_MODELS, find_model_folder
from danseo.models.checkpoint import refuse_missing, refuse_nonfinite
from danseo.rows import read_object
from danseo.runs.store import hash_folder, read_tensors

BASE = "base.json"
"""File in a model folder without the body's weights: where these are."""
_ADAPTERS, _ROWS = "adapter_model.safetensors", "rows.safetensors"
_PREFIX = "base_model.model."  # before the names in such files, by PEFT's convention


class AddedRows(nn.Module):
    """Trainable embeddings of added tokens, while the other embeddings are frozen."""

    def __init__(self, table: Any, old: int) -> None:
        super().__init__()
        self.old, self.scale = old, float(getattr(table, "embed_scale", 1.0))
        spread = float(table.weight[: min(old, 1000)].float().std())
        with torch.no_grad():
            table.weight[old:] = 0
        self.vectors = nn.Parameter(torch.randn(table.weight.shape[0] - old, table.weight.shape[1]) * spread)
        table.register_forward_hook(self._add)

    def _add(self, table: Any, inputs: tuple[Tensor, ...], found: Tensor) -> Tensor:
        (ids,) = inputs
        vectors = nn.functional.embedding((ids - self.old).clamp(min=0), self.vectors) * self.scale
        return torch.where((ids >= self.old)[..., None], vectors.to(found.dtype), found)


def is_body_frozen(config: RunConfig) -> bool:
    """Return whether the settings freeze the body's own weights."""
    return config.encoder.lora_rank > 0 or config.train.freeze == "encoder"


def check_settings(lora: LoraSettings, train: TrainSettings) -> None:
    """Refuse contradictory settings, and adapters without peft."""
    if lora.lora_rank and train.freeze != "none":
        raise DanseoError("lora_rank and train.freeze exclude each other, as adapters learn in every layer; set one")
    if lora.lora_rank:
        require("peft")


def add_adapters(model: Any, lora: LoraSettings) -> None:
    """Freeze the model, and add trainable LoRA adapters to every linear layer; they start as zero.

    They lie in float32 whatever the body lies in: small steps would be lost in bfloat16.
    """
    from peft import LoraConfig, inject_adapter_in_model

    model.requires_grad_(False)
    config = LoraConfig(
        r=lora.lora_rank, lora_alpha=lora.lora_alpha, lora_dropout=lora.lora_dropout, target_modules="all-linear"
    )
    inject_adapter_in_model(config, model)
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            weight.data = weight.data.float()


def save_adapters(model: Any, rows: AddedRows | None, base: str, folder: Path) -> None:
    """Save adapters in the format of PEFT, added embeddings, and the location of the body."""
    from safetensors.torch import save_file

    model.config.save_pretrained(folder)
    if weights := _adapters_of(model):
        save_file({_PREFIX + key: _copy_to_cpu(value) for key, value in weights.items()}, folder / _ADAPTERS)
        config = model.peft_config["default"]
        config.base_model_name_or_path, config.inference_mode = base, True
        config.save_pretrained(folder)
    if rows is not None:
        save_file({"vectors": _copy_to_cpu(rows.vectors)}, folder / _ROWS)
    identity = {"sha256": hash_folder(there)} if (there := find_model_folder(base)) else {}
    write_atomically(folder / BASE, json.dumps({"model": base, **identity}, ensure_ascii=False))


def _adapters_of(model: Any) -> dict[str, Tensor]:
    """Return the adapter weights by their PEFT names."""
    return {key.replace(".default.", "."): value for key, value in model.named_parameters() if ".lora_" in key}


def _copy_to_cpu(weight: Tensor) -> Tensor:
    return weight.detach().cpu().contiguous().clone()


@torch.no_grad()
def load_adapters(model: Any, rows: AddedRows | None, folder: Path) -> None:
    """Load what save_adapters wrote."""
    own = {_PREFIX + key: value for key, value in _adapters_of(model).items()}
    if own:
        _load_tensors(own, folder / _ADAPTERS)
    if rows is not None:
        _load_tensors({"vectors": rows.vectors}, folder / _ROWS)
    refuse_nonfinite(folder, model.named_parameters())


def _load_tensors(own: dict[str, Tensor], path: Path) -> None:
    found = read_tensors(path)
    fitting = {key for key in own.keys() & found.keys() if own[key].shape == found[key].shape}
    refuse_missing(str(path), own.keys() - fitting, {"unexpected_keys": found.keys() - own.keys()})
    for key in fitting:
        own[key].copy_(found[key])


def get_body_name(config: RunConfig) -> str:
    """Return the body's checkpoint as a Hub id or an absolute path."""
    folder = Path(config.model)
    is_own = folder.is_dir() and config.model not in BUNDLED_MODELS
    return str(folder.resolve()) if is_own else config.model


def locate_body(source: Path) -> str:
    """Return where the body's weights are; refuse a folder that has changed since training."""
    if not (source / BASE).is_file():
        return str(source)
    noted = read_object(source / BASE).values
    name, identity = str(noted["model"]), noted.get("sha256")
    folder = find_model_folder(name)
    if identity and not folder:
        raise DanseoError(f"{source} holds adapters for {name}, which is not there; put that checkpoint back")
    if identity and folder and hash_folder(folder) != identity:
        raise DanseoError(f"{source} holds adapters for {name}, which has changed since; put the old one back")
    return name
