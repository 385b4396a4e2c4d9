"""Examples of many requests, answered together by one model in one thread."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.data.lines import Line

Records = list[dict[str, Any]]
Answer = Callable[[Sequence[Line], bool], Records]
"""Lines in, and whether anybody wants all that can be said of them; records out."""


class Busy(Exception):
    """More is waiting than may wait; the client should come again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too much is waiting; try again in {seconds} s")
        self.seconds = seconds


@dataclass
class Waiting:
    """The lines of one request, and where its answer is awaited."""

    lines: Sequence[Line]
    future: "asyncio.Future[Records]"
    loop: asyncio.AbstractEventLoop
    in_detail: bool = False


class Batcher:
    """A thread that takes whatever waits, at most so many lines at a time, and answers it at once."""

    def __init__(self, answer: Answer, *, most: int = 64, room: int = 1024) -> None:
        self.answer, self.most, self.room = answer, most, room
        self.waiting: deque[Waiting] = deque()
        self.held = 0
        """Lines that wait or are being answered."""
        self.speed = 50.0
        """Lines per second lately."""
        self.closing = False
        self.lock = threading.Condition()
        self.thread = threading.Thread(target=self._work, name="danseo-serve", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """Answer what waits, then end."""
        with self.lock:
            self.closing = True
            self.lock.notify()
        if self.thread.is_alive():
            self.thread.join()

    async def ask(self, lines: Sequence[Line], *, in_detail: bool = False) -> Records:
        """The records of the lines, in their order; Busy where too much waits already."""
        loop = asyncio.get_running_loop()
        entry = Waiting(lines, loop.create_future(), loop, in_detail)
        with self.lock:
            if self.closing or (self.held and self.held + len(lines) > self.room):
                raise Busy(max(1, round(self.held / self.speed)))
            self.held += len(lines)
            self.waiting.append(entry)
            self.lock.notify()
        return await entry.future

    def _work(self) -> None:
        while batch := self._taken():
            self._answer(batch)

    def _taken(self) -> list[Waiting]:
        """What waits, up to the most at a time but one request at least; nothing when all is done at the end."""
        with self.lock:
            while not self.waiting and not self.closing:
                self.lock.wait()
            taken: list[Waiting] = []
            size = 0
            while self.waiting and (not taken or size + len(self.waiting[0].lines) <= self.most):
                taken.append(self.waiting.popleft())
                size += len(taken[-1].lines)
            return taken

    def _answer(self, batch: list[Waiting]) -> None:
        lines = [line for entry in batch for line in entry.lines]
        start = time.perf_counter()
        outcome: Records | Exception
        try:
            outcome = self.answer(lines, any(entry.in_detail for entry in batch))
        except Exception as error:  # whatever a model raises belongs to those who asked, and others go on
            outcome = error
        with self.lock:  # before anybody hears of it: whoever has an answer no longer waits
            self.held -= len(lines)
            self.speed = 0.5 * self.speed + 0.5 * len(lines) / max(1e-6, time.perf_counter() - start)
        _tell(batch, outcome)


def _tell(batch: Sequence[Waiting], outcome: Records | Exception) -> None:
    """Give everybody their part; a loop is woken once for all who wait in it."""

    def settle(entries: Sequence[tuple[Waiting, Records]]) -> None:
        for entry, records in entries:
            if entry.future.done():  # the client has left
                continue
            if isinstance(outcome, Exception):
                entry.future.set_exception(outcome)
            else:
                entry.future.set_result(records)

    position = 0
    parts: dict[asyncio.AbstractEventLoop, list[tuple[Waiting, Records]]] = {}
    for entry in batch:
        end = position + len(entry.lines)
        records = [] if isinstance(outcome, Exception) else outcome[position:end]
        parts.setdefault(entry.loop, []).append((entry, records))
        position = end
    for loop, entries in parts.items():
        loop.call_soon_threadsafe(settle, entries)
