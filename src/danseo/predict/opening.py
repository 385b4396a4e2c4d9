"""A model to use: that of a run, or an exported one, which needs no torch."""

from dataclasses import dataclass
from pathlib import Path

from danseo.errors import DanseoError
from danseo.models.exported import is_exported, load_exported
from danseo.models.families import load_model
from danseo.models.protocol import Loading, Model
from danseo.runs.directory import Run
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Opened:
    """A model with the task it was trained for."""

    model: Model
    task: Task
    name: str
    """Of the run or folder."""


def open_model(path: Path, loading: Loading) -> Opened:
    """The model of a run directory or of an exported folder."""
    if is_exported(path):
        return Opened(*load_exported(path, loading), path.resolve().name)
    if not (path / "config.toml").is_file():
        raise DanseoError(f"{path} is neither a run directory nor an exported model; `danseo runs` lists runs")
    run = Run(path)
    model = load_model(run, loading.device, loading.precision, trust_remote_code=loading.trust_remote_code)
    return Opened(model, run.task, path.resolve().name)
