"""Checks of a sweep before its first run: file, options, data, models, devices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

from danseo.config.base import TRUST, flatten_config, parse_assignments
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.files import quote
from danseo.models.registry import encoder_facts, get_family
from danseo.sweeps.local_executor import find_devices, limit_by_memory, read_machine_memory
from danseo.sweeps.plan import OnRun, Planner, Point, read_records, read_state
from danseo.sweeps.ray_executor import check_address
from danseo.sweeps.runtime_estimate import RuntimeEstimator, read_measured_seconds
from danseo.sweeps.search_space import Choice
from danseo.sweeps.sweep_file import EnsembleTable, LoadFacts, Sweep, name_file_in_errors, read_sweep, require_select


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
