"""The tables of `danseo runs`: which one is asked for, and how several become one text."""

import json
from collections.abc import Sequence
from pathlib import Path

from danseo.errors import DanseoError
from danseo.runs.index import Record, as_rows, find_runs, formatted, group_table, run_table
from danseo.runs.klue import klue_table
from danseo.runs.seeds import seed_tables
from danseo.runs.sweep import sweep_table
from danseo.tables import Table
from danseo.tasks import get_task


def with_task(folder: Path, task: str | None) -> list[Record]:
    """The runs of a folder; only those of one task where it is named."""
    records = find_runs(folder)
    return [record for record in records if record.task == get_task(task).name] if task else records


def chosen_tables(
    records: list[Record],
    layout: str | None,
    *,
    group: str | None = None,
    metric: str | None = None,
    task: str | None = None,
    sort: str = "name",
    with_paths: bool = False,
) -> list[Table]:
    """The tables of a layout; without one, the list of runs or of their groups."""
    if layout and (group or metric or sort != "name"):
        raise DanseoError(f"--table {layout} has its own order and metrics; leave out --group, --metric and --sort")
    name = get_task(task).name if task else None
    if layout == "seed000":
        return seed_tables(records, name or "ner")
    if layout == "sweep":
        return [sweep_table(records, name)]
    if layout == "klue":
        return [klue_table(records)]
    if sort == "score":
        records = sorted(records, key=lambda record: -((record.score(metric) or {}).get("value") or -1e9))
    if group:
        return [group_table(records, group.split(","), metric)]
    return [run_table(records, metric, with_paths=with_paths)]


def formatted_tables(tables: Sequence[Table], style: str) -> str:
    """One table as it is, several one after the other; as JSON by title."""
    if style == "json" and len(tables) > 1:
        rows, summary = (as_rows(table) for table in tables)
        document = {"std_ddof": 1, "population_std_ddof": 0, "runs": rows, "summary": summary}
        return json.dumps(document, ensure_ascii=False, indent=2)
    return "\n\n".join(formatted(table, style) for table in tables)
