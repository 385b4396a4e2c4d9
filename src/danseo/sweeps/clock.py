"""How long runs take, start-up included: learned from finished ones, else guessed from sizes."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from danseo.models.families import family_of
from danseo.runs.index import Record
from danseo.sweeps.plan import Planner, Point

_GUESSED_SPEED = {"cpu": 2e10, "cuda": 2e13, "mps": 2e12}
"""Multiplications per second where no finished run tells."""
_GUESSED_START = 10.0, 2.0
"""Seconds beside the fitting, of encoders and of floors: starting, loading, predicting, scoring."""
_PIECES = 60  # of an example


class Clock:
    """Expected seconds of points; every run that ends makes it wiser."""

    def __init__(
        self, records: Sequence[Record], planner: Planner, device: str, took: dict[str, float] | None = None
    ) -> None:
        self.planner, self.device = planner, device.split(":")[0]
        self.rates: dict[tuple[str, str], list[float]] = {}
        """Task and model -> seconds of fitting per example read."""
        self.starts: dict[tuple[str, str], list[float]] = {}
        """The same -> seconds beside the fitting."""
        self.sized: list[float] = []
        """Seconds per example and parameter, of all encoders."""
        for record in records:
            self.learn(record, (took or {}).get(record.run.path.name))

    def learn(self, record: Record, took: float | None = None) -> None:
        """Take in a finished run, and how long it took from its start to its end where somebody has measured it."""
        settings, fitting = record.settings, record.surroundings.get("seconds")
        if record.status != "done" or fitting is None or record.is_made_of_runs or not self._fits(record):
            return
        whole = took or record.surroundings.get("wall_seconds") or fitting + _guessed_start(settings["model"])
        key, rate = (record.task, record.identity), fitting / self.planner.work(settings)
        self.rates.setdefault(key, []).append(rate)
        self.starts.setdefault(key, []).append(max(0.0, whole - fitting))
        if parameters := self.planner.parameters.get(settings["model"]) if not record.is_floor else None:
            self.sized.append(rate / parameters)

    def _fits(self, record: Record) -> bool:
        """A run on another kind of device says nothing about this one; floors take the CPU anyway."""
        known = record.task in self.planner.examples
        return known and (record.is_floor or str(record.surroundings.get("device")).startswith(self.device))

    def knows(self, point: Point) -> bool:
        """Whether a run of the same task and model has finished."""
        return self._key(point) in self.rates

    def seconds(self, point: Point) -> float:
        """Expected, from runs of the same task and model, else of any encoder, else a guess from sizes."""
        if (key := self._key(point)) in self.rates:
            return self.start(point) + median(self.rates[key]) * point.work
        if self.sized and family_of(point.config.model).is_gradual:
            return self.start(point) + median(self.sized) * point.work * point.parameters
        speed = _GUESSED_SPEED.get(self.device, _GUESSED_SPEED["cpu"])
        return self.start(point) + point.work * point.parameters * _PIECES / speed

    def start(self, point: Point) -> float:
        """Expected seconds beside the fitting."""
        same = self.starts.get(self._key(point))
        family = family_of(point.config.model)
        similar = [
            seconds for (_, model), each in self.starts.items() if family_of(model) is family for seconds in each
        ]
        return median(same or similar or [_guessed_start(point.config.model)])

    def source(self, points: Sequence[Point]) -> str:
        """Where the expectation comes from, in words."""
        known = sum(map(self.knows, points))
        if known == len(points):
            return "from finished runs of the same task and model"
        return "from finished runs and sizes" if known or self.sized else "a guess from sizes; no finished run to go by"

    def _key(self, point: Point) -> tuple[str, str]:
        """As records have it: older ones know their model by its folder only."""
        task, folder = point.config.task, Path(point.config.model)
        keys = (task, point.model), (task, str(folder.resolve()) if folder.is_dir() else point.config.model)
        return next((key for key in keys if key in self.rates), keys[0])


def _guessed_start(model: str) -> float:
    return _GUESSED_START[not family_of(model).is_gradual]


def measured(runs: Path) -> dict[str, float]:
    """How long the runs of earlier sweeps took, from start to end, by their journals."""
    took: dict[str, float] = {}
    for path in sorted(runs.glob("*.sweep.jsonl")):
        begun: dict[str, float] = {}
        for line in path.read_text("utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                event = json.loads(line)
                if event["state"] == "running":
                    begun[event["run"]] = event["time"]
                elif event["ending"] == "done" and event["run"] in begun:
                    took[event["run"]] = event["time"] - begun[event["run"]]
    return took
