"""What learns where the weights of a language model stay: adapters in its layers (LoRA), and rows for added pieces."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config import RunConfig, TrainConfig
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.files import write_atomically
from danseo.hub import IN_THE_BOX, folder_of
from danseo.models.weights import check_finite, refuse_missing
from danseo.rows import read_object
from danseo.runs.directory import folder_identity, read_tensors

BASE = "base.json"
"""In a model folder without the body's own weights: where these are."""
_ADAPTERS, _ROWS = "adapter_model.safetensors", "rows.safetensors"
_PREFIX = "base_model.model."  # before the names in such files, by PEFT's convention


class AddedRows(nn.Module):
    """Vectors of the pieces that a kind adds, which learn though the table of the others does not."""

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


def stays(train: TrainConfig) -> bool:
    """Whether the settings leave the body's own weights as they are."""
    return train.lora > 0 or train.freeze == "encoder"


def check_settings(train: TrainConfig) -> None:
    """Refuse settings that contradict each other, and adapters without their library."""
    if train.lora and train.freeze != "none":
        raise DanseoError("train.lora and train.freeze exclude each other: adapters learn in every layer")
    if train.lora:
        require("peft")


def add_adapters(model: Any, train: TrainConfig) -> None:
    """Low-rank adapters beside every linear layer; they alone learn. At first they change nothing.

    They lie in float32 whatever the body lies in: small steps would be lost in bfloat16.
    """
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=train.lora, lora_alpha=train.lora_alpha, lora_dropout=train.lora_dropout, target_modules="all-linear"
    )
    inject_adapter_in_model(config, model)
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            weight.data = weight.data.float()


def save_adapters(model: Any, rows: AddedRows | None, base: str, folder: Path) -> None:
    """Adapters so that PEFT loads them onto the body, rows beside them, and where the body is."""
    from safetensors.torch import save_file

    model.config.save_pretrained(folder)
    if weights := _adapters_of(model):
        save_file({_PREFIX + key: _saved(value) for key, value in weights.items()}, folder / _ADAPTERS)
        config = model.peft_config["default"]
        config.base_model_name_or_path, config.inference_mode = base, True
        config.save_pretrained(folder)
    if rows is not None:
        save_file({"vectors": _saved(rows.vectors)}, folder / _ROWS)
    identity = {"sha256": folder_identity(there)} if (there := folder_of(base)) else {}
    write_atomically(folder / BASE, json.dumps({"model": base, **identity}, ensure_ascii=False))


def _adapters_of(model: Any) -> dict[str, Tensor]:
    """The weights of adapters by the names that PEFT gives them in files."""
    return {key.replace(".default.", "."): value for key, value in model.named_parameters() if ".lora_" in key}


def _saved(weight: Tensor) -> Tensor:
    return weight.detach().cpu().contiguous().clone()


@torch.no_grad()
def load_adapters(model: Any, rows: AddedRows | None, folder: Path) -> None:
    """What save_adapters wrote, all of it."""
    own = {_PREFIX + key: value for key, value in _adapters_of(model).items()}
    if own:
        _fill(own, folder / _ADAPTERS)
    if rows is not None:
        _fill({"vectors": rows.vectors}, folder / _ROWS)
    check_finite(str(folder), model)


def _fill(own: dict[str, Tensor], path: Path) -> None:
    found = read_tensors(path)
    fitting = {key for key in own.keys() & found.keys() if own[key].shape == found[key].shape}
    refuse_missing(str(path), own.keys() - fitting, {"unexpected_keys": found.keys() - own.keys()})
    for key in fitting:
        own[key].copy_(found[key])


def body_name(config: RunConfig) -> str:
    """The body's checkpoint, as it can be found from any folder."""
    folder = Path(config.model)
    is_own = folder.is_dir() and config.model not in IN_THE_BOX
    return str(folder.resolve()) if is_own else config.model


def body_of(source: Path) -> str:
    """Where the weights of a saved model's body are, unchanged since; they lie in the model folder or elsewhere."""
    if not (source / BASE).is_file():
        return str(source)
    noted = read_object(source / BASE).values
    name, identity = str(noted["model"]), noted.get("sha256")
    folder = folder_of(name)
    if identity and not folder:
        raise DanseoError(f"{source} holds adapters for {name}, which is not there; put that checkpoint back")
    if identity and folder and folder_identity(folder) != identity:
        raise DanseoError(f"{source} holds adapters for {name}, which has changed since; put the old one back")
    return name
