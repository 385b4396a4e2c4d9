"""The order of work, without clocks, processes or files: a queue, longest expected first, never waves."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["queued", "running", "done", "failed", "pruned"]
Ending = Literal["done", "found", "failed", "pruned", "held", "lost"]
"""found: another owner had finished it. held: another owner has it. lost: its machine went away, not its fault."""
Standing = Literal["free", "held", "done"]

LOOK_AGAIN = 1.0
"""Seconds before a run that another owner has is looked at again."""
MOST_LOSSES = 20
"""So often may a run lose its machine before that counts as its failure."""


@dataclass
class Entry:
    """One run in the queue."""

    name: str
    seconds: float
    """Expected."""
    state: State = "queued"
    attempts: int = 0
    """Starts that ended in failure, or have not ended."""
    losses: int = 0
    not_before: float = 0.0
    started: float = 0.0
    error: str = ""


class Schedule:
    """Who is next, and what becomes of those who end."""

    def __init__(self, retries: int = 0) -> None:
        self.retries = retries
        self.entries: dict[str, Entry] = {}

    def add(self, name: str, seconds: float) -> None:
        """Put a run into the queue, once."""
        self.entries.setdefault(name, Entry(name, seconds))

    def take(self, now: float, standing: Callable[[str], Standing]) -> Entry | None:
        """The longest of the queued runs that nobody has; finished ones leave the queue on the way."""
        for entry in sorted(self.ready(now), key=lambda entry: -entry.seconds):
            found = standing(entry.name)
            if found == "free":
                entry.state, entry.started = "running", now
                entry.attempts += 1
                return entry
            if found == "done":
                entry.state, entry.error = "done", ""
            else:
                entry.not_before = now + LOOK_AGAIN
        return None

    def end(self, name: str, ending: Ending, now: float, error: str = "") -> Entry:
        """Note how a run ended; failures go back to the queue as long as retries are left."""
        entry = self.entries[name]
        entry.error = error
        entry.losses += ending == "lost"
        if entry.losses >= MOST_LOSSES:
            entry.state = "failed"
        elif ending == "held" or ending == "lost":
            entry.state, entry.not_before = "queued", now + LOOK_AGAIN
            entry.attempts -= 1
        elif ending == "failed":
            entry.state = "queued" if entry.attempts <= self.retries else "failed"
        else:
            entry.state = "done" if ending == "found" else ending
        return entry

    def ready(self, now: float) -> list[Entry]:
        """The queued runs that can be looked at now."""
        return [entry for entry in self.of("queued") if entry.not_before <= now]

    def of(self, *states: State) -> list[Entry]:
        """The runs in these states."""
        return [entry for entry in self.entries.values() if entry.state in states]

    @property
    def is_over(self) -> bool:
        return not self.of("queued", "running")


def longest_first(seconds: Iterable[float]) -> list[float]:
    """The order in which the queue takes runs."""
    return sorted(seconds, reverse=True)


def makespan(seconds: Sequence[float], slots: int) -> float:
    """When the last of the runs ends if each free slot takes the next one."""
    ends = [0.0] * max(1, slots)
    for length in seconds:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)
