"""What a sweep comes to: its run directories, what is done already, and how long the rest will take."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from statistics import median
from typing import Any

from danseo import data
from danseo.config import RunConfig, flat
from danseo.errors import DanseoError
from danseo.experiment import identity_of
from danseo.models.floor import FLOORS, make_floor
from danseo.reading import content_sha256
from danseo.runs.directory import Run, run_path
from danseo.runs.index import Record, find_runs, read_record
from danseo.tasks import get_task

_FLOOR_PARAMETERS = {"majority": 1e3, "linear": 1e5}
_GUESSED_SPEED = {"cpu": 2e10, "cuda": 2e13, "mps": 2e12}
"""Multiplications per second where no finished run tells."""
_PIECES = 60 * 3  # of an example, each with a way forward and twice that back


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    config: RunConfig
    run: Run
    passes: float
    """Examples that it sees, over all epochs."""
    parameters: float

    @property
    def name(self) -> str:
        return self.run.path.name


class Planner:
    """Turns configs into points; data files and models are looked at once each."""

    def __init__(self, root: Path, runs: Path) -> None:
        self.root, self.runs = root.resolve(), runs.resolve()
        self.hashes: dict[str, dict[str, str]] = {}
        self.examples: dict[str, int] = {}
        self.parameters: dict[str, float] = {}
        self._identities: dict[tuple[str, str], dict[str, str]] = {}

    def point(self, config: RunConfig) -> Point:
        """The run directory of a config, checked: the data, the model, and who else uses the directory."""
        self._read_data(config.task)
        if config.model not in self.parameters:
            self.parameters[config.model] = parameters_of(config.model, config.trust_remote_code)
        _check_fit(config)
        run = Run(run_path(self.runs, config, self._identity(config)))
        share = self.passes(config.task, config.limit, config.train.epochs)
        point = Point(config, run, share, self.parameters[config.model])
        _check_directory(point)
        return point

    def passes(self, task: str, limit: int, epochs: float) -> float:
        """How many examples a run sees."""
        return min(limit or self.examples[task], self.examples[task]) * epochs

    def _read_data(self, name: str) -> None:
        if name in self.hashes:
            return
        task = get_task(name)
        files = {split: data.require_file(task, split, self.root) for split in ("train", "dev")}
        counts = {split: len(task.read(path)) for split, path in files.items()}
        self.hashes[name] = {path.name: content_sha256(path) for path in files.values()}
        self.examples[name] = counts["train"]

    def _identity(self, config: RunConfig) -> dict[str, str]:
        key = config.task, config.model
        if key not in self._identities:
            self._identities[key] = identity_of(config, self.hashes[config.task])
        return self._identities[key]


def parameters_of(model: str, trust_remote_code: bool = False) -> float:
    """The weights above the embeddings, from the configuration alone; an unknown model is an error."""
    if model in FLOORS:
        return _FLOOR_PARAMETERS[model]
    folder = Path(model)
    if folder.is_dir():
        facts = _read_facts(folder / "config.json")
        if not any(folder.glob("*.safetensors")):
            raise DanseoError(f"model {model} has no safetensors weights; convert them (danseo never loads pickles)")
    elif near := get_close_matches(model, FLOORS, 1, cutoff=0.7):
        raise DanseoError(f"no model named {model!r}; did you mean {near[0]!r}?")
    elif model.startswith(("/", ".", "~")):
        raise DanseoError(f"model {model}: no such folder")
    else:
        from danseo.models.encoder.network import load_encoder_config

        facts = load_encoder_config(model, trust_remote_code).to_dict()
    hidden, layers = facts.get("hidden_size") or 768, facts.get("num_hidden_layers") or 12
    return float(12 * hidden * hidden * layers)


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise DanseoError(f"model {path.parent} is not a checkpoint folder: no readable config.json") from None
    return facts if isinstance(facts, dict) else {}


def _check_fit(config: RunConfig) -> None:
    task = get_task(config.task)
    if config.model in FLOORS:
        make_floor(config.model, task)  # refuses what it cannot do
    if config.train.monitor not in ("headline", *task.metrics):
        raise DanseoError(f"train.monitor = {config.train.monitor}: {task.name} has {', '.join(task.metrics)}")


def _check_directory(point: Point) -> None:
    """Refuse a directory that holds another run, under whatever name it came there."""
    path = point.run.path
    if path.exists() and not path.is_dir():
        raise DanseoError(f"{path} is a file where a run directory is due; move it away")
    if not (path / "config.toml").is_file():
        return
    own, there = flat(point.config), flat(point.run.config)
    differing = [name for name in own if own[name] != there[name] and name not in ("train.threads", "model")]
    if differing:
        name = differing[0]
        raise DanseoError(
            f"{path} holds another run ({name} = {there[name]}, not {own[name]}); move it away, or use another --runs"
        )


# How long it will take


class Clock:
    """Expected seconds of points, learned from finished runs where there are some."""

    def __init__(self, records: Sequence[Record], planner: Planner, device: str) -> None:
        self.device = device.split(":")[0]
        self.same: dict[tuple[str, str], list[float]] = {}
        """Task and model -> seconds per example."""
        self.rates: list[float] = []
        """Seconds per example and parameter, of all encoders."""
        for record in records:
            seconds, settings = record.surroundings.get("seconds"), record.settings
            if record.status == "done" and seconds and settings["task"] in planner.examples and self._fits(record):
                passes = planner.passes(settings["task"], settings["limit"], settings["train.epochs"])
                self._learn(settings["task"], settings["model"], seconds / max(1, passes), planner)

    def _fits(self, record: Record) -> bool:
        """A run on another kind of device says nothing about this one; floors take the CPU anyway."""
        return record.settings["model"] in FLOORS or str(record.surroundings.get("device")).startswith(self.device)

    def _learn(self, task: str, model: str, rate: float, planner: Planner) -> None:
        self.same.setdefault((task, _short(model)), []).append(rate)
        if model not in FLOORS and model in planner.parameters:
            self.rates.append(rate / planner.parameters[model])

    def seconds(self, point: Point) -> float:
        """Expected, from runs of the same task and model, else of any, else a guess from sizes."""
        if same := self.same.get((point.config.task, _short(point.config.model))):
            return median(same) * point.passes
        if self.rates and point.config.model not in FLOORS:
            return median(self.rates) * point.passes * point.parameters
        return point.passes * point.parameters * _PIECES / _GUESSED_SPEED.get(self.device, _GUESSED_SPEED["cpu"])

    def source(self, points: Sequence[Point]) -> str:
        """Where the expectation comes from, in words."""
        known = sum((point.config.task, _short(point.config.model)) in self.same for point in points)
        if known == len(points):
            return "from finished runs of the same task and model"
        return "from finished runs and sizes" if known or self.rates else "a guess from sizes; no finished run to go by"


def _short(model: str) -> str:
    return Path(model).resolve().name if Path(model).is_dir() else model


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
