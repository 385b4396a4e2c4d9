"""The loop of a sweep: free slots take the next run, ended runs are noted, until nothing is left."""

import json
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from danseo.display.table import Table
from danseo.runs.index import read_record
from danseo.runs.locks import Locks
from danseo.settings.declaring import flat
from danseo.sweeps.board import Board
from danseo.sweeps.clock import Clock
from danseo.sweeps.local import Ended
from danseo.sweeps.plan import Point
from danseo.sweeps.schedule import Entry, Schedule, Standing, State
from danseo.sweeps.worker import Order, is_done, leave_reason

_TICK = 0.25
_WATCH = 1.0


class Executor(Protocol):
    """Where runs run."""

    def capacity(self) -> int: ...

    def where(self, name: str) -> str: ...

    def start(self, order: Order) -> None: ...

    def poll(self, seconds: float) -> list[Ended]: ...

    def stop(self, name: str) -> None: ...

    def close(self) -> None: ...


class Source(Protocol):
    """Where points come from, and who wants to know what became of them."""

    def more(self, free: int) -> list[Point]: ...

    @property
    def is_dry(self) -> bool: ...

    def ended(self, point: Point, state: State) -> None: ...

    def hopeless(self, point: Point) -> str: ...

    def earlier(self) -> list[str]: ...

    def tables(self) -> list[Table]: ...


class Listed:
    """The points of a grid or a list: all of them, at once."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = list(points)

    def more(self, free: int) -> list[Point]:
        points, self.points = self.points, []
        return points

    @property
    def is_dry(self) -> bool:
        return not self.points

    def ended(self, point: Point, state: State) -> None:
        """Nobody waits for it."""

    def hopeless(self, point: Point) -> str:
        return ""

    def earlier(self) -> list[str]:
        return []

    def tables(self) -> list[Table]:
        return []


class Journal:
    """The events of a sweep as JSON lines; several sweeps may share the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, run: str, state: str, **facts: object) -> None:
        record = {"time": round(time.time(), 3), "process": os.getpid(), "run": run, "state": state, **facts}
        line = json.dumps(record, ensure_ascii=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:  # one write, so that lines of others stay whole
            file.write(line.encode())


class Driver:
    """Drives a source's points through an executor."""

    def __init__(
        self, source: Source, executor: Executor, locks: Locks, clock: Clock, journal: Journal, *, root: Path,
        retries: int = 0, force: bool = False, quiet: bool = False,
    ) -> None:  # fmt: skip
        self.source, self.executor, self.locks, self.clock, self.journal = source, executor, locks, clock, journal
        self.root, self.started = root, time.time()
        self.force_before = self.started if force else None
        self.points: dict[str, Point] = {}
        self.schedule = Schedule(retries)
        self.board = Board(self.schedule, self.points, clock, quiet=quiet)
        self._settled: set[str] = set()
        self._watched = 0.0
        self._waits = False
        self._tokens: dict[str, str] = {}

    def run(self) -> Schedule:
        """Until every run is done, has failed or was pruned; workers end with it, however it ends."""
        try:
            with self.board:
                self._fill()
                while not (self.schedule.is_over and self.source.is_dry):
                    for ended in self.executor.poll(_TICK):
                        self._note(ended)
                    self._prune()
                    self._settle()
                    self._fill()
                    self.board.refresh(self.executor.where)
        finally:
            self.executor.close()
        return self.schedule

    def _fill(self) -> None:
        """Give free slots something to do."""
        self.board.slots = max(1, self.executor.capacity())
        free = self.executor.capacity() - len(self.schedule.of("running"))
        for point in self.source.more(max(0, free - len(self.schedule.ready(time.time())))):
            self.points[point.name] = point
            self.schedule.add(point.name, self.clock.seconds(point))
            self.journal.write(point.name, "done" if self._standing(point.name) == "done" else "queued")
        while free > 0 and (entry := self.schedule.take(time.time(), self._standing)):
            self._start(entry)
            free -= 1
        self._settle()
        self._say_who_waits()

    def _say_who_waits(self) -> None:
        """Once, when all that is left is in other hands."""
        left = self.schedule.of("queued")
        if left and not self.schedule.of("running") and not self._waits and self.locks.is_held(left[0].name):
            self._waits = True
            self.board.note(f"waiting for {len(left)} run{'s' if len(left) > 1 else ''} that another process has")

    def _standing(self, name: str) -> Standing:
        if is_done(self.points[name].run.path, self.force_before):
            return "done"
        return "held" if self.locks.is_held(name) else "free"

    def _start(self, entry: Entry) -> None:
        point = self.points[entry.name]
        anew = self.force_before if entry.attempts == 1 else None  # a retry goes on from the checkpoint
        self._tokens[entry.name] = uuid.uuid4().hex
        runs, stale = str(point.run.path.parent), self.locks.stale
        order = Order(point.name, flat(point.config), str(self.root), runs, None, anew, stale, self._tokens[entry.name])
        self.executor.start(replace(order, series=str(self._series(point.run.path.parent))))
        self.journal.write(entry.name, "running", attempt=entry.attempts, where=self.executor.where(entry.name))
        self.board.event(entry, "started")

    def _series(self, runs: Path) -> Path:
        """The folder in which the runs of this sweep agree on how to compute."""
        folder = runs / ".gears" / self.journal.path.name.removesuffix(".sweep.jsonl")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _note(self, ended: Ended) -> None:
        """A run left its slot."""
        ending, error = ended.ending, ended.error
        if ending in ("failed", "pruned"):  # the worker is dead; of one on another machine the lock cannot know
            self.locks.release_for(ended.name, self._tokens[ended.name])
        if ending == "failed" and self.locks.is_held(ended.name):
            ending, error = "held", ""  # its lock was lost to somebody who now runs it
        if ending in ("failed", "pruned"):
            error = error or self.schedule.entries[ended.name].error or ending
            self._leave(self.points[ended.name], error, is_pruned=ending == "pruned")
        if ending == "done":
            self._learn(self.schedule.entries[ended.name])
        entry = self.schedule.end(ended.name, ending, time.time(), error)
        self.journal.write(entry.name, entry.state if ending != "lost" else "lost", ending=ending, error=error)
        if ending in ("failed", "lost") and entry.state == "queued":
            self.board.event(entry, "retry" if ending == "failed" else "lost")

    def _learn(self, ended: Entry) -> None:
        """Expect of the queued runs what the ended one took."""
        self.clock.learn(read_record(self.points[ended.name].run), time.time() - ended.started)
        for entry in self.schedule.of("queued"):
            entry.seconds = self.clock.seconds(self.points[entry.name])

    def _leave(self, point: Point, error: str, *, is_pruned: bool) -> None:
        """The reason into the run directory, unless somebody else has begun to work there."""
        lock = self.locks.acquire(point.name)
        if lock:
            leave_reason(point.run, point.config, error, is_pruned=is_pruned)
            lock.release()

    def _prune(self) -> None:
        """Stop what the source gives no hope."""
        if time.monotonic() - self._watched < _WATCH:
            return
        self._watched = time.monotonic()
        for entry in self.schedule.of("running"):
            if reason := self.source.hopeless(self.points[entry.name]):
                entry.error = reason
                self.executor.stop(entry.name)

    def _settle(self) -> None:
        """Tell the source and the board what is final."""
        for entry in self.schedule.of("done", "failed", "pruned"):
            if entry.name not in self._settled:
                self._settled.add(entry.name)
                self.source.ended(self.points[entry.name], entry.state)
                self.board.event(entry, entry.state)
