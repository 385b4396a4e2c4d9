"""Describe data: labels, lengths, duplicates, unusual characters, and what only one task type has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.data.stats import dialogue_state, parsing, question_answering, relation, tagging
from danseo.data.stats.classification import view_choices, view_label_sets, view_labels, view_numbers
from danseo.data.stats.duplicates import duplicate_tables
from danseo.data.stats.labels import (
    character_table,
    label_panel,
    label_table,
    length_panel,
    length_table,
    source_tables,
)
from danseo.data.stats.view import View
from danseo.display.plots.figures import FileFigure
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.records import Example
from danseo.tasktypes.base import Splits, Task
from danseo.tasktypes.rendering import percent

__all__ = ["Description", "describe", "get_view"]
_VIEWS: dict[str, Callable[[Task], View]] = {
    "classification": view_labels,
    "multilabel": view_label_sets,
    "multiple_choice": view_choices,
    "regression": view_numbers,
    "tagging": tagging.make_view,
    "relation": relation.make_view,
    "parsing": parsing.make_view,
    "question_answering": question_answering.make_view,
    "dialogue_state": dialogue_state.make_view,
}


@dataclass(frozen=True)
class Description:
    """The description of a task's data as tables, and as panels of a plot."""

    task: str
    title: str
    """The task with the number of rows of each split."""
    rows: Mapping[str, int]
    tables: tuple[Table, ...]
    panels: tuple[FileFigure, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the description for JSON, without the panels."""
        return {"task": self.task, "rows": dict(self.rows), "tables": [table.as_dict() for table in self.tables]}


def get_view(task: Task) -> View:
    """Return what there is to count in the examples of a task."""
    return _VIEWS[task.type.name](task)


def describe(task: Task, splits: Mapping[str, Sequence[Example]]) -> Description:
    """Describe the splits of a task; with two of them, also how the second differs from the first."""
    if not splits or not all(splits.values()):
        raise DanseoError(f"no examples of {task.name} to describe; `danseo data check` shows what is missing")
    ordered = dict(sorted(splits.items(), key=lambda item: item[0] != "train"))
    view = get_view(task)
    rows = {split: task.rows(examples) for split, examples in ordered.items()}
    tables = (
        _rows_table(task, ordered),
        label_table(task, view, ordered),
        *source_tables(view, ordered),
        length_table(view, ordered),
        *(table for table in view.tables(ordered) if table),
        *duplicate_tables(view, ordered),
        character_table(view, ordered),
    )
    panels = (label_panel(view, ordered), length_panel(view, ordered), *view.panels(ordered))
    return Description(task.name, _make_title(task, rows), rows, tables, tuple(panel for panel in panels if panel))


def _rows_table(task: Task, splits: Splits) -> Table:
    """Return how many rows of the official files the splits have."""
    rows: list[tuple[object, ...]] = []
    for split, examples in splits.items():
        count, official = task.rows(examples), task.official_rows.get(split)
        rows.append((split, count, official, percent(count, official or 0), len(examples)))
    columns = ("split", "rows", "official", "here %", "examples")
    note = " ".join(filter(None, [task.type.row_note, *_find_strays(splits)]))
    return Table(f"{task.short}: {task.title}", columns, rows, note)


def _find_strays(splits: Splits) -> Iterator[str]:
    """Yield warnings about examples whose guids belong to another split."""
    for split, other in (("train", "dev"), ("dev", "train")):
        if strays := sum(f"_{other}_" in example.guid for example in splits.get(split, ())):
            yield f"{strays:,} of the {split} examples have guids of {other}."
    if len(splits) == 2 and (shared := set.intersection(*({e.guid for e in examples} for examples in splits.values()))):
        yield f"{len(shared):,} guids are in both splits, such as {min(shared)}."


def _make_title(task: Task, rows: Mapping[str, int]) -> str:
    sizes = [
        f"{split} {count:,}"
        + (f" of {official:,}" if (official := task.official_rows.get(split, count)) != count else "")
        for split, count in rows.items()
    ]
    name = task.short if task.custom else f"KLUE-{task.short}"
    return f"{name}, {task.title}: {', '.join(sizes)} {task.type.row_unit}"
