"""What is known of an encoder before torch is loaded: whether it is there, how large it is, what it needs."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from danseo.config import FLOORS, RunConfig
from danseo.errors import DanseoError
from danseo.hub import IN_THE_BOX, check_spelling, folder_of, pretrained
from danseo.tasks import get_task
from danseo.tasks.task import Task

PACKAGES = ("torch", "transformers", "safetensors")


def packages_of(model: str, task: str) -> tuple[str, ...]:
    """What an encoder needs for a task."""
    return (*PACKAGES, *(("ufal.chu-liu-edmonds",) if get_task(task).kind == "parse" else ()))


def check_encoder(config: RunConfig, task: Task) -> None:
    """Refuse settings that mean nothing for the task."""
    check_labels(config, task)


def check_labels(config: RunConfig, task: Task) -> None:
    """Refuse losses of labels for tasks without, types for those whose examples have none, and what excludes itself."""
    train, head = config.train, config.head
    of_labels = {
        "train.loss": train.loss != "ce",
        "train.rdrop": train.rdrop,
        "head.dropout_samples": head.dropout_samples > 1,
    }
    if task.kind != "classify" and (named := [name for name, is_on in of_labels.items() if is_on]):
        raise DanseoError(f"{named[0]} is for tasks with one label per example, and {task.name} is none; leave it out")
    if head.type_mask != "none" and task.form != "relation":
        raise DanseoError(f"head.type_mask needs the types of two entities, which {task.name} has not; leave it out")
    if train.hard_negatives < 1 and not task.nothing:
        raise DanseoError(f"train.hard_negatives needs a label for nothing, which {task.name} has not; leave it out")
    if train.loss == "class_balanced" and train.class_weights != "none":
        raise DanseoError("train.loss = class_balanced has weights of its own; leave train.class_weights at none")
    if head.type_mask == "training" and train.label_smoothing:
        raise DanseoError("label smoothing asks for labels that head.type_mask = training forbids; use one of them")


def size_of(model: str, trust_remote_code: bool, offline: bool) -> float | None:
    """The weights above the embeddings, from the configuration alone; an unknown model is an error."""
    if folder := folder_of(model):
        facts = read_configuration(folder)
        if not any(folder.glob("*.safetensors")):
            raise DanseoError(
                f"model {model} has no safetensors weights; danseo loads no pickles: "
                f"turn them with `danseo export {model} --to safetensors`"
            )
        return above_embeddings(facts)
    found = configuration(model, trust_remote_code, offline)
    return above_embeddings(vars(found)) if found is not None else None


def configuration(model: str, trust_remote_code: bool, offline: bool) -> Any:
    """The configuration of a checkpoint; offline only what this machine has, else None."""
    folder = folder_of(model)
    if folder and offline:
        return _named(read_configuration(folder))
    if not folder:
        check_id(model)
    if offline:
        return _named(kept_configuration(model))
    pretrained(model)  # what is wrong with the name shows before torch is loaded
    from danseo.models.encoder.network import load_encoder_config

    return load_encoder_config(model, trust_remote_code)


def _named(found: Mapping[str, Any] | None) -> Any:
    return SimpleNamespace(**{"model_type": "", **found}) if found else None


def find(model: str) -> tuple[str, dict[str, Any]]:
    """Where an encoder is; a misspelt floor or model of the box is told before the Hub is asked."""
    if not folder_of(model):
        check_spelling(model, (*FLOORS, *IN_THE_BOX))
    return pretrained(model)


def check_id(model: str) -> None:
    """Refuse what is neither a folder nor an id of the Hub."""
    check_spelling(model, (*FLOORS, *IN_THE_BOX))
    if model.startswith(("/", ".", "~")):
        raise DanseoError(f"model {model}: no such folder")


def above_embeddings(facts: Mapping[str, Any]) -> float:
    """The weights of the layers of an encoder, those of a base model where the configuration does not say."""
    hidden, layers = facts.get("hidden_size") or 768, facts.get("num_hidden_layers") or 12
    return float(12 * hidden * hidden * layers)


def kept_configuration(model: str) -> dict[str, Any] | None:
    """The configuration of a Hub model that is on this machine already; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    name, _, revision = model.partition("@")
    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision or None)
    except ValueError:
        raise DanseoError(f"model {model}: neither a folder nor an id of the Hub such as klue/roberta-base") from None
    return read_configuration(Path(found).parent) if isinstance(found, str) else None


def read_configuration(folder: Path) -> dict[str, Any]:
    """The configuration of a checkpoint folder."""
    try:
        facts = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise DanseoError(f"model {folder} is not a checkpoint folder: no readable config.json") from None
    return facts if isinstance(facts, dict) else {}
