"""The progress of a running sweep: a live table on a terminal, a line per event elsewhere."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from danseo.display.escaping import visible
from danseo.display.progress import MOST_SILENT, LiveDisplay, format_duration
from danseo.runs.progress_file import ProgressFile, ProgressRecord
from danseo.sweeps.plan import Point
from danseo.sweeps.queue import Entry, RunQueue, makespan, sort_longest_first
from danseo.sweeps.runtime_estimate import RuntimeEstimator

_MAX_LISTED = 8  # failures in the table, and running runs in a line
_DRAW_SECONDS, _LINE_SECONDS = 0.5, MOST_SILENT  # between two pictures on a terminal, and two lines elsewhere


class SweepProgress(LiveDisplay):
    """Shows the queue of a sweep; a quiet one prints nothing."""

    def __init__(
        self, queue: RunQueue, points: Mapping[str, Point], estimator: RuntimeEstimator, *, quiet: bool = False
    ) -> None:
        super().__init__(quiet=quiet)
        self.queue, self.points, self.estimator, self.slots = queue, points, estimator, 1
        self._shown = time.monotonic()

    def draw_on(self, console: Any) -> Any:
        from rich.live import Live

        return Live(console=console, refresh_per_second=2, transient=True)

    def event(self, entry: Entry, what: str) -> None:
        """Report that a run changed its state."""
        ended, count = len(self.queue.in_state("done", "failed", "pruned")), len(self.queue.entries)
        detail = f": {entry.error}" if entry.error and what in ("failed", "retry", "pruned", "lost") else ""
        if not self.bar:
            left = f"; {self.eta()}" if ended < count and what in ("done", "failed") else ""
            self.note(f"[{ended}/{count}] {entry.name} {what}{detail}{left}")

    def eta(self) -> str:
        """Return when all runs will be done, marked if it is a guess."""
        points = [self.points[entry.name] for entry in self.queue.in_state("running", "queued")]
        guessed = self.pace() is None and not all(self.estimator.knows(p) or p.run.is_finished for p in points)
        return f"ETA {format_duration(self.left())}{' (a guess)' if guessed else ''}"

    def left(self) -> float:
        """Return the seconds until all runs are done, from the progress of running runs and the times of ended ones."""
        running = [self.seconds_left_of(entry) for entry in self.queue.in_state("running")]
        queued = sort_longest_first(self._expect_seconds(entry) for entry in self.queue.in_state("queued"))
        return makespan([*running, *queued], self.slots)

    def _expect_seconds(self, entry: Entry) -> float:
        """Return the seconds of a queued run; a guess is corrected by the pace of running runs."""
        return entry.seconds * (1.0 if self.estimator.knows(self.points[entry.name]) else self.pace() or 1.0)

    def pace(self) -> float | None:
        """Return how many times longer than guessed running runs take; None if unknown."""
        running = [entry for entry in self.queue.in_state("running") if self.read_progress(entry)]
        guessed = [
            entry for entry in running if not self.estimator.knows(self.points[entry.name]) and entry.seconds > 0
        ]
        return median((self._seconds_of(e) + self.seconds_left_of(e)) / e.seconds for e in guessed) if guessed else None

    def seconds_left_of(self, entry: Entry) -> float:
        """Return the seconds until a running run is done, from its steps and the usual time after them."""
        progress, elapsed = self.read_progress(entry), self._seconds_of(entry)
        if progress is None:
            return max(0.0, entry.seconds - elapsed)
        start = self.estimator.start(self.points[entry.name])
        if progress.time < entry.started:  # an earlier process wrote it, and the run resumes there
            return max(0.0, start + progress.left() - elapsed)
        before = max(0.0, progress.time - entry.started - progress.seconds)
        after, since = max(0.0, start - before), time.time() - progress.time
        return max(0.0, progress.left() + after - since)

    def _seconds_of(self, entry: Entry) -> float:
        return time.time() - entry.started

    def read_progress(self, entry: Entry) -> ProgressRecord | None:
        """Return the progress of a run in steps; None before its first step."""
        return ProgressFile(self.points[entry.name].run.path).read()

    def refresh(self, where: Callable[[str], str]) -> None:
        """Redraw the table, at most twice a second; without a terminal print a line now and then."""
        since = time.monotonic() - self._shown
        if self.bar and since >= _DRAW_SECONDS:
            self.bar.update(self._table(where))
        elif not self.bar and since >= _LINE_SECONDS:
            self.note(self._line())
        else:
            return
        self._shown = time.monotonic()

    def _line(self) -> str:
        running = self.queue.in_state("running")
        shown = ", ".join(f"{entry.name} {self._share(entry)}" for entry in running[:_MAX_LISTED])
        more = f" and {len(running) - _MAX_LISTED} more" if len(running) > _MAX_LISTED else ""
        return f"{self._counts()}; {self.eta()}; running: {shown}{more}"

    def _counts(self) -> str:
        counts = {state: len(self.queue.in_state(state)) for state in ("done", "running", "queued", "failed", "pruned")}
        return ", ".join(f"{count} {state}" for state, count in counts.items() if count)

    def _share(self, entry: Entry) -> str:
        if self.points[entry.name].run.is_finished:
            return "100 %"  # its process is about to end
        progress = self.read_progress(entry)
        return f"{100 * progress.share:.0f} %" if progress else "–"

    def _table(self, where: Callable[[str], str]) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self._counts()}; {self.eta()}", title_justify="left", box=None)
        for column in ("run", "where", "progress", "for", "ETA"):
            table.add_column(column, overflow="fold")
        for entry in self.queue.in_state("running"):
            known = self.read_progress(entry) or self.estimator.knows(self.points[entry.name])
            left = format_duration(self.seconds_left_of(entry)) if known else "–"
            table.add_row(
                Text(visible(entry.name)),
                where(entry.name),
                self._share(entry),
                format_duration(self._seconds_of(entry)),
                left,
            )
        for entry in self.queue.in_state("failed")[-_MAX_LISTED:]:
            table.add_row(Text(visible(entry.name), style="red"), "failed", Text(visible(entry.error)[:60]), "", "")
        return table
