"""How long runs take: estimated from finished runs or from sizes."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from danseo.files import find_own_files, read_json_lines
from danseo.models.registry import get_family
from danseo.runs.index import Record
from danseo.sweeps.plan import Planner, Point

SWEEP_LOG = ".sweep.jsonl"
"""The end of the name of a sweep's log."""
_GUESSED_SPEED = {"cpu": 2e10, "cuda": 2e13, "mps": 2e12}
"""Multiplications per second if there is no finished run."""
_GUESSED_START = 10.0, 2.0
"""Seconds besides training, of encoders and of baselines: starting, loading, predicting, scoring."""
_TOKENS = 60  # of an example


class RuntimeEstimator:
    """Estimates the seconds of points; it learns from every run that ends."""

    def __init__(
        self, records: Sequence[Record], planner: Planner, device: str, took: dict[str, float] | None = None
    ) -> None:
        self.planner, self.device = planner, device.split(":")[0]
        self.rates: dict[tuple[str, str], list[float]] = {}
        """Task and model -> seconds of training per example read."""
        self.starts: dict[tuple[str, str], list[float]] = {}
        """The same -> seconds besides training."""
        self.sized: list[float] = []
        """Seconds per example and parameter, of all encoders."""
        for record in records:
            self.learn(record, (took or {}).get(record.run.path.name))

    def learn(self, record: Record, took: float | None = None) -> None:
        """Learn from a finished run, and from its time from start to end if that was measured."""
        settings, fitting = record.settings, record.surroundings.get("seconds")
        if record.status != "done" or fitting is None or record.is_made_of_runs or not self._fits(record):
            return
        whole = took or record.surroundings.get("wall_seconds") or fitting + _guessed_start(settings["model"])
        key, rate = (record.task, record.identity), fitting / self.planner.work(settings)
        self.rates.setdefault(key, []).append(rate)
        self.starts.setdefault(key, []).append(max(0.0, whole - fitting))
        if parameters := self.planner.parameters.get(settings["model"]) if not record.is_baseline else None:
            self.sized.append(rate / parameters)

    def _fits(self, record: Record) -> bool:
        """Return whether a run used the same type of device; baselines always use the CPU."""
        known = record.task in self.planner.examples
        return known and (record.is_baseline or str(record.surroundings.get("device")).startswith(self.device))

    def knows(self, point: Point) -> bool:
        """Return whether a run of the same task and model has finished."""
        return self._key(point) in self.rates

    def seconds(self, point: Point) -> float:
        """Estimate from runs of the same task and model, else of any encoder, else from sizes."""
        if (key := self._key(point)) in self.rates:
            return self.start(point) + median(self.rates[key]) * point.work
        if self.sized and get_family(point.config.model).trains_with_torch:
            return self.start(point) + median(self.sized) * point.work * point.parameters
        speed = _GUESSED_SPEED.get(self.device, _GUESSED_SPEED["cpu"])
        return self.start(point) + point.work * point.parameters * _TOKENS / speed

    def start(self, point: Point) -> float:
        """Estimate the seconds besides training."""
        same = self.starts.get(self._key(point))
        family = get_family(point.config.model)
        similar = [
            seconds for (_, model), each in self.starts.items() if get_family(model) is family for seconds in each
        ]
        return median(same or similar or [_guessed_start(point.config.model)])

    def source(self, points: Sequence[Point]) -> str:
        """Describe where the estimate comes from."""
        known = sum(map(self.knows, points))
        if known == len(points):
            return "from finished runs of the same task and model"
        return "from finished runs and sizes" if known or self.sized else "a guess from sizes; no finished run to go by"

    def _key(self, point: Point) -> tuple[str, str]:
        """Return task and model as records name them; older records have only the folder of the model."""
        task, folder = point.config.task, Path(point.config.model)
        keys = (task, point.model), (task, str(folder.resolve()) if folder.is_dir() else point.config.model)
        return next((key for key in keys if key in self.rates), keys[0])


def _guessed_start(model: str) -> float:
    return _GUESSED_START[not get_family(model).trains_with_torch]


def read_measured_seconds(runs: Path) -> dict[str, float]:
    """Return how long the runs of earlier sweeps took, from start to end, according to their logs."""
    took: dict[str, float] = {}
    for path in find_own_files(runs, f"*{SWEEP_LOG}"):
        begun: dict[str, float] = {}
        for event in read_json_lines(path):
            with suppress(KeyError, TypeError):
                if event["state"] == "running":
                    begun[event["run"]] = event["time"]
                elif event["ending"] == "done" and event["run"] in begun:
                    took[event["run"]] = event["time"] - begun[event["run"]]
    return took
