"""The runs of a sweep: their directories, their sizes, and which are done."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.config.base import flatten_config, incidental_names
from danseo.config.run import RunConfig
from danseo.data import find
from danseo.errors import DanseoError
from danseo.models.registry import check_config_for_task, get_family
from danseo.models.run_plan import compute_identity
from danseo.runs.index import Record, find_runs, read_record
from danseo.runs.store import Run, find_run_path
from danseo.runs.training_data import check_example_weights
from danseo.tasks import TASKS, get_task

_BASE_PARAMETERS = 12 * 12 * 768**2
_TRAINING_COST = 3  # a forward pass, and a backward pass that costs twice as much


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    config: RunConfig
    run: Run
    work: float
    """Examples in all epochs and evaluations; a training example counts three times."""
    parameters: float
    model: str
    """A hash of the model's folder, or its Hub id."""

    @property
    def name(self) -> str:
        return self.run.path.name


class Planner:
    """Turns configs into points; each data file and model is read once, and the Hub only if allowed."""

    def __init__(self, root: Path, runs: Path, *, offline: bool = False) -> None:
        self.root, self.runs, self.offline = root.resolve(), runs.resolve(), offline
        self.hashes: dict[str, dict[str, str]] = {}
        self.examples: dict[str, dict[str, int]] = {}
        """Task -> split -> number of examples."""
        self.parameters: dict[str, float] = {}
        self.unseen: list[str] = []
        """Models of the Hub that are not on this machine; their size is unknown."""
        self._identities: dict[tuple[str, ...], dict[str, str]] = {}

    def point(self, config: RunConfig) -> Point:
        """Return the run of a config; check its data, its model and its directory."""
        self._read_data(config.task)
        if config.model not in self.parameters:
            self.parameters[config.model] = self._size(config)
        check_config_for_task(config, get_task(config.task))
        check_folds(config, self.examples[config.task]["train"])
        identity = self._identity(config)
        run = Run(find_run_path(self.runs, config, identity))
        model = identity.get("model", config.model)
        point = Point(config, run, self.work(flatten_config(config)), self.parameters[config.model], model)
        _check_directory(point)
        return point

    def work(self, settings: Mapping[str, Any]) -> float:
        """Return the work of a run with these settings; a baseline reads every example once."""
        counts, limit = self.examples[settings["task"]], settings["max_train_samples"]
        train = min(limit or counts["train"], counts["train"])
        if not get_family(settings["model"]).trains_with_torch:
            return train + counts["dev"]
        epochs = settings["train.epochs"]
        evaluated = counts["dev"] / (1 if settings["train.select_on"] == "dev" else 2)
        return float(_TRAINING_COST * train * epochs + evaluated * max(1, settings["train.evals_per_epoch"] * epochs))

    def _size(self, config: RunConfig) -> float:
        """Return the parameters of a model; offline, a model of the Hub is looked up in the local cache only."""
        size = get_family(config.model).count_parameters(config.model, config.trust_remote_code, self.offline)
        if size is None:
            self.unseen.append(config.model)
        return size or _BASE_PARAMETERS

    def _read_data(self, name: str) -> None:
        if name in self.hashes:
            return
        task = get_task(name)
        counts = {split: len(find.load(task, split, self.root)) for split in ("train", "dev")}
        self.hashes[name] = find.data_hashes(task, self.root)
        self.examples[name] = counts

    def _identity(self, config: RunConfig) -> dict[str, str]:
        key = config.task, config.model, config.train.example_weights, config.train.distill_targets
        if key not in self._identities:
            if config.train.example_weights:
                check_example_weights(config, find.load(get_task(config.task), "train", self.root))
            self._identities[key] = compute_identity(config, self.hashes[config.task], get_family(config.model))
        return self._identities[key]


def check_folds(config: RunConfig, examples: int) -> None:
    """Refuse more folds than examples, and a fold number that does not exist."""
    count = min(config.max_train_samples or examples, examples)
    if config.n_folds and not 2 <= config.n_folds <= count:
        raise DanseoError(f"n_folds = {config.n_folds}: should be from 2 to {count}, the training examples")
    if config.fold and config.fold >= config.n_folds:
        raise DanseoError(f"fold = {config.fold}: with n_folds = {config.n_folds} they are numbered from 0")


def _check_directory(point: Point) -> None:
    """Refuse a directory that holds a run with other settings."""
    path = point.run.path
    if path.exists() and not path.is_dir():
        raise DanseoError(f"{path} is a file, but a run folder belongs there; move the file away")
    if not (path / "config.toml").is_file():
        return
    planned, existing = flatten_config(point.config), flatten_config(point.run.config)
    ignored = (
        *incidental_names(RunConfig),
        "model",
        "train.example_weights",
        "train.distill_targets",
        *(() if {planned["task"], existing["task"]} <= {*TASKS} else ("task",)),
    )
    differing = [name for name in planned if planned[name] != existing[name] and name not in ignored]
    if differing:
        name = differing[0]
        raise DanseoError(
            f"{path} holds another run ({name} = {existing[name]}, not {planned[name]}); move it away, or choose "
            "another --runs"
        )


def read_records(runs: Path) -> list[Record]:
    """Return the runs of a folder; none if it does not exist."""
    return find_runs(runs) if runs.is_dir() else []


def read_state(point: Point) -> str:
    """Return the state of a run: done, failed, pruned, unfinished or new."""
    return read_record(point.run).status if (point.run.path / "config.toml").is_file() else "new"


def read_evaluations(path: Path) -> list[dict[str, Any]]:
    """Return the logged evaluations of a running run, without a last line that is being written."""
    try:
        lines = path.read_text("utf-8").split("\n")[:-1]
        found = [json.loads(line) for line in lines]
        return found if all(isinstance(line, dict) for line in found) else []
    except (OSError, ValueError, RecursionError):
        return []
