"""All that is checked and looked up before a sweep starts anything."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.models.families import family_of
from danseo.recipes import encoder_facts
from danseo.search.space import Choice
from danseo.settings.precedence import assigned
from danseo.settings.values import TRUST
from danseo.sweeps.clock import Clock, measured
from danseo.sweeps.devices import find_devices, fitting, machine_memory
from danseo.sweeps.plan import Planner, Point, records_of, state_of
from danseo.sweeps.ray_cluster import check_address
from danseo.sweeps.space import Sweep, named_in, read_sweep, require_select


@dataclass(frozen=True)
class Options:
    """What the command line says besides the file."""

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
    """What --set says; it goes before the file, but not for what the file lets vary."""


@dataclass(frozen=True)
class Prepared:
    """A sweep that has passed all checks."""

    sweep: Sweep
    planner: Planner
    points: list[Point]
    """Of a grid or a list; a search's first one is only there to be checked."""
    devices: list[str]
    clock: Clock

    def is_done(self, force: bool) -> bool:
        """Whether there is nothing to start."""
        return not (force or self.sweep.search) and all(state_of(point) == "done" for point in self.points)


def prepare(source: Path | Sweep, options: Options, *, offline: bool = False) -> Prepared:
    """Read the file, look at data, models, directories and devices, and learn from finished runs."""
    _check_options(options)
    sweep = _with_options(read_sweep(source) if isinstance(source, Path) else source, options)
    path = sweep.path
    planner = Planner(options.root, options.runs, offline=offline)
    look = partial(encoder_facts, offline=offline)
    with named_in(path):
        configs = sweep.configs(look) if not sweep.search else _corners(sweep, look)
        # A folder named in two ways makes two configs, but one run.
        points = list({point.name: point for point in map(planner.point, configs)}.values())
    trained = any(family_of(point.config.model).is_gradual for point in points)
    devices = find_devices(options.devices, options.slots, needs_torch=trained)
    if options.executor == "local":
        with named_in(path):
            devices = fitting(devices, sweep.resources.memory, machine_memory)
    clock = Clock(records_of(planner.runs), planner, devices[0], measured(planner.runs))
    return Prepared(sweep, planner, points, devices, clock)


def _with_options(sweep: Sweep, options: Options) -> Sweep:
    """The sweep with what the command line says of all its runs."""
    said = assigned(options.settings, RunConfig)
    varied = {*sweep.grid, *(sweep.search.space if sweep.search else ()), *(name for run in sweep.runs for name in run)}
    if both := sorted(said.keys() & varied):
        raise DanseoError(f"{both[0]} is given by --set, and {sweep.path} lets it vary; leave it out of one of them")
    if sweep.search:
        require_select(said)
    return replace(sweep, base={**sweep.base, **said, **({TRUST: True} if options.trust_remote_code else {})})


def _check_options(options: Options) -> None:
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
    """The folder of runs, writable."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=runs):
            pass
    except OSError as error:
        raise DanseoError(f"--runs {runs} cannot be written: {error.strerror}; choose another folder") from None


def _corners(sweep: Sweep, look: Callable[[str, str, bool], Any]) -> list[RunConfig]:
    """Configs that show whether a search can be run at all: each model that it may choose."""
    assert sweep.search
    first = {
        name: entry.values[0] if isinstance(entry, Choice) else entry.low for name, entry in sweep.search.space.items()
    }
    models = sweep.search.space.get("model")
    choices = models.values if isinstance(models, Choice) else (first.get("model"),)
    return [sweep.config(first | ({"model": model} if model else {}), look) for model in choices]
