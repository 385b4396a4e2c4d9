"""How far a training is, for those who watch it from another process."""

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from danseo.errors import DataError
from danseo.files import write_atomically
from danseo.runs.directory import STANDING

_PAUSE = 2.0  # seconds between two writings


@dataclass(frozen=True)
class Standing:
    """How far a training is."""

    step: int
    total: int
    seconds: float
    """Of fitting, evaluations included."""
    time: float
    """When it was written."""

    @property
    def share(self) -> float:
        return self.step / self.total

    def left(self) -> float:
        """Seconds of fitting that were left then, at the pace so far."""
        return (self.total - self.step) * self.seconds / self.step


class StandingFile:
    """The small file in the run directory that tells it."""

    def __init__(self, folder: Path) -> None:
        self.path, self._written = folder / STANDING, 0.0

    def write(self, step: int, total: int, seconds: float) -> None:
        """Write anew, every two seconds at most; a full disk is not the watcher's business."""
        if time.monotonic() - self._written < _PAUSE and step < total:
            return
        self._written = time.monotonic()
        with suppress(DataError):
            write_atomically(self.path, json.dumps(asdict(Standing(step, total, seconds, time.time()))))

    def read(self) -> Standing | None:
        """What was written last, if anything was."""
        with suppress(OSError, ValueError, TypeError):
            found = Standing(**json.loads(self.path.read_text("utf-8")))
            return found if found.step > 0 and found.total > 0 else None
        return None
