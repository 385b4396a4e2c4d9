"""Batches of examples from many requests, predicted by one model in one thread."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from danseo.data.input_reader import InputLine

Records = list[dict[str, Any]]
PredictLines = Callable[[Sequence[InputLine], bool], Records]
"""Returns the records of lines; the flag requests all details."""


class QueueFull(Exception):
    """The queue is full; the client should try again later."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full; try again in {seconds} s")
        self.seconds = seconds


@dataclass(eq=False)
class PendingRequest:
    """The lines of one request and the future of its records."""

    lines: Sequence[InputLine]
    future: "asyncio.Future[Records]"
    loop: asyncio.AbstractEventLoop
    with_details: bool = False
    records: Records = field(default_factory=list)
    """Records of the finished lines."""
    n_taken: int = 0

    def take(self, max_lines: int, max_characters: int) -> list[InputLine]:
        """Return the next lines: at least one, and no more than fit."""
        taken: list[InputLine] = []
        for line in self.lines[self.n_taken : self.n_taken + max_lines]:
            max_characters -= count_characters(line)
            if taken and max_characters < 0:
                break
            taken.append(line)
        self.n_taken += len(taken)
        return taken


BatchPart = tuple[PendingRequest, list[InputLine]]
"""The lines of one request in a batch."""
_MAX_CHARACTERS = 1 << 13
"""Characters per batch, unless a single text is longer."""


def count_characters(line: InputLine) -> int:
    """Return the number of characters in all parts of an example."""
    example = line.example
    parts = (getattr(example, name, None) for name in ("text", "pair", "question", "turns", "words"))
    return sum(len(part) if isinstance(part, str) else sum(map(len, part)) for part in parts if part)


class Batcher:
    """A thread that predicts the queue, one batch of lines after another.

    Requests take turns: a long one is answered in several batches, and others go into the same ones.
    """

    def __init__(self, predict: PredictLines, *, max_batch: int = 64, room: int = 1024) -> None:
        self.predict, self.max_batch, self.room = predict, max_batch, room
        self.waiting: deque[PendingRequest] = deque()
        self.n_pending = 0
        """Lines in the queue or in the current batch."""
        self.speed = 50.0
        """Recent lines per second."""
        self.closing = False
        self.lock = threading.Condition()
        self.thread = threading.Thread(target=self._run, name="danseo-serve", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """Predict the rest of the queue, then stop."""
        with self.lock:
            self.closing = True
            self.lock.notify()
        if self.thread.is_alive():
            self.thread.join()

    async def submit(self, lines: Sequence[InputLine], *, with_details: bool = False) -> Records:
        """Return the records of the lines, in order; raise QueueFull if the queue is full."""
        loop = asyncio.get_running_loop()
        entry = PendingRequest(lines, loop.create_future(), loop, with_details)
        with self.lock:
            if self.closing or (self.n_pending and self.n_pending + len(lines) > self.room):
                raise QueueFull(max(1, round(self.n_pending / self.speed)))
            self.n_pending += len(lines)
            self.waiting.append(entry)
            self.lock.notify()
        return await entry.future

    def _run(self) -> None:
        while batch := self._take_batch():
            self._process_batch(batch)

    def _take_batch(self) -> list[BatchPart]:
        """Return the next batch, with lines of every request in turn; empty once the thread should stop."""
        with self.lock:
            while not self.waiting and not self.closing:
                self.lock.wait()
            parts: list[BatchPart] = []
            size, characters = self.max_batch, _MAX_CHARACTERS
            for _ in range(len(self.waiting)):
                if parts and (size <= 0 or characters <= 0):
                    break
                entry = self.waiting.popleft()
                lines = entry.take(max(1, size), characters)
                parts.append((entry, lines))
                size, characters = size - len(lines), characters - sum(map(count_characters, lines))
                if entry.n_taken < len(entry.lines):
                    self.waiting.append(entry)  # after the others
            return parts

    def _process_batch(self, batch: list[BatchPart]) -> None:
        lines = [line for _, part in batch for line in part]
        start = time.perf_counter()
        result: Records | Exception
        try:
            result = self.predict(lines, any(entry.with_details for entry, _ in batch))
        except Exception as error:  # only the requests of this batch fail
            result = error
        with self.lock:  # before delivery: a client with a result is no longer in the queue
            self.n_pending -= len(lines)
            self.speed = 0.5 * self.speed + 0.5 * len(lines) / max(1e-6, time.perf_counter() - start)
            if isinstance(result, Exception):
                failed = [entry for entry, _ in batch if entry in self.waiting]
                self.n_pending -= sum(len(entry.lines) - entry.n_taken for entry in failed)
                for entry in failed:
                    self.waiting.remove(entry)
        _deliver_results(batch, result)


def _deliver_results(batch: Sequence[BatchPart], result: Records | Exception) -> None:
    """Deliver the records of finished requests; wake each event loop once."""

    def resolve(entries: Sequence[PendingRequest]) -> None:
        for entry in entries:
            if entry.future.done():  # the client has left
                continue
            if isinstance(result, Exception):
                entry.future.set_exception(result)
            else:
                entry.future.set_result(entry.records)

    position = 0
    ended: dict[asyncio.AbstractEventLoop, list[PendingRequest]] = {}
    for entry, lines in batch:
        if not isinstance(result, Exception):
            entry.records += result[position : position + len(lines)]
        position += len(lines)
        if isinstance(result, Exception) or len(entry.records) == len(entry.lines):
            ended.setdefault(entry.loop, []).append(entry)
    for loop, entries in ended.items():
        loop.call_soon_threadsafe(resolve, entries)
