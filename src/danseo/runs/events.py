"""The events of a training, shown on the terminal and written to the progress file of its run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from danseo.display.progress import TrainingProgress
from danseo.launcher import is_first_process
from danseo.runs.progress_file import ProgressFile
from danseo.runs.store import Run

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
