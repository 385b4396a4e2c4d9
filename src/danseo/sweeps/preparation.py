"""Before the first run of a sweep: checks of file, options, data, models and devices; the forecast of --dry-run."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryFile
from typing import Any

from danseo.config.base import TRUST, flatten_config, parse_assignments
from danseo.config.run import RunConfig
from danseo.display.progress import format_duration
from danseo.display.table import Table, as_typed
from danseo.errors import DanseoError
from danseo.files import quote, read_json_lines
from danseo.models.registry import encoder_facts, get_family
from danseo.runs.naming import make_names_unique, shorten_model
from danseo.sweeps.local_executor import find_devices, limit_by_memory, read_machine_memory
from danseo.sweeps.plan import (
    SWEEP_LOG,
    OnRun,
    Planner,
    Point,
    RuntimeEstimator,
    read_measured_seconds,
    read_records,
    read_state,
)
from danseo.sweeps.queue import makespan
from danseo.sweeps.ray_executor import check_address
from danseo.sweeps.search_space import Choice, Range
from danseo.sweeps.sweep_file import (
    EnsembleTable,
    LoadFacts,
    Search,
    Sweep,
    name_file_in_errors,
    read_sweep,
    require_select,
)
from danseo.tables.variants import shorten_setting


@dataclass(frozen=True)
class SweepOptions:
    """The options of the command line."""

    root: Path
    runs: Path
    devices: str | None = None
    slots: int | None = None
    executor: str = "local"
    ray_address: str | None = None
    retries: int = 0
    force: bool = False
    quiet: bool = False
    trust_remote_code: bool = False
    settings: tuple[str, ...] = ()
    """The values of --set; they override the file, except for settings that the file varies."""
    on_run: OnRun | None = None


@dataclass(frozen=True)
class PreparedSweep:
    """A sweep that has passed all checks."""

    sweep: Sweep
    planner: Planner
    points: list[Point]
    """The runs of a grid or a list; of a search only some, to be checked."""
    devices: list[str]
    estimator: RuntimeEstimator
    groups: list[list[Point]] = field(default_factory=list)
    """The members of each ensemble."""

    def is_done(self, force: bool) -> bool:
        """Return whether there is nothing to start."""
        return not (force or self.sweep.search) and all(read_state(point) == "done" for point in self.points)


def prepare(source: Path | Sweep, options: SweepOptions, *, offline: bool = False) -> PreparedSweep:
    """Read the file, check data, models, directories and devices, and learn from finished runs."""
    _check_options(options)
    sweep = _with_options(read_sweep(source) if isinstance(source, Path) else source, options)
    path = sweep.path
    planner = Planner(options.root, options.runs, offline=offline)
    load_facts = partial(encoder_facts, offline=offline)
    with name_file_in_errors(path):
        configs = sweep.configs(load_facts) if not sweep.search else _sample_configs(sweep, load_facts)
        # A folder named in two ways makes two configs, but one run.
        points = list({point.name: point for point in map(planner.point, configs)}.values())
        groups = group_members(sweep.ensemble, points) if sweep.ensemble else []
    trained = any(get_family(point.config.model).trains_with_torch for point in points)
    devices = find_devices(options.devices, options.slots, needs_torch=trained)
    if options.executor == "local":
        with name_file_in_errors(path):
            devices = limit_by_memory(devices, sweep.resources.memory, read_machine_memory)
    estimator = RuntimeEstimator(read_records(planner.runs), planner, devices[0], read_measured_seconds(planner.runs))
    return PreparedSweep(sweep, planner, points, devices, estimator, groups)


def group_members(ensemble: EnsembleTable, points: Sequence[Point]) -> list[list[Point]]:
    """Return the members of each ensemble: runs with the same value of a setting."""
    models = {point.config.model for point in points}
    if unknown := [model for model in ensemble.members if model not in models]:
        raise DanseoError(f"[ensemble] members: no run has the model {quote(unknown[0])}; name models of the sweep")
    groups: dict[str, list[Point]] = {}
    for point in points:
        if not ensemble.members or point.config.model in ensemble.members:
            groups.setdefault(f"{ensemble.by} = {flatten_config(point.config)[ensemble.by]}", []).append(point)
    for value, members in groups.items():
        tasks = sorted({point.config.task for point in members})
        if len(tasks) > 1:
            raise DanseoError(
                f"[ensemble] {value}: an ensemble over different tasks ({', '.join(tasks)}); use one task"
            )
        if len(members) < 2:
            raise DanseoError(f"[ensemble] {value}: only one run; an ensemble needs two, so add a model to [grid]")
    return list(groups.values())


def _with_options(sweep: Sweep, options: SweepOptions) -> Sweep:
    """Return the sweep with the settings of the command line."""
    overrides = parse_assignments(options.settings, RunConfig)
    varied = {*sweep.grid, *(sweep.search.space if sweep.search else ()), *(name for run in sweep.runs for name in run)}
    if both := sorted(overrides.keys() & varied):
        raise DanseoError(f"{both[0]} is given by --set, and {sweep.path} lets it vary; leave it out of one of them")
    if sweep.search:
        require_select(overrides)
    return replace(sweep, base={**sweep.base, **overrides, **({TRUST: True} if options.trust_remote_code else {})})


def _check_options(options: SweepOptions) -> None:
    if options.runs.exists() and not options.runs.is_dir():
        raise DanseoError(f"--runs {options.runs} is a file; name a folder")
    if options.devices and options.slots:
        raise DanseoError("--devices and --slots exclude each other; name a device twice for two slots on it")
    if options.devices and options.executor == "ray":
        raise DanseoError("--devices is for this machine; Ray takes what [resources] asks for")
    if options.ray_address and options.executor != "ray":
        raise DanseoError("--ray-address goes with --executor ray")
    if options.ray_address and options.ray_address != "auto":
        check_address(options.ray_address)


def make_folder(runs: Path) -> None:
    """Make the folder of runs, and check that it can be written."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=runs):
            pass
    except OSError as error:
        raise DanseoError(f"--runs {runs} cannot be written: {error.strerror}; choose another folder") from None


