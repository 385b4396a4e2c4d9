"""What a person sees while a sweep goes on: a live table on a terminal, a line per event elsewhere."""

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from danseo.sweeps.plan import Point, read_evaluations
from danseo.sweeps.schedule import Entry, Schedule, longest_first, makespan

_SHOWN_FAILURES = 8


class Board:
    """Shows a schedule; quiet says nothing at all."""

    def __init__(self, schedule: Schedule, points: Mapping[str, Point], *, quiet: bool = False) -> None:
        self.schedule, self.points, self.quiet = schedule, points, quiet
        self.started, self.ended_seconds, self.expected_seconds = time.time(), 0.0, 0.0
        self.slots = 1
        self._live: Any = None
        self._begun: dict[str, float] = {}
        """How far runs were when they were started: those that go on from a checkpoint."""
        self._shown = 0.0

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def note(self, text: str) -> None:
        """A line of its own."""
        if self._live:
            self._live.console.print(text, highlight=False, markup=False)
        elif not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def event(self, entry: Entry, what: str) -> None:
        """A run changed its state."""
        if what == "started":
            self._begun[entry.name] = self.share(entry)
        if what == "done" and entry.started:
            self.ended_seconds += time.time() - entry.started
            self.expected_seconds += entry.seconds
        settled, count = len(self.schedule.of("done", "failed", "pruned")), len(self.schedule.entries)
        detail = f": {entry.error}" if entry.error and what in ("failed", "retry", "pruned", "lost") else ""
        if not self._live:
            left = f"; ETA {clock_time(self.left())}" if settled < count and what in ("done", "failed") else ""
            self.note(f"[{settled}/{count}] {entry.name} {what}{detail}{left}")

    def left(self) -> float:
        """Seconds until all is done, as far as one can tell."""
        pace = self.ended_seconds / self.expected_seconds if self.expected_seconds > 0 else 1.0
        running = [self.left_of(entry) for entry in self.schedule.of("running")]
        queued = longest_first(entry.seconds * pace for entry in self.schedule.of("queued"))
        return makespan([*running, *queued], self.slots)

    def left_of(self, entry: Entry) -> float:
        """Seconds until a running run is done: by its log, else by what was expected."""
        share, gone = self.share(entry), time.time() - entry.started
        begun = self._begun[entry.name] = min(share, self._begun.get(entry.name, 0.0))  # less: it started anew
        if share > begun:
            return gone * (1 - share) / (share - begun)
        return max(0.0, entry.seconds * (1 - begun) - gone)

    def share(self, entry: Entry) -> float:
        """How far a running run is, by its last evaluation; 0 where nothing is known."""
        evaluations = read_evaluations(self.points[entry.name].run.path / "log.jsonl")
        epochs = self.points[entry.name].config.train.epochs
        return min(1.0, evaluations[-1]["epoch"] / epochs) if evaluations else 0.0

    def refresh(self, place: Callable[[str], str]) -> None:
        """Draw anew, twice a second at most."""
        if self._live and time.monotonic() - self._shown >= 0.5:
            self._live.update(self._table(place))
            self._shown = time.monotonic()

    def _table(self, place: Callable[[str], str]) -> Any:
        from rich.table import Table
        from rich.text import Text

        counts = {state: len(self.schedule.of(state)) for state in ("done", "running", "queued", "failed", "pruned")}
        title = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        table = Table(title=f"{title}; ETA {clock_time(self.left())}", title_justify="left", box=None)
        for column in ("run", "where", "progress", "for", "ETA"):
            table.add_column(column, no_wrap=column == "run")
        for entry in self.schedule.of("running"):
            share = self.share(entry)
            shown = f"{100 * share:.0f} %" if share else "–"
            gone, left = clock_time(time.time() - entry.started), clock_time(self.left_of(entry))
            table.add_row(Text(entry.name), place(entry.name), shown, gone, left)
        for entry in self.schedule.of("failed")[-_SHOWN_FAILURES:]:
            table.add_row(Text(entry.name, style="red"), "failed", Text(entry.error[:60]), "", "")
        return table


def clock_time(seconds: float) -> str:
    """1 h 02 min, 3 min 20 s, 12 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"
