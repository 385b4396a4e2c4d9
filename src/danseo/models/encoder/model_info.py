"""Facts about an encoder without loading torch: location, size, positions, and valid settings."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from danseo.config.run import BASELINES, RunConfig
from danseo.errors import DanseoError
from danseo.hub import BUNDLED_MODELS, check_spelling, find_model_folder, resolve_model
from danseo.language import _
from danseo.models.checkpoint import check_config
from danseo.tasktypes.base import Task

PACKAGES = ("torch", "transformers", "safetensors")


def check_encoder(config: RunConfig, task: Task) -> None:
    """Refuse settings that do not apply to the task, or that exclude each other."""
    encoder = config.encoder
    of_labels = {
        "encoder.loss": encoder.loss != "ce",
        "encoder.rdrop_alpha": encoder.rdrop_alpha,
        "encoder.multi_sample_dropout": encoder.multi_sample_dropout > 1,
    }
    from danseo.models.encoder.heads import get_head_class

    if not task.type.has_single_label and (named := [name for name, is_on in of_labels.items() if is_on]):
        raise DanseoError(f"{named[0]} is for tasks with one label per example, and {task.name} is none; leave it out")
    if encoder.type_mask != "none" and not get_head_class(task).reads_entities:
        raise DanseoError(f"encoder.type_mask needs the types of two entities, which {task.name} has not; leave it out")
    if encoder.hard_negative_ratio < 1 and not task.nothing:
        raise DanseoError(
            f"encoder.hard_negative_ratio needs a label for nothing, which {task.name} has not; leave it out"
        )
    if encoder.loss == "class_balanced" and encoder.class_weights != "none":
        raise DanseoError("encoder.loss = class_balanced has its own weights; leave encoder.class_weights at none")
    if encoder.type_mask == "training" and encoder.label_smoothing:
        raise DanseoError("label smoothing asks for labels that encoder.type_mask = training forbids; use one of them")


def size_of(model: str, trust_remote_code: bool, offline: bool) -> float | None:
    """Return the number of weights above the embeddings, from the configuration."""
    if folder := find_model_folder(model):
        facts = check_config(folder)
        if not any(folder.glob("*.safetensors")):
            raise DanseoError(
                _(
                    "model {model} has no safetensors weights; danseo loads no pickles: turn them with `danseo "
                    "export {model} --to safetensors`"
                ).format(model=model)
            )
        return above_embeddings(facts)
    found = configuration(model, trust_remote_code, offline)
    return above_embeddings(vars(found)) if found is not None else None


def configuration(model: str, trust_remote_code: bool, offline: bool) -> Any:
    """Return the configuration of a checkpoint; offline None if it is not on this machine."""
    folder = find_model_folder(model)
    if folder and offline:
        return _as_namespace(check_config(folder))
    if not folder:
        check_id(model)
    if offline:
        return _as_namespace(kept_configuration(model))
    resolve_model(model)  # what is wrong with the name shows before torch is loaded
    from danseo.models.encoder.network import load_encoder_config

    return load_encoder_config(model, trust_remote_code)


def _as_namespace(found: Mapping[str, Any] | None) -> Any:
    return SimpleNamespace(**{"model_type": "", **found}) if found else None


def find(model: str) -> tuple[str, dict[str, Any]]:
    """Return the location of an encoder; report a misspelt baseline or bundled model before asking the Hub."""
    if not find_model_folder(model):
        check_spelling(model, (*BASELINES, *BUNDLED_MODELS))
    return resolve_model(model)


def usable_positions(encoder_config: Any) -> int:
    """Return how many tokens an encoder reads; RoBERTa's positions start behind its padding id."""
    positions: int = getattr(encoder_config, "max_position_embeddings", 0) or 512
    if encoder_config.model_type in ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"):
        positions -= (getattr(encoder_config, "pad_token_id", 1) or 0) + 1
    return positions


def known_positions(model: str) -> int | None:
    """Return how many tokens a checkpoint on this machine reads; None where its configuration does not say."""
    try:
        found = configuration(model, trust_remote_code=False, offline=True)
    except DanseoError:  # reported where the model is loaded
        return None
    stated = getattr(found, "max_position_embeddings", None)
    return usable_positions(found) if isinstance(stated, int) and stated > 0 else None


def check_id(model: str) -> None:
    """Refuse a name that is neither a folder nor a Hub id."""
    check_spelling(model, (*BASELINES, *BUNDLED_MODELS))
    if model.startswith(("/", ".", "~")):
        raise DanseoError(_("model {model}: no such folder").format(model=model))


def above_embeddings(facts: Mapping[str, Any]) -> float:
    """Return the number of weights in the layers, by default those of a base model."""
    numbers = (facts.get("hidden_size") or 768, facts.get("num_hidden_layers") or 12)
    hidden, layers = (float(n) if isinstance(n, int | float) and 0 < n < 1e9 else 1.0 for n in numbers)
    return 12 * hidden * hidden * layers


def kept_configuration(model: str) -> dict[str, Any] | None:
    """Return the cached configuration of a Hub model; downloads nothing."""
    from huggingface_hub import try_to_load_from_cache

    name, _, revision = model.partition("@")
    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision or None)
    except ValueError:
        raise DanseoError(f"model {model}: neither a folder nor an id of the Hub such as klue/roberta-base") from None
    return check_config(Path(found).parent) if isinstance(found, str) else None
