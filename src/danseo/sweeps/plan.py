"""What a sweep comes to: its run directories, and what is done already."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.config import RunConfig
from danseo.data import find
from danseo.errors import DanseoError
from danseo.experiment import check_weights, identity_of
from danseo.models.families import check_fit, family_of
from danseo.runs.directory import Run, as_started, run_path
from danseo.runs.index import Record, find_runs, read_record
from danseo.settings.declaring import flat, incidental
from danseo.tasks import TASKS, get_task

_BASE = 12 * 12 * 768**2  # parameters of a base model
_LEARNING = 3  # a way forward, and twice that back


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    config: RunConfig
    run: Run
    work: float
    """Examples that the encoder reads, over all epochs and evaluations; one that it learns from counts three times."""
    parameters: float
    model: str
    """What the model's folder holds, as a hash, or which Hub id it is."""

    @property
    def name(self) -> str:
        return self.run.path.name


class Planner:
    """Turns configs into points; data files and models are looked at once each, and the Hub only where it may be."""

    def __init__(self, root: Path, runs: Path, *, offline: bool = False) -> None:
        self.root, self.runs, self.offline = root.resolve(), runs.resolve(), offline
        self.hashes: dict[str, dict[str, str]] = {}
        self.examples: dict[str, dict[str, int]] = {}
        """Task -> split -> how many there are."""
        self.parameters: dict[str, float] = {}
        self.unseen: list[str] = []
        """Models of the Hub that are not on this machine, so that their size is not known."""
        self._identities: dict[tuple[str, str, str], dict[str, str]] = {}

    def point(self, config: RunConfig) -> Point:
        """The run directory of a config, checked: the data, the model, and who else uses the directory."""
        self._read_data(config.task)
        if config.model not in self.parameters:
            self.parameters[config.model] = self._size(config)
        check_fit(config, get_task(config.task))
        check_folds(config, self.examples[config.task]["train"])
        identity = self._identity(config)
        config = as_started(self.runs, config, identity)
        run = Run(run_path(self.runs, config, identity))
        model = identity.get("model", config.model)
        point = Point(config, run, self.work(flat(config)), self.parameters[config.model], model)
        _check_directory(point)
        return point

    def work(self, settings: Mapping[str, Any]) -> float:
        """How many examples a run of these settings reads; a floor goes over them once."""
        counts, limit = self.examples[settings["task"]], settings["limit"]
        train = min(limit or counts["train"], counts["train"])
        if not family_of(settings["model"]).is_gradual:
            return train + counts["dev"]
        epochs = settings["train.epochs"]
        judged = counts["dev"] / (1 if settings["train.select_on"] == "dev" else 2)
        return float(_LEARNING * train * epochs + judged * max(1, settings["train.evaluations"] * epochs))

    def _size(self, config: RunConfig) -> float:
        """The parameters of a model; offline one of the Hub is looked for on this machine alone."""
        size = family_of(config.model).size(config.model, config.trust_remote_code, self.offline)
        if size is None:
            self.unseen.append(config.model)
        return size or _BASE

    def _read_data(self, name: str) -> None:
        if name in self.hashes:
            return
        task = get_task(name)
        counts = {split: len(find.load(task, split, self.root)) for split in ("train", "dev")}
        self.hashes[name] = find.data_hashes(task, self.root)
        self.examples[name] = counts

    def _identity(self, config: RunConfig) -> dict[str, str]:
        key = config.task, config.model, config.train.example_weights
        if key not in self._identities:
            if config.train.example_weights:
                check_weights(config, find.load(get_task(config.task), "train", self.root))
            self._identities[key] = identity_of(config, self.hashes[config.task])
        return self._identities[key]


def check_folds(config: RunConfig, examples: int) -> None:
    """Refuse more folds than there are examples, and a fold that is none of them."""
    count = min(config.limit or examples, examples)
    if config.folds and not 2 <= config.folds <= count:
        raise DanseoError(f"folds = {config.folds}: should be from 2 to {count}, the training examples")
    if config.fold and config.fold >= config.folds:
        raise DanseoError(f"fold = {config.fold}: with folds = {config.folds} they are numbered from 0")


def _check_directory(point: Point) -> None:
    """Refuse a directory that holds another run, under whatever name it came there."""
    path = point.run.path
    if path.exists() and not path.is_dir():
        raise DanseoError(f"{path} is a file where a run directory is due; move it away")
    if not (path / "config.toml").is_file():
        return
    own, there = flat(point.config), flat(point.run.config)
    ignored = (
        *incidental(RunConfig),
        "model",
        "train.example_weights",
        *(() if {own["task"], there["task"]} <= {*TASKS} else ("task",)),
    )
    differing = [name for name in own if own[name] != there[name] and name not in ignored]
    if differing:
        name = differing[0]
        raise DanseoError(
            f"{path} holds another run ({name} = {there[name]}, not {own[name]}); move it away, or use another --runs"
        )


def records_of(runs: Path) -> list[Record]:
    """The runs of a folder that may not be there yet."""
    return find_runs(runs) if runs.is_dir() else []


def state_of(point: Point) -> str:
    """done, failed, pruned, unfinished or new."""
    return read_record(point.run).status if (point.run.path / "config.toml").is_file() else "new"


def read_evaluations(path: Path) -> list[dict[str, Any]]:
    """The evaluations that a running run has logged; a line that is being written does not count."""
    try:
        lines = path.read_text("utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return []
