"""Trials of an Optuna study as runs of a sweep; their value is the headline metric on the select split."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from danseo.data import find
from danseo.data.dev_split import split_indices
from danseo.data.prediction_file import read_predictions
from danseo.display.table import Table
from danseo.scoring.score import measure
from danseo.sweeps.optuna_study import OptunaStudy, StudySpec, default_storage, prune_reason, trial_table
from danseo.sweeps.plan import Planner, Point, read_evaluations
from danseo.sweeps.queue import State
from danseo.sweeps.search_space import sample_settings
from danseo.sweeps.sweep_file import Search, Sweep, name_file_in_errors


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
        evaluations = read_evaluations(point.run.path / "log.jsonl")
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
