"""The queue of runs: the run with the longest expected time is first. It uses no clock, process or file."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["queued", "running", "done", "failed", "pruned"]
Ending = Literal["done", "found", "failed", "pruned", "held", "lost"]
"""found: another process finished the run. held: another process runs it. lost: its machine went away."""
Availability = Literal["free", "held", "done"]

RECHECK_SECONDS = 1.0
"""Seconds before a run of another owner is checked again."""
MAX_LOSSES = 20
"""How often a run may lose its machine before it counts as failed."""


@dataclass
class Entry:
    """One run in the queue."""

    name: str
    seconds: float
    """The expected run time."""
    state: State = "queued"
    attempts: int = 0
    """Starts that ended in failure, or have not ended."""
    losses: int = 0
    not_before: float = 0.0
    started: float = 0.0
    error: str = ""


class RunQueue:
    """Gives out the next run, and records how runs end."""

    def __init__(self, retries: int = 0) -> None:
        self.retries = retries
        self.entries: dict[str, Entry] = {}

    def add(self, name: str, seconds: float) -> None:
        """Put a run into the queue, once."""
        self.entries.setdefault(name, Entry(name, seconds))

    def take(self, now: float, availability: Callable[[str], Availability]) -> Entry | None:
        """Return the longest free run; finished runs leave the queue on the way."""
        for entry in sorted(self.ready(now), key=lambda entry: -entry.seconds):
            state = availability(entry.name)
            if state == "free":
                entry.state, entry.started = "running", now
                entry.attempts += 1
                return entry
            if state == "done":
                entry.state, entry.error = "done", ""
            else:
                entry.not_before = now + RECHECK_SECONDS
        return None

    def end(self, name: str, ending: Ending, now: float, error: str = "") -> Entry:
        """Record how a run ended; failed runs are queued again while retries are left."""
        entry = self.entries[name]
        entry.error = error
        entry.losses += ending == "lost"
        if entry.losses >= MAX_LOSSES:
            entry.state = "failed"
        elif ending == "held" or ending == "lost":
            entry.state, entry.not_before = "queued", now + RECHECK_SECONDS
            entry.attempts -= 1
        elif ending == "failed":
            entry.state = "queued" if entry.attempts <= self.retries else "failed"
        else:
            entry.state = "done" if ending == "found" else ending
        return entry

    def ready(self, now: float) -> list[Entry]:
        """Return the queued runs that can be checked now."""
        return [entry for entry in self.in_state("queued") if entry.not_before <= now]

    def in_state(self, *states: State) -> list[Entry]:
        """Return the runs in these states."""
        return [entry for entry in self.entries.values() if entry.state in states]

    @property
    def is_over(self) -> bool:
        return not self.in_state("queued", "running")


def makespan(seconds: Iterable[float], slots: int) -> float:
    """Return when the last run ends if each free slot takes the next run."""
    ends = [0.0] * max(1, slots)
    for length in seconds:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)
