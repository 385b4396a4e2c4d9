"""What a sweep shows in the end: what became of its runs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from danseo.display.formats import compact
from danseo.display.table import Table
from danseo.runs.index import Record
from danseo.runs.layouts.listing import run_table
from danseo.sweeps.schedule import Schedule


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
        table = compact(run_table(self.records))
        folder = self.records[0].run.path.parent if self.records else Path()
        where = f"`danseo runs {shortest(folder)} --paths` shows the directories"
        return [*self.searched, replace(table, note="\n".join(filter(None, (table.note, where))))]

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


def shortest(folder: Path) -> Path:
    """The folder as it is typed from here."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
