"""The tables of `danseo runs` by options."""

from dataclasses import dataclass
from pathlib import Path

from danseo.display.table import Table, compact
from danseo.errors import DanseoError
from danseo.runs.index import Record, find_runs
from danseo.tables.klue import make_klue_tables
from danseo.tables.runs import make_group_table, make_run_table
from danseo.tables.seeds import make_seed_tables, make_sweep_table
from danseo.tables.systems import make_systems_tables
from danseo.tasks import get_task


@dataclass(frozen=True)
class TableChoice:
    """The options of `danseo runs`."""

    layout: str | None = None
    """seeds, sweep, klue or ner-systems; None lists runs, or their groups."""
    group: str | None = None
    metric: str | None = None
    task: str | None = None
    sort: str = "name"
    with_paths: bool = False
    wide: bool = False
    data_dir: str | None = None
    """The folder of the data for ner-systems."""
    for_programs: bool = False
    """All columns, in one table if possible."""

    def __post_init__(self) -> None:
        if self.layout and (self.group or self.metric or self.sort != "name"):
            raise DanseoError(
                f"--table {self.layout} has its own order and metrics; leave out --group, --metric and --sort"
            )


def find_runs_of_task(folder: Path, task: str | None) -> list[Record]:
    """Return the runs of a folder, or those of one task."""
    records = find_runs(folder)
    return [record for record in records if record.task == _find_task_name(task, records)] if task else records


def _find_task_name(task: str, records: list[Record]) -> str:
    """Return the name of a task; the file of a custom task is not needed."""
    return task if any(record.task == task for record in records) else get_task(task).name


def choose_tables(records: list[Record], choice: TableChoice) -> list[Table]:
    """Return the tables of a layout, or the list of runs or groups."""
    tables = _make_tables(records, choice)
    return tables if choice.wide or choice.for_programs else [compact(table) for table in tables]


def _make_tables(records: list[Record], choice: TableChoice) -> list[Table]:
    name = _find_task_name(choice.task, records) if choice.task else None
    paths, wide = choice.with_paths or choice.for_programs, choice.wide
    if choice.layout == "seeds":
        return make_seed_tables(records, name or "ner", with_paths=paths)
    if choice.layout == "sweep":
        return [make_sweep_table(records, name, with_paths=paths, wide=wide)]
    if choice.layout == "klue":
        return make_klue_tables(records, with_paths=paths, in_one=choice.for_programs)
    if choice.layout == "ner-systems":
        return make_systems_tables(
            records, choice.data_dir, name or "ner", with_paths=paths, in_one=choice.for_programs
        )
    if choice.sort == "score":
        records = sorted(records, key=lambda record: -record.rank_value(choice.metric))
    if choice.group:
        return [make_group_table(records, choice.group.split(","), choice.metric, with_paths=paths, wide=wide)]
    return [make_run_table(records, choice.metric, with_paths=paths, wide=wide)]
