"""The runs of a sweep: their directories, sizes and states, and how long they take."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from danseo.config.base import flatten_config, incidental_names
from danseo.config.run import RunConfig
from danseo.data import find
from danseo.errors import DanseoError
from danseo.files import find_own_files, read_json_lines
from danseo.models.registry import check_config_for_task, get_family
from danseo.models.run_plan import compute_identity
from danseo.runs.index import Record, find_runs, read_record
from danseo.runs.store import Run, find_run_path
from danseo.runs.training_data import check_example_weights
from danseo.tasks import TASKS, get_task

_BASE_PARAMETERS = 12 * 12 * 768**2
_TRAINING_COST = 3  # a forward pass, and a backward pass that costs twice as much

OnRun = Callable[[Run, str], None]
"""Called with a run and its state, again and again while it runs."""


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
            size = get_family(config.model).count_parameters(config.model, config.trust_remote_code, self.offline)
            if size is None:
                self.unseen.append(config.model)
            self.parameters[config.model] = size or _BASE_PARAMETERS
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


SWEEP_LOG = ".sweep.jsonl"
"""The end of the name of a sweep's log."""
_GUESSED_SPEED = {"cpu": 2e10, "cuda": 2e13, "mps": 2e12}
"""Multiplications per second if there is no finished run."""
_GUESSED_START = 10.0, 2.0
"""Seconds besides training, of encoders and of baselines: starting, loading, predicting, scoring."""
_TOKENS = 60  # of an example


class RuntimeEstimator:
    """Estimates the seconds of points; it learns from every run that ends."""

    def __init__(
        self, records: Sequence[Record], planner: Planner, device: str, took: dict[str, float] | None = None
    ) -> None:
        self.planner, self.device = planner, device.split(":")[0]
        self.rates: dict[tuple[str, str], list[float]] = {}
        """Task and model -> seconds of training per example read."""
        self.starts: dict[tuple[str, str], list[float]] = {}
        """The same -> seconds besides training."""
        self.sized: list[float] = []
        """Seconds per example and parameter, of all encoders."""
        for record in records:
            self.learn(record, (took or {}).get(record.run.path.name))

    def learn(self, record: Record, took: float | None = None) -> None:
        """Learn from a finished run, and from its time from start to end if that was measured."""
        settings, fitting = record.settings, record.surroundings.get("seconds")
        if record.status != "done" or fitting is None or record.is_made_of_runs or not self._fits(record):
            return
        whole = took or record.surroundings.get("wall_seconds") or fitting + _guessed_start(settings["model"])
        key, rate = (record.task, record.identity), fitting / self.planner.work(settings)
        self.rates.setdefault(key, []).append(rate)
        self.starts.setdefault(key, []).append(max(0.0, whole - fitting))
        if parameters := self.planner.parameters.get(settings["model"]) if not record.is_baseline else None:
            self.sized.append(rate / parameters)

    def _fits(self, record: Record) -> bool:
        """Return whether a run used the same type of device; baselines always use the CPU."""
        known = record.task in self.planner.examples
        return known and (record.is_baseline or str(record.surroundings.get("device")).startswith(self.device))

    def knows(self, point: Point) -> bool:
        """Return whether a run of the same task and model has finished."""
        return self._key(point) in self.rates

    def seconds(self, point: Point) -> float:
        """Estimate from runs of the same task and model, else of any encoder, else from sizes."""
        if (key := self._key(point)) in self.rates:
            return self.start(point) + median(self.rates[key]) * point.work
        if self.sized and get_family(point.config.model).trains_with_torch:
            return self.start(point) + median(self.sized) * point.work * point.parameters
        speed = _GUESSED_SPEED.get(self.device, _GUESSED_SPEED["cpu"])
        return self.start(point) + point.work * point.parameters * _TOKENS / speed

    def start(self, point: Point) -> float:
        """Estimate the seconds besides training."""
        same = self.starts.get(self._key(point))
        family = get_family(point.config.model)
        similar = [
            seconds for (_, model), each in self.starts.items() if get_family(model) is family for seconds in each
        ]
        return median(same or similar or [_guessed_start(point.config.model)])

    def source(self, points: Sequence[Point]) -> str:
        """Describe where the estimate comes from."""
        known = sum(map(self.knows, points))
        if known == len(points):
            return "from finished runs of the same task and model"
        return "from finished runs and sizes" if known or self.sized else "a guess from sizes; no finished run to go by"

    def _key(self, point: Point) -> tuple[str, str]:
        """Return task and model as records name them; older records have only the folder of the model."""
        task, folder = point.config.task, Path(point.config.model)
        keys = (task, point.model), (task, str(folder.resolve()) if folder.is_dir() else point.config.model)
        return next((key for key in keys if key in self.rates), keys[0])


def _guessed_start(model: str) -> float:
    return _GUESSED_START[not get_family(model).trains_with_torch]


def read_measured_seconds(runs: Path) -> dict[str, float]:
    """Return how long the runs of earlier sweeps took, from start to end, according to their logs."""
    took: dict[str, float] = {}
    for path in find_own_files(runs, f"*{SWEEP_LOG}"):
        begun: dict[str, float] = {}
        for event in read_json_lines(path):
            with suppress(KeyError, TypeError):
                if event["state"] == "running":
                    begun[event["run"]] = event["time"]
                elif event["ending"] == "done" and event["run"] in begun:
                    took[event["run"]] = event["time"] - begun[event["run"]]
    return took