def _sample_configs(sweep: Sweep, load_facts: LoadFacts) -> list[RunConfig]:
    """Return configs by which a search is checked: one for each model of its space."""
    assert sweep.search
    first = {
        name: entry.values[0] if isinstance(entry, Choice) else entry.low for name, entry in sweep.search.space.items()
    }
    models = sweep.search.space.get("model")
    choices = models.values if isinstance(models, Choice) else (first.get("model"),)
    return [sweep.config(first | ({"model": model} if model else {}), load_facts) for model in choices]


def make_forecast(prepared: PreparedSweep, slots: int, *, force: bool = False) -> "Forecast | SearchForecast":
    """Return the forecast of a grid, a list or a search."""
    search = prepared.sweep.search
    return SearchForecast(prepared, slots, search) if search else Forecast(prepared, slots, force)


@dataclass(frozen=True)
class Forecast:
    """The forecast of a grid or a list."""

    prepared: PreparedSweep
    slots: int
    force: bool = False

    def rows(self) -> list[tuple[Point, str, float]]:
        """Return every run with its state and expected seconds, in the order of the queue."""
        estimator = self.prepared.estimator
        rows = [(point, read_state(point), estimator.seconds(point)) for point in self.prepared.points]
        return sorted(rows, key=lambda row: -row[2])

    @property
    def left(self) -> list[float]:
        """The expected seconds of each run to do."""
        return [seconds for _, state, seconds in self.rows() if self.force or state != "done"]

    @property
    def seconds(self) -> float:
        """The expected makespan."""
        return makespan(sorted(self.left, reverse=True), self.slots)

    def tables(self) -> list[Table]:
        """Return the runs with their varied settings, state and expected time."""
        points = [point for point, _, _ in self.rows()]
        names = {point.model: (shorten_model(point.config.model), point.config.model) for point in points}
        settings, names_of_models = _find_varied(points), make_names_unique(names)
        rows: list[tuple[object, ...]] = [
            (*_cells(point, names_of_models, settings), state, format_duration(seconds), point.name)
            for point, state, seconds in self.rows()
        ]
        groups = len(self.prepared.groups)
        what = f"{len(self.left)} of {len(rows)} runs to do" + f", and {groups} ensembles of them" * bool(groups)
        note = f"{what}: {_describe_estimate(self.prepared, self.seconds, self.slots)}"
        columns = (*map(shorten_setting, settings), "state", "expected", "run")
        return [Table(f"sweep {self.prepared.sweep.path}", columns, rows, note, keys=len(settings) or None)]

    def as_dict(self) -> dict[str, Any]:
        settings = _find_varied(self.prepared.points)
        runs = [
            {
                "run": str(point.run.path),
                "state": state,
                "expected_seconds": round(seconds, 3),
                "settings": {name: flatten_config(point.config)[name] for name in settings},
            }
            for point, state, seconds in self.rows()
        ]
        return {"runs": runs, **_summary(self.prepared, self.seconds, self.slots)}


