"""Trials of an Optuna study as points of a sweep; what counts is the headline on the select half."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from danseo.data import find
from danseo.data.halves import in_half
from danseo.display.table import Table, as_typed
from danseo.predictions.file import read_predictions
from danseo.scoring.score import measure
from danseo.search.space import sample, shown
from danseo.search.storage import default_storage
from danseo.search.study import Study, open_study, trial_number
from danseo.sweeps.plan import Planner, Point, read_evaluations
from danseo.sweeps.schedule import State
from danseo.sweeps.space import Sweep, named_in


class Trials:
    """Asks the study for points as slots become free, and tells it how they ended."""

    def __init__(self, sweep: Sweep, planner: Planner) -> None:
        assert sweep.search
        self.sweep, self.planner, self.search = sweep, planner, sweep.search
        self.study = study_of(sweep, planner)
        self.score = select_scorer(planner.root)
        self._numbers: dict[str, list[int]] = {}
        self._handles: dict[str, Any] = {}
        self._states: dict[str, tuple[Point, State]] = {}
        self._reported: dict[str, int] = {}
        self._adopted = False

    def more(self, free: int) -> list[Point]:
        """Points for the free slots: trials that an earlier process left first, then new ones."""
        found = [] if self._adopted else self._adopt()
        self._adopted = True
        while len(found) < free and (trial := self._ask()) is not None:
            point = self._point(trial)
            if point:
                found.append(point)
        return found

    @property
    def is_dry(self) -> bool:
        """Whether all trials have been asked for."""
        return self._adopted and len(self.study.get_trials(deepcopy=False)) >= self.search.trials

    def _adopt(self) -> list[Point]:
        import optuna

        points = []
        for trial in self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            if trial.params.keys() >= self.search.space.keys():
                points.append(self._point(optuna.trial.Trial(self.study, trial._trial_id)))
            else:  # killed between asking and choosing
                self.study.tell(trial.number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
        return [point for point in points if point]

    def _ask(self) -> Any:
        import optuna

        if len(self.study.get_trials(deepcopy=False)) >= self.search.trials:
            return None
        trial = self.study.ask()
        if trial.number >= self.search.trials:  # another process took the last one meanwhile
            self.study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            return None
        return trial

    def _point(self, trial: Any) -> Point | None:
        """The run of a trial; None where it is one that is known already."""
        point = self.planner.point(self.sweep.config(sample(trial, self.search.space)))
        trial.set_user_attr("run", point.name)
        known = point.name in self._numbers
        self._numbers.setdefault(point.name, []).append(trial.number)
        if point.name in self._states:
            self.ended(*self._states[point.name])
        if known:
            return None
        self._handles[point.name] = trial
        return point

    def ended(self, point: Point, state: State) -> None:
        """Tell the study what became of a run."""
        from optuna.trial import TrialState

        self._states[point.name] = point, state
        value = self.score(point) if state == "done" else math.nan
        for number in self._numbers[point.name]:
            if not math.isnan(value):
                self.study.tell(number, value, skip_if_finished=True)
            else:
                ending = TrialState.PRUNED if state == "pruned" else TrialState.FAIL
                self.study.tell(number, state=ending, skip_if_finished=True)

    def hopeless(self, point: Point) -> str:
        """Why a running trial should be pruned, or nothing."""
        trial, seen = self._handles[point.name], self._reported.get(point.name, 0)
        evaluations = read_evaluations(point.run.path / "log.jsonl")
        for number, record in enumerate(evaluations[seen:], seen + 1):
            if record["score"] is not None:
                trial.report(record["score"], number)
        self._reported[point.name] = max(seen, len(evaluations))
        if len(evaluations) <= seen or evaluations[-1]["epoch"] >= point.config.train.epochs:
            return ""
        last = evaluations[-1]
        return f"pruned at step {last['step']} with {last['score']}" if trial.should_prune() else ""

    def earlier(self) -> list[str]:
        """The runs of all trials, also of those that other processes asked for."""
        names = (trial.user_attrs.get("run") for trial in self.study.get_trials(deepcopy=False))
        return [name for name in names if name]

    def tables(self) -> list[Table]:
        """All trials of the study, the best first."""
        names = list(self.search.space)
        trials = self.study.get_trials(deepcopy=False)
        rows: list[tuple[object, ...]] = [
            (
                as_typed(trial_number(trial)),
                *(shown(trial.params.get(name)) for name in names),
                trial.value,
                trial.state.name.lower(),
            )
            for trial in sorted(trials, key=lambda trial: (trial.value is None, -(trial.value or 0.0)))
        ]
        columns = ("trial", *(name.split(".")[-1] for name in names), "select half", "state")
        note = "sorted by the headline on the select half, which is what the search goes by; report scores are below"
        return [Table(f"trials of {self.study.study_name}", columns, rows, note, keys=1)]


def select_scorer(root: Path) -> Callable[[Point], float]:
    """A function that scores a run's saved predictions on the select half by the task's headline."""
    examples: dict[str, list[Any]] = {}

    def score(point: Point) -> float:
        task = point.run.task
        if task.name not in examples:
            examples[task.name] = find.load(task, "dev", root)
        dev = examples[task.name]
        predictions = read_predictions(
            point.run.predictions_path("dev"), task, dev, skip=list(task.needs_probabilities)
        )
        positions = in_half(task, dev, "select")
        chosen = [dev[position] for position in positions], [predictions[position] for position in positions]
        return float(measure(task, *chosen, skip=list(task.needs_probabilities))[task.headline].value())

    return score


def study_of(sweep: Sweep, planner: Planner) -> Any:
    """The study of a sweep, made or gone on with; one of another base or space is refused."""
    search = sweep.search
    assert search
    name = search.name or sweep.path.stem
    about = {"base": sweep.base, "space": {name: repr(entry) for name, entry in search.space.items()}}
    asked = Study(
        name,
        search.storage or default_storage(planner.runs, sweep.path.stem),
        json.dumps(about, sort_keys=True, ensure_ascii=False),
        f"the study {name!r} searched with other settings or another space; give this one another [search] name",
        f"[search] storage {search.storage or 'file'}",
        search.sampler,
        search.pruner,
        search.seed,
        search.startup,
    )
    with named_in(sweep.path):
        return open_study(asked)
