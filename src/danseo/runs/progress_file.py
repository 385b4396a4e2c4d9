"""The events of a training, for the terminal and, as a progress file, for other processes."""

import json
import math
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from danseo.errors import DataError
from danseo.files import read_json, write_atomically
from danseo.runs.store import PROGRESS

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


"""Called after every evaluation with the step and the score; it may raise to stop the training."""

"""Called with a run whose settings are written and whose training starts."""
