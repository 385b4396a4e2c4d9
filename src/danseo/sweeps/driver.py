"""The loop of a sweep: start runs on free slots, show their progress, and record how they end."""

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from danseo.config.base import flatten_config
from danseo.display.escaping import visible
from danseo.display.progress import MOST_SILENT, LiveDisplay, format_duration
from danseo.display.table import Table
from danseo.runs.index import read_record
from danseo.runs.lock import RunLocks
from danseo.runs.progress_file import ProgressFile, ProgressRecord
from danseo.sweeps.local_executor import EndedRun
from danseo.sweeps.plan import SWEEP_LOG, OnRun, Point, RuntimeEstimator
from danseo.sweeps.queue import Availability, Entry, RunQueue, State, makespan
from danseo.sweeps.worker import Order, is_done, write_reason

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
        queued = sorted((self._expect_seconds(e) for e in self.queue.in_state("queued")), reverse=True)
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


_POLL_SECONDS = 0.25
_PRUNE_SECONDS = 1.0


class Executor(Protocol):
    """Starts runs in other processes, here or on a cluster."""

    def capacity(self) -> int: ...

    def where(self, name: str) -> str: ...

    def start(self, order: Order) -> None: ...

    def poll(self, seconds: float) -> list[EndedRun]: ...

    def stop(self, name: str) -> None: ...

    def close(self) -> None: ...


class Source(Protocol):
    """Gives out points, and learns how their runs ended."""

    def next_points(self, free: int) -> list[Point]: ...

    @property
    def is_exhausted(self) -> bool: ...

    def report_end(self, point: Point, state: State) -> None: ...

    def prune_reason(self, point: Point) -> str: ...

    def list_earlier_runs(self) -> list[str]: ...

    def tables(self) -> list[Table]: ...


