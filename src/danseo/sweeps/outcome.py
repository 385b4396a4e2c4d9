"""What a sweep shows: before it, what it would do; after it, what became of its runs."""

from dataclasses import dataclass
from typing import Any

from danseo.runs.formats import compact
from danseo.runs.index import Record
from danseo.runs.listing import run_table
from danseo.sweeps.board import clock_time
from danseo.sweeps.plan import Point, state_of
from danseo.sweeps.preparing import Prepared
from danseo.sweeps.schedule import Schedule, longest_first, makespan
from danseo.tables import Table


@dataclass(frozen=True)
class Outcome:
    """How a sweep went."""

    schedule: Schedule
    records: list[Record]
    searched: list[Table]
    """The trials, where there was a search."""

    @property
    def failed(self) -> list[str]:
        return [entry.name for entry in self.schedule.of("failed")]

    def tables(self) -> list[Table]:
        """The trials of a search, and the runs of the sweep, failed ones with their error."""
        return [*self.searched, compact(run_table(self.records))]

    def as_dict(self) -> dict[str, Any]:
        records = {record.run.path.name: record for record in self.records}
        rows = [
            {
                "run": str(records[entry.name].run.path),
                "state": entry.state,
                "error": entry.error or None,
                "seconds": records[entry.name].surroundings.get("seconds"),
                "score": records[entry.name].score(),
            }
            for entry in self.schedule.entries.values()
        ]
        counts = {state: len(self.schedule.of(state)) for state in ("done", "failed", "pruned")}
        return {**counts, "runs": rows, **({"trials": self.searched[0].as_dict()} if self.searched else {})}


@dataclass(frozen=True)
class Forecast:
    """What a sweep would do."""

    prepared: Prepared
    slots: int
    force: bool = False

    def rows(self) -> list[tuple[Point, str, float]]:
        """Every run with its state and expected seconds, in the order of the queue."""
        clock = self.prepared.clock
        rows = [(point, state_of(point), clock.seconds(point)) for point in self.prepared.points]
        return sorted(rows, key=lambda row: -row[2])

    @property
    def seconds(self) -> float:
        """The expected makespan."""
        search = self.prepared.sweep.search
        if search:
            return makespan([self.rows()[0][2]] * search.trials, self.slots)
        left = [seconds for _, state, seconds in self.rows() if self.force or state != "done"]
        return makespan(longest_first(left), self.slots)

    def table(self) -> Table:
        """The runs, what is done, and when all will be."""
        clock, search = self.prepared.clock, self.prepared.sweep.search
        rows: list[tuple[object, ...]] = [
            (point.name, state, clock_time(seconds)) for point, state, seconds in self.rows()
        ]
        left = sum(self.force or state != "done" for _, state, _ in self.rows())
        what = f"{search.trials} trials like these" if search else f"{left} of {len(rows)} runs to do"
        slots = f"{self.slots} slot{'s' if self.slots > 1 else ''}"
        note = f"{what}: {clock_time(self.seconds)} on {slots} ({clock.source(self.prepared.points)})"
        return Table(f"sweep {self.prepared.sweep.path}", ("run", "state", "expected"), rows, note)

    def as_dict(self) -> dict[str, Any]:
        runs = [
            {"run": str(point.run.path), "state": state, "expected_seconds": round(seconds, 3)}
            for point, state, seconds in self.rows()
        ]
        return {
            "runs": runs,
            "slots": self.slots,
            "makespan_seconds": round(self.seconds, 3),
            "estimate": self.prepared.clock.source(self.prepared.points),
        }
