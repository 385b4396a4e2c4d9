"""A sweep: a TOML file in, ordinary runs out; the story on one screen."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from danseo.extras import require
from danseo.models.families import family_of
from danseo.runs.directory import Run
from danseo.runs.index import in_order, read_record
from danseo.runs.locks import Locks
from danseo.sweeps.driver import Driver, Executor, Journal, Listed, Source
from danseo.sweeps.forecast import Forecast, SearchForecast, make_forecast
from danseo.sweeps.local import LocalExecutor
from danseo.sweeps.outcome import Outcome
from danseo.sweeps.preparing import Options, Prepared, make_folder, prepare
from danseo.sweeps.space import Sweep
from danseo.sweeps.studies import PlannedStudy


def run_sweep(given: Path | Sweep, options: Options) -> Outcome:
    """Plan, run and collect; whatever is wrong with the input shows before anything starts."""
    prepared = prepare(given, options)
    path = prepared.sweep.path
    require(*needed_packages(prepared, options))
    make_folder(prepared.planner.runs)
    study = PlannedStudy(prepared, path.stem) if prepared.sweep.study else None
    if study:
        study.write()
    source = make_source(prepared)
    driver = Driver(
        source,
        make_executor(prepared, options),
        Locks(prepared.planner.runs),
        prepared.clock,
        Journal(prepared.planner.runs / f"{path.stem}.sweep.jsonl"),
        root=prepared.planner.root,
        retries=options.retries,
        force=options.force,
        quiet=options.quiet,
    )
    with interruptible():
        schedule = driver.run()
        if study:
            study.join_folds(quiet=options.quiet)
    names = sorted({*driver.points, *source.earlier()}, key=in_order)
    return Outcome(schedule, [read_record(Run(prepared.planner.runs / name)) for name in names], source.tables())


def needed_packages(prepared: Prepared, options: Options) -> dict[str, None]:
    """What has to be installed for the runs that are not done; a cluster has packages of its own."""
    if prepared.is_done(options.force):
        return {}
    here = [point for point in prepared.points if options.executor == "local"]
    configs = [point.config for point in here]
    models = (package for c in configs for package in family_of(c.model).packages(c.model, c.task))
    search = ("optuna",) if prepared.sweep.search else ()
    return dict.fromkeys((*models, *search, *(("ray",) if options.executor == "ray" else ())))


def forecast(path: Path, options: Options) -> Forecast | SearchForecast:
    """What run_sweep would do, without the Hub; a Ray cluster is asked for its room."""
    prepared = prepare(path, options, offline=True)
    slots = len(prepared.devices)
    if options.executor == "ray":
        executor = make_executor(prepared, options)
        slots = executor.capacity()
        executor.close()
    return make_forecast(prepared, slots, force=options.force)


def make_executor(prepared: Prepared, options: Options) -> Executor:
    """Processes of this machine, or tasks of a Ray cluster."""
    if options.executor == "local" or prepared.is_done(options.force):
        return LocalExecutor(prepared.devices)
    from danseo.sweeps.ray_executor import RayExecutor

    return RayExecutor(options.ray_address, prepared.sweep.resources, options.slots)


def make_source(prepared: Prepared) -> Source:
    """The listed points, or the trials of a study."""
    if prepared.sweep.search is None:
        return Listed(prepared.points)
    from danseo.sweeps.search import Trials

    return Trials(prepared.sweep, prepared.planner)


@contextmanager
def interruptible() -> Iterator[None]:
    """A polite kill ends the sweep as Ctrl-C does: workers first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
