"""The loop of a sweep: start runs on free slots and record how they end, until none is left."""

import json
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from danseo.config.base import flatten_config
from danseo.display.table import Table
from danseo.runs.index import read_record
from danseo.runs.lock import RunLocks
from danseo.sweeps.local_executor import EndedRun
from danseo.sweeps.plan import OnRun, Point
from danseo.sweeps.progress import SweepProgress
from danseo.sweeps.queue import Availability, Entry, RunQueue, State
from danseo.sweeps.runtime_estimate import SWEEP_LOG, RuntimeEstimator
from danseo.sweeps.worker import Order, is_done, write_reason

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
        self._note_waiting()

    def _note_waiting(self) -> None:
        """Report once that all remaining runs belong to other processes."""
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
        self.executor.start(replace(order, series=str(self._make_series_folder(point.run.path.parent))))
        self.log.write(entry.name, "running", attempt=entry.attempts, where=self.executor.where(entry.name))
        self.progress.event(entry, "started")

    def _make_series_folder(self, runs: Path) -> Path:
        """Make the folder in which the runs of this sweep agree on precision and attention."""
        folder = runs / ".compute" / self.log.path.name.removesuffix(SWEEP_LOG)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

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
