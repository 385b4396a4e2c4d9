"""`danseo sweep --dry-run`: the runs of a sweep, their states, and how long they will take."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from danseo.config.base import flatten_config
from danseo.display.progress import format_duration
from danseo.display.table import Table, as_typed
from danseo.files import read_json_lines
from danseo.runs.naming import make_names_unique, shorten_model
from danseo.sweeps.plan import Point, read_state
from danseo.sweeps.preparation import PreparedSweep
from danseo.sweeps.queue import makespan, sort_longest_first
from danseo.sweeps.runtime_estimate import SWEEP_LOG, read_measured_seconds
from danseo.sweeps.search_space import Choice, Range
from danseo.sweeps.sweep_file import Search
from danseo.tables.variants import shorten_setting


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
        return makespan(sort_longest_first(self.left), self.slots)

    def tables(self) -> list[Table]:
        """Return the runs with their varied settings, state and expected time."""
        points = [point for point, _, _ in self.rows()]
        settings, names = _find_varied(points), _name_models(points)
        rows: list[tuple[object, ...]] = [
            (*_cells(point, names, settings), state, format_duration(seconds), point.name)
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


def _name_models(points: Sequence[Point]) -> dict[str, str]:
    """Return a unique short name for each model."""
    return make_names_unique({point.model: (shorten_model(point.config.model), point.config.model) for point in points})


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
