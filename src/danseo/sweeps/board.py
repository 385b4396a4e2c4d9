"""What a person sees while a sweep goes on: a live table on a terminal, a line per event elsewhere."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from danseo.display.escaping import visible
from danseo.display.progress import LiveDisplay, clock_time
from danseo.runs.standing import Standing, StandingFile
from danseo.sweeps.clock import Clock
from danseo.sweeps.plan import Point
from danseo.sweeps.schedule import Entry, Schedule, longest_first, makespan

_SHOWN = 8  # of many failures, or of many running runs in a line
_DRAWN, _SAID = 0.5, 60.0  # seconds between two pictures on a terminal, and between two lines elsewhere


class Board(LiveDisplay):
    """Shows a schedule; quiet says nothing at all."""

    def __init__(
        self, schedule: Schedule, points: Mapping[str, Point], clock: Clock, *, slots: int = 1, quiet: bool = False
    ) -> None:
        super().__init__(quiet=quiet)
        self.schedule, self.points, self.clock, self.slots = schedule, points, clock, slots
        self._shown = time.monotonic()

    def draw_on(self, console: Any) -> Any:
        from rich.live import Live

        return Live(console=console, refresh_per_second=2, transient=True)

    def event(self, entry: Entry, what: str) -> None:
        """A run changed its state."""
        settled, count = len(self.schedule.of("done", "failed", "pruned")), len(self.schedule.entries)
        detail = f": {entry.error}" if entry.error and what in ("failed", "retry", "pruned", "lost") else ""
        if not self.bar:
            left = f"; {self.eta()}" if settled < count and what in ("done", "failed") else ""
            self.note(f"[{settled}/{count}] {entry.name} {what}{detail}{left}")

    def eta(self) -> str:
        """When all will be done, and whether that is more than a guess."""
        points = [self.points[entry.name] for entry in self.schedule.of("running", "queued")]
        guessed = self.pace() is None and not all(self.clock.knows(p) or p.run.is_finished for p in points)
        return f"ETA {clock_time(self.left())}{' (a guess)' if guessed else ''}"

    def left(self) -> float:
        """Seconds until all is done: running runs by how far they are, queued ones by those that ended."""
        running = [self.left_of(entry) for entry in self.schedule.of("running")]
        queued = longest_first(self._expected(entry) for entry in self.schedule.of("queued"))
        return makespan([*running, *queued], self.slots)

    def _expected(self, entry: Entry) -> float:
        """Seconds of a queued run; a guess is corrected by what running runs show of it."""
        return entry.seconds * (1.0 if self.clock.knows(self.points[entry.name]) else self.pace() or 1.0)

    def pace(self) -> float | None:
        """How many times longer than guessed running runs take; None where none shows it."""
        running = [entry for entry in self.schedule.of("running") if self.standing(entry)]
        guessed = [entry for entry in running if not self.clock.knows(self.points[entry.name]) and entry.seconds > 0]
        return median((self._gone(e) + self.left_of(e)) / e.seconds for e in guessed) if guessed else None

    def left_of(self, entry: Entry) -> float:
        """Seconds until a running run is done: by its steps, and what usually comes after them."""
        standing, gone = self.standing(entry), self._gone(entry)
        if standing is None:
            return max(0.0, entry.seconds - gone)
        start = self.clock.start(self.points[entry.name])
        if standing.time < entry.started:  # an earlier process wrote it, and the run goes on from there
            return max(0.0, start + standing.left() - gone)
        before = max(0.0, standing.time - entry.started - standing.seconds)
        after, since = max(0.0, start - before), time.time() - standing.time
        return max(0.0, standing.left() + after - since)

    def _gone(self, entry: Entry) -> float:
        return time.time() - entry.started

    def standing(self, entry: Entry) -> Standing | None:
        """How far a run is with its steps; None where it has made none."""
        return StandingFile(self.points[entry.name].run.path).read()

    def refresh(self, where: Callable[[str], str]) -> None:
        """Draw anew, twice a second at most; without a terminal say a line once a minute."""
        since = time.monotonic() - self._shown
        if self.bar and since >= _DRAWN:
            self.bar.update(self._table(where))
        elif not self.bar and since >= _SAID:
            self.note(self._line())
        else:
            return
        self._shown = time.monotonic()

    def _line(self) -> str:
        running = self.schedule.of("running")
        shown = ", ".join(f"{entry.name} {self._share(entry)}" for entry in running[:_SHOWN])
        more = f" and {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
        return f"{self._counts()}; {self.eta()}; running: {shown}{more}"

    def _counts(self) -> str:
        counts = {state: len(self.schedule.of(state)) for state in ("done", "running", "queued", "failed", "pruned")}
        return ", ".join(f"{count} {state}" for state, count in counts.items() if count)

    def _share(self, entry: Entry) -> str:
        if self.points[entry.name].run.is_finished:
            return "100 %"  # and its process is about to end
        standing = self.standing(entry)
        return f"{100 * standing.share:.0f} %" if standing else "–"

    def _table(self, where: Callable[[str], str]) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self._counts()}; {self.eta()}", title_justify="left", box=None)
        for column in ("run", "where", "progress", "for", "ETA"):
            table.add_column(column, overflow="fold")
        for entry in self.schedule.of("running"):
            known = self.standing(entry) or self.clock.knows(self.points[entry.name])
            left = clock_time(self.left_of(entry)) if known else "–"
            table.add_row(
                Text(visible(entry.name)), where(entry.name), self._share(entry), clock_time(self._gone(entry)), left
            )
        for entry in self.schedule.of("failed")[-_SHOWN:]:
            table.add_row(Text(visible(entry.name), style="red"), "failed", Text(visible(entry.error)[:60]), "", "")
        return table
