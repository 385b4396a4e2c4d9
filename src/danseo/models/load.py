"""The one place where model names meet classes."""

from dataclasses import replace
from typing import Any

from danseo.config import RunConfig, with_settings
from danseo.errors import DanseoError
from danseo.models.floor import FLOORS, make_floor
from danseo.runs.directory import Run
from danseo.tasks import get_task

ENCODER = ("torch", "transformers", "safetensors")
"""The packages of every model that is no floor."""


def packages_of(model: str, task: str) -> tuple[str, ...]:
    """What has to be installed for a run of a model."""
    encoder = (*ENCODER, *(("ufal.chu-liu-edmonds",) if task == "dp" else ()))
    return {"majority": (), "linear": ("scikit-learn",)}.get(model, encoder)


def load_model(
    run: Run, device: str | None = None, precision: str | None = None, *, trust_remote_code: bool = False
) -> Any:
    """The saved model of a run, ready to predict; the precision is that of its training where none is named."""
    folder = run.path / "model"
    if run.config.recipe == "ensemble":
        raise DanseoError(
            f"{run.path} is made of saved predictions and has no model; ask its members (members.json), or make one "
            "model of them with `danseo soup`"
        )
    if not folder.is_dir():
        raise DanseoError(
            f"{run.path} has no model; is the run finished? `danseo train` with the same settings goes on"
        )
    config = run.config
    task = get_task(config.task)
    if config.model in FLOORS:
        if precision:
            raise DanseoError(f"{run.path} is a {config.model} model, which has no precision; leave --precision out")
        floor = make_floor(config.model, task)
        floor.load(folder)
        return floor
    config = with_trust(run, trust_remote_code)
    from danseo.models.encoder.model import Encoder
    from danseo.training.workers import Workers

    config = with_settings(config, {"precision": "fp32" if precision == "int8" else precision}) if precision else config
    model = Encoder(config, task, Workers(device), source=folder)
    if precision == "int8":
        model.to_bytes()
    return model


def with_trust(run: Run, trust_remote_code: bool) -> RunConfig:
    """The settings of a run, in which code that comes with its model runs only if the command at hand allows it."""
    config = run.config
    if config.trust_remote_code and not trust_remote_code:
        raise DanseoError(
            f"{run.path} was trained with code that came with its checkpoint; if you trust it, add "
            "--trust-remote-code to run it again"
        )
    return replace(config, trust_remote_code=trust_remote_code)
