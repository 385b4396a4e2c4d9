"""Run a sweep: a TOML file in, ordinary runs out; the trials of a search are its runs, too."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from danseo.data import find
from danseo.data.dev_split import split_indices
from danseo.data.prediction_file import read_predictions
from danseo.display.escaping import say
from danseo.display.table import Table, compact
from danseo.ensembling.ensemble import EnsembleOptions, make_ensemble
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.files import read_json_lines, write_atomically
from danseo.launcher import interruptible
from danseo.models.registry import encoder_facts, get_family
from danseo.runs.index import Record, natural_sort_key, read_record
from danseo.runs.lock import RunLocks
from danseo.runs.store import Run
from danseo.scoring.score import measure
from danseo.sweeps.driver import Driver, Executor, PointList, Source, SweepLog
from danseo.sweeps.local_executor import LocalExecutor
from danseo.sweeps.optuna_study import OptunaStudy, StudySpec, default_storage, prune_reason, trial_table
from danseo.sweeps.plan import SWEEP_LOG, Planner, Point
from danseo.sweeps.preparation import (
    Forecast,
    PreparedSweep,
    SearchForecast,
    SweepOptions,
    make_folder,
    make_forecast,
    prepare,
)
from danseo.sweeps.queue import RunQueue, State
from danseo.sweeps.ray_executor import RayExecutor
from danseo.sweeps.search_space import sample_settings
from danseo.sweeps.sweep_file import EnsembleTable, Search, Sweep, name_file_in_errors
from danseo.tables.ablation import ENDING, AblationStudy
from danseo.tables.runs import make_run_table
from danseo.tables.seeds import make_seed_tables

_MISSING = "folds-of-"  # with the name of the first fold, the name of an ensemble that does not exist yet


def run_sweep(given: Path | Sweep, options: SweepOptions) -> "SweepResult":
    """Plan, run and collect; errors in the input are raised before anything starts."""
    prepared = prepare(given, options)
    path = prepared.sweep.path
    require(*list_required_packages(prepared, options))
    if sys.platform == "win32" and options.executor == "local" and not prepared.is_done(options.force):
        raise DanseoError("sweeps on this computer need Linux or macOS; on Windows, use WSL or --executor ray")
    make_folder(prepared.planner.runs)
    study = StudyCells(prepared, path.stem) if prepared.sweep.study else None
    if study:
        study.write()
    source = make_source(prepared, quiet=options.quiet)
    driver = Driver(
        source,
        make_executor(prepared, options),
        RunLocks(prepared.planner.runs),
        prepared.estimator,
        SweepLog(prepared.planner.runs / f"{path.stem}{SWEEP_LOG}"),
        root=prepared.planner.root,
        retries=options.retries,
        force=options.force,
        quiet=options.quiet,
        on_run=options.on_run,
    )
    with interruptible():
        queue = driver.run()
        if study:
            study.join_folds(quiet=options.quiet)
    names = sorted({*driver.points, *source.list_earlier_runs()}, key=natural_sort_key)
    records = [read_record(Run(prepared.planner.runs / name)) for name in names]
    if isinstance(source, EnsembledPoints):
        return SweepResult(queue, records, [], [read_record(run) for run in source.made], source.errors)
    return SweepResult(queue, records, source.tables())


def list_required_packages(prepared: PreparedSweep, options: SweepOptions) -> dict[str, None]:
    """Return the packages that unfinished runs need; a cluster has its own packages."""
    if prepared.is_done(options.force):
        return {}
    configs = [point.config for point in prepared.points if options.executor == "local"]
    models = (package for c in configs for package in get_family(c.model).required_packages(c.model, c.task))
    search = ("optuna",) if prepared.sweep.search else ()
    return dict.fromkeys((*models, *search, *(("ray",) if options.executor == "ray" else ())))


def forecast(given: Path | Sweep, options: SweepOptions) -> Forecast | SearchForecast:
    """Return what run_sweep would do, without the Hub; a Ray cluster reports its capacity."""
    prepared = prepare(given, options, offline=True)
    slots = len(prepared.devices)
    if options.executor == "ray":
        executor = make_executor(prepared, options)
        slots = executor.capacity()
        executor.close()
    return make_forecast(prepared, slots, force=options.force)


def make_executor(prepared: PreparedSweep, options: SweepOptions) -> Executor:
    """Return the executor: processes of this machine, or tasks of a Ray cluster."""
    if options.executor == "local" or prepared.is_done(options.force):
        return LocalExecutor(prepared.devices)
    return RayExecutor(options.ray_address, prepared.sweep.resources, options.slots)


def make_source(prepared: PreparedSweep, *, quiet: bool) -> Source:
    """Return the source of points: a list, or the trials of a study."""
    if prepared.sweep.ensemble:
        return EnsembledPoints(prepared, prepared.sweep.ensemble, quiet=quiet)
    if prepared.sweep.search is None:
        return PointList(prepared.points)

    return SearchTrials(prepared.sweep, prepared.planner)


class EnsembledPoints(PointList):
    """The points of a grid or a list; an ensemble is made as soon as its last member is done."""

    def __init__(self, prepared: PreparedSweep, table: EnsembleTable, *, quiet: bool) -> None:
        super().__init__(prepared.points)
        self.groups = [{point.name for point in members} for members in prepared.groups]
        self.runs, self.root, self.quiet = prepared.planner.runs, prepared.planner.root, quiet
        self.options = EnsembleOptions(table.method, table.weights, table.select)
        self.done: set[str] = set()
        self.made: list[Run] = []
        self.errors: list[str] = []

    def report_end(self, point: Point, state: State) -> None:
        """Make the ensembles whose last missing member this is."""
        if state != "done":
            return
        self.done.add(point.name)
        for members in self.groups:
            if point.name in members and members <= self.done:
                self._make_ensemble(sorted(members, key=natural_sort_key))

    def _make_ensemble(self, members: list[str]) -> None:
        try:
            run = make_ensemble([self.runs / name for name in members], str(self.root), self.runs, self.options)
        except DanseoError as error:
            self.errors.append(str(error))
            return
        self.made.append(run)
        if not self.quiet:
            say(f"{run.path.name}: {len(members)} members combined")


@dataclass(frozen=True)
class SweepResult:
    """The runs of a sweep, and how they ended."""

    queue: RunQueue
    records: list[Record]
    searched: list[Table]
    """The trials of a search; empty without one."""
    ensembles: list[Record] | None = None
    """The ensembles of [ensemble]; None without one."""
    ensemble_errors: list[str] = field(default_factory=list)

    @property
    def failed_runs(self) -> list[str]:
        return [entry.name for entry in self.queue.in_state("failed")]

    def tables(self) -> list[Table]:
        """Return the trials of a search, and all runs with their errors; with ensembles, the seeds and their mean."""
        if self.ensembles is not None:
            shown = [*self.records, *self.ensembles]
            tasks = dict.fromkeys(record.task for record in shown if record.status != "corrupted")
            return [compact(table) for task in tasks for table in make_seed_tables(shown, task)]
        table = compact(make_run_table(self.records))
        folder = self.records[0].run.path.parent if self.records else Path()
        relative = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        where = f"`danseo runs {relative} --paths` shows the directories"
        return [*self.searched, replace(table, note="\n".join(filter(None, (table.note, where))))]

    def as_dict(self) -> dict[str, Any]:
        records = {record.run.path.name: record for record in self.records}
        rows = [
            {
                "run": str(records[entry.name].run.path),
                "state": entry.state,
                "error": entry.error or None,
                "seconds": records[entry.name].surroundings.get("seconds"),
                "score": records[entry.name].score(),
            }
            for entry in self.queue.entries.values()
        ]
        counts = {state: len(self.queue.in_state(state)) for state in ("done", "failed", "pruned")}
        trials = {"trials": self.searched[0].as_dict()} if self.searched else {}
        return {**counts, "runs": rows, **trials, **self._describe_ensembles()}

    def _describe_ensembles(self) -> dict[str, Any]:
        if self.ensembles is None:
            return {}
        made = [{"run": str(record.run.path), "score": record.score()} for record in self.ensembles]
        tables = [table.as_dict() for table in self.tables()]
        return {"ensembles": made, "ensemble_errors": self.ensemble_errors, "tables": tables}


class StudyCells:
    """The cells of a study by the names of their runs, for the table of the ablation."""

    def __init__(self, prepared: PreparedSweep, name: str) -> None:
        self.name, self.runs, self.root = name, prepared.planner.runs, prepared.planner.root
        load_facts = partial(encoder_facts, offline=prepared.planner.offline)
        self.parts = {
            cell: [[prepared.planner.point(config).name for config in folds] for folds in by_seed]
            for cell, by_seed in prepared.sweep.cells(load_facts).items()
        }
        self.joined: dict[str, str] = {}
        """First fold -> the ensemble of all of them."""

    def write(self) -> None:
        """Write the study next to its runs; ensembles that do not exist yet count as unfinished."""
        cells = {
            cell: [
                folds[0] if len(folds) == 1 else self.joined.get(folds[0], f"{_MISSING}{folds[0]}") for folds in by_seed
            ]
            for cell, by_seed in self.parts.items()
        }
        text = json.dumps(AblationStudy(self.name, cells).as_dict(), ensure_ascii=False, indent=2)
        write_atomically(self.runs / f"{self.name}{ENDING}", text + "\n")

    def join_folds(self, *, quiet: bool) -> None:
        """Average the folds of each cell and seed if all of them are done."""
        for folds in [folds for by_seed in self.parts.values() for folds in by_seed if len(folds) > 1]:
            if all(Run(self.runs / name).is_finished for name in folds):
                made = make_ensemble([self.runs / name for name in folds], str(self.root), self.runs, EnsembleOptions())
                self.joined[folds[0]] = made.path.name
                if not quiet:
                    say(f"{made.path.name}: the {len(folds)} folds of {folds[0]} together")
        if self.joined:
            self.write()


class SearchTrials:
    """The trials of a study as points: asked for when slots become free, and told how they ended."""

    def __init__(self, sweep: Sweep, planner: Planner) -> None:
        assert sweep.search
        self.sweep, self.planner, self.search = sweep, planner, sweep.search
        with name_file_in_errors(sweep.path):
            self.optuna = OptunaStudy(study_spec(sweep, self.search, planner.runs), self.search.trials)
        self.score = select_scorer(planner.root)
        self._trials: dict[str, list[Any]] = {}
        """Run -> its trials; the first one is reported and pruned."""
        self._states: dict[str, tuple[Point, State]] = {}
        self._reported: dict[str, int] = {}
        self._adopted = False

    def next_points(self, free: int) -> list[Point]:
        """Return points for the free slots: trials that an earlier process left first, then new ones."""
        found = [] if self._adopted else self._adopt()
        while len(found) < free and (trial := self.optuna.ask()) is not None:
            if point := self._add(trial):
                found.append(point)
        return found

    @property
    def is_exhausted(self) -> bool:
        """Whether all trials have been asked for."""
        return self._adopted and self.optuna.is_full

    def _adopt(self) -> list[Point]:
        self._adopted = True
        return [point for trial in self.optuna.adopt(self.search.space) if (point := self._add(trial))]

    def _add(self, trial: Any) -> Point | None:
        """Return the run of a trial; None if another trial has the same run."""
        point = self.planner.point(self.sweep.config(sample_settings(trial, self.search.space)))
        trial.set_user_attr("run", point.name)
        is_known = point.name in self._trials
        self._trials.setdefault(point.name, []).append(trial)
        if point.name in self._states:
            self.report_end(*self._states[point.name])
        return None if is_known else point

    def report_end(self, point: Point, state: State) -> None:
        """Record the end of a run in the study."""
        self._states[point.name] = point, state
        value = self.score(point) if state == "done" else math.nan
        for trial in self._trials[point.name]:
            self.optuna.tell(trial.number, None if math.isnan(value) else value, is_pruned=state == "pruned")

    def prune_reason(self, point: Point) -> str:
        """Return why a running trial should be pruned, or nothing."""
        trial, seen = self._trials[point.name][0], self._reported.get(point.name, 0)
        evaluations = read_json_lines(point.run.path / "log.jsonl")
        for number, record in enumerate(evaluations[seen:], seen + 1):
            if record["score"] is not None:
                trial.report(record["score"], number)
        self._reported[point.name] = max(seen, len(evaluations))
        if len(evaluations) <= seen or evaluations[-1]["epoch"] >= point.config.train.epochs:
            return ""
        return prune_reason(trial, evaluations[-1]["step"], evaluations[-1]["score"])

    def list_earlier_runs(self) -> list[str]:
        """Return the runs of all trials, also of those that other processes asked for."""
        return [name for trial in self.optuna.trials() if (name := trial.user_attrs.get("run"))]

    def tables(self) -> list[Table]:
        """Return all trials of the study, the best first."""
        note = "value: the headline metric on the select split, which the search maximises; report scores are below"
        title = f"trials of {self.optuna.spec.name}"
        return [trial_table(title, self.optuna.rows(), list(self.search.space), note).without_empty()]


def select_scorer(root: Path) -> Callable[[Point], float]:
    """Return a function that scores a run's saved predictions on the select split by the headline metric."""
    examples: dict[str, list[Any]] = {}

    def score(point: Point) -> float:
        task = point.run.task
        if task.name not in examples:
            examples[task.name] = find.load(task, "dev", root)
        dev, skip = examples[task.name], list(task.needs_probabilities)
        predictions = read_predictions(point.run.predictions_path("dev"), task, dev, skip=skip)
        positions = split_indices(task, dev, "select")
        chosen = [dev[position] for position in positions], [predictions[position] for position in positions]
        return float(measure(task, *chosen, skip=skip)[task.headline].value())

    return score


def study_spec(sweep: Sweep, search: Search, runs: Path) -> StudySpec:
    """Describe the study of a sweep; a study with another base or space is refused."""
    name = search.name or sweep.path.stem
    about = {"base": sweep.base, "space": {name: repr(entry) for name, entry in search.space.items()}}
    return StudySpec(
        name,
        search.storage or default_storage(runs, sweep.path.stem),
        json.dumps(about, sort_keys=True, ensure_ascii=False),
        f"the study {name!r} searched with other settings or another space; give this one another [search] name",
        f"[search] storage {search.storage or 'file'}",
        search.sampler,
        search.pruner,
        search.seed,
        search.startup,
    )
