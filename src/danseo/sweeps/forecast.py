"""What a sweep would do: its runs with what varies, which are done, and how long the rest would take."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from danseo.display.progress import clock_time
from danseo.display.table import Table, as_typed
from danseo.runs.layouts.variants import short_setting
from danseo.runs.naming import model_name, told_apart
from danseo.search.space import Choice, Range
from danseo.settings.declaring import flat
from danseo.sweeps.clock import measured
from danseo.sweeps.plan import Point, state_of
from danseo.sweeps.preparing import Prepared
from danseo.sweeps.schedule import longest_first, makespan
from danseo.sweeps.space import Search


def make_forecast(prepared: Prepared, slots: int, *, force: bool = False) -> "Forecast | SearchForecast":
    """The forecast of a grid, a list or a search."""
    search = prepared.sweep.search
    return SearchForecast(prepared, slots, search) if search else Forecast(prepared, slots, force)


@dataclass(frozen=True)
class Forecast:
    """What a grid or a list would do."""

    prepared: Prepared
    slots: int
    force: bool = False

    def rows(self) -> list[tuple[Point, str, float]]:
        """Every run with its state and expected seconds, in the order of the queue."""
        clock = self.prepared.clock
        rows = [(point, state_of(point), clock.seconds(point)) for point in self.prepared.points]
        return sorted(rows, key=lambda row: -row[2])

    @property
    def left(self) -> list[float]:
        """The expected seconds of what is to do."""
        return [seconds for _, state, seconds in self.rows() if self.force or state != "done"]

    @property
    def seconds(self) -> float:
        """The expected makespan."""
        return makespan(longest_first(self.left), self.slots)

    def table(self) -> Table:
        """The runs by what varies, what is done, and when all will be."""
        points = [point for point, _, _ in self.rows()]
        settings, names = _varied(points), _names(points)
        rows: list[tuple[object, ...]] = [
            (*_cells(point, names, settings), state, clock_time(seconds), point.name)
            for point, state, seconds in self.rows()
        ]
        what = f"{len(self.left)} of {len(rows)} runs to do"
        note = f"{what}: {_when(self.prepared, self.seconds, self.slots)}"
        columns = (*map(short_setting, settings), "state", "expected", "run")
        return Table(f"sweep {self.prepared.sweep.path}", columns, rows, note, keys=len(settings) or None)

    def as_dict(self) -> dict[str, Any]:
        settings = _varied(self.prepared.points)
        runs = [
            {
                "run": str(point.run.path),
                "state": state,
                "expected_seconds": round(seconds, 3),
                "settings": {name: flat(point.config)[name] for name in settings},
            }
            for point, state, seconds in self.rows()
        ]
        return {"runs": runs, **_summary(self.prepared, self.seconds, self.slots)}


@dataclass(frozen=True)
class SearchForecast:
    """What a search would do."""

    prepared: Prepared
    slots: int
    search: Search

    @property
    def ended(self) -> list[str]:
        """The trials that are over, by the journal of the sweep."""
        return ended_runs(self.prepared.planner.runs / f"{self.prepared.sweep.path.stem}.sweep.jsonl")

    @property
    def trial_seconds(self) -> float:
        """What a trial takes: as those that ended, else as one in the middle of the space is expected to."""
        took = measured(self.prepared.planner.runs)
        known = [took[name] for name in self.ended if name in took]
        return mean(known or [self.prepared.clock.seconds(self._typical(point)) for point in self.prepared.points])

    def _typical(self, point: Point) -> Point:
        middles = {name: _middle(entry) for name, entry in self.search.space.items()}
        settings = flat(point.config) | {name: value for name, value in middles.items() if value is not None}
        return replace(point, work=self.prepared.planner.work(settings))

    @property
    def left(self) -> int:
        return max(0, self.search.trials - len(self.ended))

    @property
    def seconds(self) -> float:
        """The expected makespan."""
        return makespan([self.trial_seconds] * self.left, self.slots)

    def table(self) -> Table:
        """What may be chosen, and how long the trials that are left would take."""
        rows: list[tuple[object, ...]] = [(name, _range(entry)) for name, entry in self.search.space.items()]
        what = f"{self.left} of {self.search.trials} trials to do, {clock_time(self.trial_seconds)} each"
        note = f"{what}: {_when(self.prepared, self.seconds, self.slots)}"
        return Table(f"search {self.prepared.sweep.path}", ("setting", "choices"), rows, note)

    def as_dict(self) -> dict[str, Any]:
        space = {name: _range(entry) for name, entry in self.search.space.items()}
        trials = {"trials": self.search.trials, "left": self.left, "expected_seconds": round(self.trial_seconds, 3)}
        return {"space": space, **trials, **_summary(self.prepared, self.seconds, self.slots)}


def ended_runs(journal: Path) -> list[str]:
    """The runs that are over, by a sweep's journal."""
    states: dict[str, str] = {}
    with suppress(OSError):
        for line in journal.read_text("utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                event = json.loads(line)
                states[event["run"]] = event["state"]
    return [name for name, state in states.items() if state in ("done", "failed", "pruned")]


def _varied(points: Sequence[Point]) -> list[str]:
    """The settings in which the runs differ, the seed last."""
    settings = [flat(point.config) for point in points]
    names = [name for name in settings[0] if len({str(each[name]) for each in settings}) > 1]
    return sorted(names, key=lambda name: (name == "seed", name not in ("task", "model")))


def _names(points: Sequence[Point]) -> dict[str, str]:
    """Model -> what it is called."""
    return told_apart({point.model: (model_name(point.config.model), point.config.model) for point in points})


def _cells(point: Point, names: dict[str, str], settings: Sequence[str]) -> list[object]:
    values = flat(point.config)
    return [names[point.model] if name == "model" else as_typed(values[name]) for name in settings]


def _middle(entry: Choice | Range) -> float | None:
    """The middle of what may be chosen; None where it is not numbers."""
    if isinstance(entry, Range):
        return float((entry.low * entry.high) ** 0.5 if entry.log else (entry.low + entry.high) / 2)
    numbers = [value for value in entry.values if isinstance(value, int | float) and not isinstance(value, bool)]
    return mean(numbers) if len(numbers) == len(entry.values) else None


def _range(entry: Choice | Range) -> str:
    if isinstance(entry, Choice):
        return ", ".join(map(str, entry.values))
    how = ", on a log scale" if entry.log else f" in steps of {entry.step:g}" if entry.step else ""
    return f"{entry.low:g} – {entry.high:g}{how}"


def _when(prepared: Prepared, seconds: float, slots: int) -> str:
    source = prepared.clock.source(prepared.points)
    on = f"{slots} slot{'s' if slots > 1 else ''}"
    lines = [f"{clock_time(seconds)} on {on} ({source})"]
    if unseen := prepared.planner.unseen:
        lines.append(f"not on this machine, so taken for models of the Hub of base size: {', '.join(unseen)}")
    return "\n".join(lines)


def _summary(prepared: Prepared, seconds: float, slots: int) -> dict[str, Any]:
    return {
        "slots": slots,
        "makespan_seconds": round(seconds, 3),
        "estimate": prepared.clock.source(prepared.points),
        "unseen": prepared.planner.unseen,
    }
