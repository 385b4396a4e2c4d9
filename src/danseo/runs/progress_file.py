"""The events of a training, for the terminal and, as a progress file, for other processes."""

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from danseo.display.progress import TrainingProgress
from danseo.errors import DataError
from danseo.files import read_json, write_atomically
from danseo.launcher import is_first_process
from danseo.runs.store import PROGRESS, Run

_PAUSE = 2.0  # seconds between two writes


@dataclass(frozen=True)
class ProgressRecord:
    """The progress of a training at one time."""

    step: int
    total: int
    seconds: float
    """Seconds of training so far, evaluations included."""
    time: float
    """When this was written."""

    @property
    def share(self) -> float:
        return self.step / self.total

    def left(self) -> float:
        """Return the seconds that were left then, at the speed so far."""
        return (self.total - self.step) * self.seconds / self.step


class ProgressFile:
    """The file progress.json of a run directory."""

    def __init__(self, folder: Path) -> None:
        self.path, self._written = folder / PROGRESS, 0.0

    def write(self, step: int, total: int, seconds: float) -> None:
        """Write the progress, every two seconds at most; ignore a full disk."""
        if time.monotonic() - self._written < _PAUSE and step < total:
            return
        self._written = time.monotonic()
        with suppress(DataError):
            write_atomically(self.path, json.dumps(asdict(ProgressRecord(step, total, seconds, time.time()))))

    def read(self) -> ProgressRecord | None:
        """Return what was written last; None if there is nothing valid."""
        with suppress(DataError, TypeError, OverflowError):
            found = ProgressRecord(**read_json(self.path))
            is_sound = all(isinstance(value, int | float) and math.isfinite(value) for value in vars(found).values())
            return found if is_sound and found.step > 0 and found.total > 0 else None
        return None


OnScore = Callable[[int, float | None], None]
"""Called after every evaluation with the step and the score; it may raise to stop the training."""

OnStart = Callable[[Run], None]
"""Called with a run whose settings are written and whose training starts."""


class RunEvents(TrainingProgress):
    """Reports the events of a run to the terminal, to its progress file and to on_score (`Events` in models/base)."""

    def __init__(
        self, run: Run, series: Path | None, on_score: OnScore | None, on_start: OnStart | None, *, quiet: bool
    ) -> None:
        super().__init__(run.path.name, quiet=quiet)
        self.run, self.series, self.on_score, self.on_start = run, series, on_score, on_start
        self.progress_file = ProgressFile(run.path) if is_first_process() else None

    def step(self, step: Any, progress: Any) -> None:
        super().step(step, progress)
        self._write_progress(step, progress)

    def report_evaluation(self, step: Any, progress: Any, score: float | None) -> None:
        super().report_evaluation(step, progress, score)
        self._write_progress(step, progress)
        if self.on_score:
            self.on_score(step.number, score)

    def _write_progress(self, step: Any, progress: Any) -> None:
        if self.progress_file:
            self.progress_file.write(step.number, step.total, progress.seconds)
