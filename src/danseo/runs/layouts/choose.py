"""The tables of `danseo runs`: which one is asked for, and what of it is shown."""

from dataclasses import dataclass
from pathlib import Path

from danseo.display.formats import compact
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.runs.index import Record, find_runs
from danseo.runs.layouts.klue import klue_tables
from danseo.runs.layouts.listing import group_table, run_table
from danseo.runs.layouts.seeds import seed_tables
from danseo.runs.layouts.sweep import sweep_table
from danseo.runs.layouts.systems import systems_tables
from danseo.tasks import get_task


@dataclass(frozen=True)
class Choice:
    """What was asked for."""

    layout: str | None = None
    """seed000, sweep, klue or ner-systems; None lists runs, or their groups."""
    group: str | None = None
    metric: str | None = None
    task: str | None = None
    sort: str = "name"
    with_paths: bool = False
    wide: bool = False
    data_dir: str | None = None
    """Where the gold of ner-systems is."""
    for_programs: bool = False
    """Everything, in one table where that is possible."""

    def __post_init__(self) -> None:
        if self.layout and (self.group or self.metric or self.sort != "name"):
            raise DanseoError(
                f"--table {self.layout} has its own order and metrics; leave out --group, --metric and --sort"
            )


def with_task(folder: Path, task: str | None) -> list[Record]:
    """The runs of a folder; only those of one task where it is named."""
    records = find_runs(folder)
    return [record for record in records if record.task == _named(task, records)] if task else records


def _named(task: str, records: list[Record]) -> str:
    """The name of a task; runs may be of users' own tasks, whose files are not needed here."""
    return task if any(record.task == task for record in records) else get_task(task).name


def chosen_tables(records: list[Record], choice: Choice) -> list[Table]:
    """The tables of a layout; without one, the list of runs or of their groups."""
    tables = _tables(records, choice)
    return tables if choice.wide or choice.for_programs else [compact(table) for table in tables]


def _tables(records: list[Record], choice: Choice) -> list[Table]:
    name = _named(choice.task, records) if choice.task else None
    paths, wide = choice.with_paths or choice.for_programs, choice.wide
    if choice.layout == "seed000":
        return seed_tables(records, name or "ner", with_paths=paths)
    if choice.layout == "sweep":
        return [sweep_table(records, name, with_paths=paths, wide=wide)]
    if choice.layout == "klue":
        return klue_tables(records, with_paths=paths, in_one=choice.for_programs)
    if choice.layout == "ner-systems":
        return systems_tables(records, choice.data_dir, with_paths=paths)
    if choice.sort == "score":
        records = sorted(records, key=lambda record: -((record.score(choice.metric) or {}).get("value") or -1e9))
    if choice.group:
        return [group_table(records, choice.group.split(","), choice.metric, with_paths=paths, wide=wide)]
    return [run_table(records, choice.metric, with_paths=paths, wide=wide)]
