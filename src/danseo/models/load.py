"""The one place where model names meet classes."""

from typing import Any

from danseo.errors import DanseoError
from danseo.models.floor import FLOORS, make_floor
from danseo.runs.directory import Run
from danseo.tasks import get_task


def load_model(run: Run, device: str | None = None) -> Any:
    """The saved model of a run, ready to predict."""
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
        model = make_floor(config.model, task)
        model.load(folder)
        return model
    from danseo.models.encoder.model import Encoder
    from danseo.training.workers import Workers

    return Encoder(config, task, Workers(device), source=folder)