@dataclass(frozen=True)
class SearchForecast:
    """The forecast of a search."""

    prepared: PreparedSweep
    slots: int
    search: Search

    @property
    def ended_trials(self) -> list[str]:
        """The trials that have ended, according to the log of the sweep."""
        return read_ended_runs(self.prepared.planner.runs / f"{self.prepared.sweep.path.stem}{SWEEP_LOG}")

    @property
    def trial_seconds(self) -> float:
        """The mean time of ended trials, or the estimate for the middle of the space."""
        measured = read_measured_seconds(self.prepared.planner.runs)
        seconds = [measured[name] for name in self.ended_trials if name in measured]
        return mean(
            seconds or [self.prepared.estimator.seconds(self._typical(point)) for point in self.prepared.points]
        )

    def _typical(self, point: Point) -> Point:
        middles = {name: _middle(entry) for name, entry in self.search.space.items()}
        settings = flatten_config(point.config) | {name: value for name, value in middles.items() if value is not None}
        return replace(point, work=self.prepared.planner.work(settings))

    @property
    def left(self) -> int:
        return max(0, self.search.trials - len(self.ended_trials))

    @property
    def seconds(self) -> float:
        """The expected makespan."""
        return makespan([self.trial_seconds] * self.left, self.slots)

    def tables(self) -> list[Table]:
        """Return the search space, and how long the remaining trials take."""
        rows: list[tuple[object, ...]] = [(name, _describe_range(entry)) for name, entry in self.search.space.items()]
        what = f"{self.left} of {self.search.trials} trials to do, {format_duration(self.trial_seconds)} each"
        note = f"{what}: {_describe_estimate(self.prepared, self.seconds, self.slots)}"
        return [Table(f"search {self.prepared.sweep.path}", ("setting", "choices"), rows, note)]

    def as_dict(self) -> dict[str, Any]:
        space = {name: _describe_range(entry) for name, entry in self.search.space.items()}
        trials = {"trials": self.search.trials, "left": self.left, "expected_seconds": round(self.trial_seconds, 3)}
        return {"space": space, **trials, **_summary(self.prepared, self.seconds, self.slots)}


def read_ended_runs(log: Path) -> list[str]:
    """Return the runs that have ended, according to the log of a sweep."""
    states: dict[str, str] = {}
    for event in read_json_lines(log):
        with suppress(KeyError, TypeError):
            states[event["run"]] = event["state"]
    return [name for name, state in states.items() if state in ("done", "failed", "pruned")]


def _find_varied(points: Sequence[Point]) -> list[str]:
    """Return the settings in which the runs differ, the seed last."""
    settings = [flatten_config(point.config) for point in points]
    names = [name for name in settings[0] if len({str(each[name]) for each in settings}) > 1]
    return sorted(names, key=lambda name: (name == "seed", name not in ("task", "model")))


def _cells(point: Point, names: dict[str, str], settings: Sequence[str]) -> list[object]:
    values = flatten_config(point.config)
    return [names[point.model] if name == "model" else as_typed(values[name]) for name in settings]


def _middle(entry: Choice | Range) -> float | None:
    """Return the middle of the choices; None if they are not numbers."""
    if isinstance(entry, Range):
        return float((entry.low * entry.high) ** 0.5 if entry.log else (entry.low + entry.high) / 2)
    numbers = [value for value in entry.values if isinstance(value, int | float) and not isinstance(value, bool)]
    return mean(numbers) if len(numbers) == len(entry.values) else None


def _describe_range(entry: Choice | Range) -> str:
    if isinstance(entry, Choice):
        return ", ".join(map(str, entry.values))
    how = ", on a log scale" if entry.log else f" in steps of {entry.step:g}" if entry.step else ""
    return f"{entry.low:g} – {entry.high:g}{how}"


def _describe_estimate(prepared: PreparedSweep, seconds: float, slots: int) -> str:
    source = prepared.estimator.source(prepared.points)
    on = f"{slots} slot{'s' if slots > 1 else ''}"
    lines = [f"{format_duration(seconds)} on {on} ({source})"]
    if unseen := prepared.planner.unseen:
        lines.append(f"not on this machine, so taken for models of the Hub of base size: {', '.join(unseen)}")
    return "\n".join(lines)


def _summary(prepared: PreparedSweep, seconds: float, slots: int) -> dict[str, Any]:
    return {
        "slots": slots,
        "makespan_seconds": round(seconds, 3),
        "estimate": prepared.estimator.source(prepared.points),
        "unseen": prepared.planner.unseen,
    }
