"""Tables of runs as text: what people read is made small, what programs read is whole."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from danseo.display.escaping import to_csv, to_json
from danseo.display.table import Best, Second, Table, to_latex, to_markdown


def formatted(table: Table, style: str) -> str:
    """The table as markdown, csv, json or latex."""
    if style == "json":
        return to_json(as_rows(table))
    if style == "csv":
        return to_csv([table.columns, *map(_csv_row, table.rows)]).rstrip("\n")
    return (to_latex if style == "latex" else to_markdown)(table).rstrip("\n")


def _csv_row(row: Sequence[object]) -> list[object]:
    return [" ".join(map(str, value)) if isinstance(value, list) else value for value in row]


def formatted_tables(tables: Sequence[Table], style: str) -> str:
    """One table as it is, several one after the other; as JSON by what they are."""
    if style == "json" and len(tables) > 1:
        rows, summary = (as_rows(table) for table in tables)
        document = {"std_ddof": 1, "population_std_ddof": 0, "runs": rows, "summary": summary}
        return to_json(document)
    return "\n\n".join(formatted(table, style) for table in tables)


def as_rows(table: Table) -> list[dict[str, Any]]:
    """Every row by column name; where numbers are marked as best, their columns are named too."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.as_dict()["rows"]]
    for kind, key in ((Best, "best"), (Second, "best of its size")):
        if any(isinstance(value, kind) for row in table.rows for value in row):
            for shown, row in zip(rows, table.rows, strict=True):
                columns = zip(table.columns, row, strict=True)
                shown[key] = [name for name, value in columns if isinstance(value, kind)]
    return rows


def compact(table: Table) -> Table:
    """The table for people: what is the same in all rows is said once below it, as are the metrics of the tasks."""
    said: list[str] = []
    left: list[int] = []
    for position, (name, column) in enumerate(zip(table.columns, table.by_column(), strict=True)):
        known = [cells[position] for cells, value in zip(table.cells(), column, strict=True) if value is not None]
        if name not in table.once or (len(set(known)) > 1 and not _is_by_task(table, name)):
            left.append(position)
        elif known:
            said.append(f"{name} {', '.join(dict.fromkeys(known))}")
    note = "\n".join(filter(None, ("; ".join(said), table.note)))
    return replace(table.only(left), note=note)


def _is_by_task(table: Table, name: str) -> bool:
    """Whether the metric goes without saying: each task has one, which names the task."""
    if name != "metric" or "task" not in table.columns:
        return False
    tasks, metrics = (table.by_column()[table.columns.index(each)] for each in ("task", "metric"))
    pairs = {pair for pair in zip(tasks, metrics, strict=True) if pair[1] is not None}
    return len(pairs) == len({task for task, _ in pairs})