class PointList:
    """The points of a grid or a list, given out all at once."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = list(points)

    def next_points(self, free: int) -> list[Point]:
        points, self.points = self.points, []
        return points

    @property
    def is_exhausted(self) -> bool:
        return not self.points

    def report_end(self, point: Point, state: State) -> None:
        """Do nothing: a list does not depend on results."""

    def prune_reason(self, point: Point) -> str:
        return ""

    def list_earlier_runs(self) -> list[str]:
        return []

    def tables(self) -> list[Table]:
        return []


class SweepLog:
    """The events of a sweep as JSON lines; several sweeps may share the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, run: str, state: str, **facts: object) -> None:
        record = {"time": round(time.time(), 3), "process": os.getpid(), "run": run, "state": state, **facts}
        line = json.dumps(record, ensure_ascii=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:  # one write, so that lines of other processes stay intact
            file.write(line.encode())


class Driver:
    """Runs the points of a source with an executor."""

    def __init__(
        self, source: Source, executor: Executor, locks: RunLocks, estimator: RuntimeEstimator, log: SweepLog, *,
        root: Path, retries: int = 0, force: bool = False, quiet: bool = False, on_run: OnRun | None = None,
    ) -> None:  # fmt: skip
        self.source, self.executor, self.locks = source, executor, locks
        self.estimator, self.log, self.root, self.started = estimator, log, root, time.time()
        self.force_before = self.started if force else None
        self.on_run = on_run or (lambda run, state: None)
        self.points: dict[str, Point] = {}
        self.queue = RunQueue(retries)
        self.progress = SweepProgress(self.queue, self.points, estimator, quiet=quiet)
        self._reported: set[str] = set()
        self._last_check = 0.0
        self._noted_waiting = False
        self._tokens: dict[str, str] = {}

    def run(self) -> RunQueue:
        """Run until every run is done, failed or pruned; when this returns, no worker lives and no lock is held."""
        try:
            with self.progress:
                self._start_runs()
                while not (self.queue.is_over and self.source.is_exhausted):
                    for ended in self.executor.poll(_POLL_SECONDS):
                        self._record_end(ended)
                    self._prune()
                    self._report_ends()
                    self._start_runs()
                    self.progress.refresh(self.executor.where)
                    for entry in self.queue.in_state("running"):
                        self.on_run(self.points[entry.name].run, "running")
        finally:
            self.executor.close()
            for entry in self.queue.in_state("running"):  # a worker that was stopped may leave its lock
                self.locks.release_for(entry.name, self._tokens[entry.name])
        return self.queue

    def _start_runs(self) -> None:
        """Start runs on free slots."""
        self.progress.slots = max(1, self.executor.capacity())
        free = self.executor.capacity() - len(self.queue.in_state("running"))
        for point in self.source.next_points(max(0, free - len(self.queue.ready(time.time())))):
            self.points[point.name] = point
            self.queue.add(point.name, self.estimator.seconds(point))
            self.log.write(point.name, "done" if self._availability(point.name) == "done" else "queued")
        while free > 0 and (entry := self.queue.take(time.time(), self._availability)):
            self._start(entry)
            free -= 1
        self._report_ends()
        queued = self.queue.in_state("queued")
        is_waiting = queued and not self.queue.in_state("running") and self.locks.is_held(queued[0].name)
        if is_waiting and not self._noted_waiting:
            self._noted_waiting = True
            self.progress.note(f"waiting for {len(queued)} run{'s' if queued[1:] else ''} that another process has")

    def _availability(self, name: str) -> Availability:
        if is_done(self.points[name].run.path, self.force_before):
            return "done"
        return "held" if self.locks.is_held(name) else "free"

    def _start(self, entry: Entry) -> None:
        point = self.points[entry.name]
        anew = self.force_before if entry.attempts == 1 else None  # a retry resumes from the checkpoint
        self._tokens[entry.name] = uuid.uuid4().hex
        runs, stale = str(point.run.path.parent), self.locks.stale
        order = Order(
            point.name, flatten_config(point.config), str(self.root), runs, None, anew, stale, self._tokens[entry.name]
        )
        # the folder in which the runs of this sweep agree on precision and attention
        folder = point.run.path.parent / ".compute" / self.log.path.name.removesuffix(SWEEP_LOG)
        folder.mkdir(parents=True, exist_ok=True)
        self.executor.start(replace(order, series=str(folder)))
        self.log.write(entry.name, "running", attempt=entry.attempts, where=self.executor.where(entry.name))
        self.progress.event(entry, "started")

    def _record_end(self, ended: EndedRun) -> None:
        """Record a run that left its slot."""
        ending, error = ended.ending, ended.error
        if ending in ("failed", "pruned"):  # the worker is dead, which its lock cannot know on another machine
            self.locks.release_for(ended.name, self._tokens[ended.name])
        if ending == "failed" and self.locks.is_held(ended.name):
            ending, error = "held", ""  # another process took over its lock and runs it
        if ending in ("failed", "pruned"):
            error = error or self.queue.entries[ended.name].error or ending
            self._write_reason(self.points[ended.name], error, is_pruned=ending == "pruned")
        if ending == "done":
            self._learn(self.queue.entries[ended.name])
        entry = self.queue.end(ended.name, ending, time.time(), error)
        self.log.write(entry.name, entry.state if ending != "lost" else "lost", ending=ending, error=error)
        if ending in ("failed", "lost") and entry.state == "queued":
            self.progress.event(entry, "retry" if ending == "failed" else "lost")

    def _learn(self, ended: Entry) -> None:
        """Update the expected times of queued runs from the ended one."""
        self.estimator.learn(read_record(self.points[ended.name].run), time.time() - ended.started)
        for entry in self.queue.in_state("queued"):
            entry.seconds = self.estimator.seconds(self.points[entry.name])

    def _write_reason(self, point: Point, error: str, *, is_pruned: bool) -> None:
        """Write the reason into the run directory, unless another process has begun to work there."""
        lock = self.locks.acquire(point.name)
        if lock:
            write_reason(point.run, point.config, error, is_pruned=is_pruned)
            lock.release()

    def _prune(self) -> None:
        """Stop the runs that the source prunes."""
        if time.monotonic() - self._last_check < _PRUNE_SECONDS:
            return
        self._last_check = time.monotonic()
        for entry in self.queue.in_state("running"):
            if reason := self.source.prune_reason(self.points[entry.name]):
                entry.error = reason
                self.executor.stop(entry.name)

    def _report_ends(self) -> None:
        """Report final states to the source and the progress display."""
        for entry in self.queue.in_state("done", "failed", "pruned"):
            if entry.name not in self._reported:
                self._reported.add(entry.name)
                self.source.report_end(self.points[entry.name], entry.state)
                self.progress.event(entry, entry.state)
                if entry.name in self._tokens:  # it ran here
                    self.on_run(self.points[entry.name].run, entry.state)
