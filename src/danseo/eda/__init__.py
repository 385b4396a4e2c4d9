"""What is in the data: labels, lengths, duplicates, unusual characters, and what matters to one task alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.display.table import Table
from danseo.eda.characters import character_table
from danseo.eda.counting import percent
from danseo.eda.dialogues import WOS
from danseo.eda.duplicates import duplicate_tables
from danseo.eda.entities import entity_view
from danseo.eda.labels import label_panel, label_table, source_tables
from danseo.eda.lengths import length_panel, length_table
from danseo.eda.panels import Panel
from danseo.eda.parses import DP
from danseo.eda.questions import question_view
from danseo.eda.relations import relation_view
from danseo.eda.sentences import number_view, pair_view, several_view, text_view
from danseo.eda.view import Splits, View
from danseo.errors import DanseoError
from danseo.records import Example
from danseo.tasks.task import Task

__all__ = ["Description", "describe", "view_of"]

_VIEWS: Mapping[tuple[str, str], Callable[[Task], View]] = {
    ("classify", "text"): text_view,
    ("classify", "pair"): pair_view,
    ("classify", "choices"): text_view,
    ("classify", "relation"): relation_view,
    ("labels", "text"): several_view,
    ("labels", "pair"): several_view,
    ("score", "text"): number_view,
    ("score", "pair"): number_view,
    ("tag", "text"): entity_view,
    ("parse", "words"): lambda task: DP,
    ("answer", "question"): question_view,
    ("track", "dialogue"): lambda task: WOS,
}
"""What there is to see, by the kind of answer and the form of the examples."""


@dataclass(frozen=True)
class Description:
    """What there is to know about the files of a task, as tables, and as panels of a plot."""

    task: str
    title: str
    """The task in words, with the rows of each split."""
    rows: Mapping[str, int]
    tables: tuple[Table, ...]
    panels: tuple[Panel, ...]

    def as_dict(self) -> dict[str, Any]:
        """The description for JSON, without the panels."""
        return {"task": self.task, "rows": dict(self.rows), "tables": [table.as_dict() for table in self.tables]}


def view_of(task: Task) -> View:
    """How to look at the examples of a task."""
    return _VIEWS[task.kind, task.form](task)


def describe(task: Task, splits: Mapping[str, Sequence[Example]]) -> Description:
    """Describe the splits of a task; with two of them, also how the second differs from the first."""
    if not splits or not all(splits.values()):
        raise DanseoError(f"no examples of {task.name} to describe; `danseo data check` shows what is missing")
    ordered = dict(sorted(splits.items(), key=lambda item: item[0] != "train"))
    view = view_of(task)
    rows = {split: task.rows(examples) for split, examples in ordered.items()}
    tables = (
        rows_table(task, ordered),
        label_table(task, view, ordered),
        *source_tables(view, ordered),
        length_table(view, ordered),
        *view.tables(ordered),
        *duplicate_tables(view, ordered),
        character_table(view, ordered),
    )
    panels = (label_panel(view, ordered), length_panel(view, ordered), view.panel(ordered), *view.panels(ordered))
    return Description(task.name, _title(task, rows), rows, tables, tuple(panel for panel in panels if panel))


def rows_table(task: Task, splits: Splits) -> Table:
    """How much of the official files is here."""
    rows: list[tuple[object, ...]] = []
    for split, examples in splits.items():
        here, official = task.rows(examples), task.official_rows.get(split)
        rows.append((split, here, official, percent(here, official or 0), len(examples)))
    notes = ["Rows are dialogues; an example is a user turn with what was said before."] if task.kind == "track" else []
    columns = ("split", "rows", "official", "here %", "examples")
    return Table(f"{task.short}: {task.title}", columns, rows, " ".join([*notes, *_strays(splits)]))


def _strays(splits: Splits) -> Iterator[str]:
    """Warnings about examples that belong to another split, going by their guids."""
    for split, other in (("train", "dev"), ("dev", "train")):
        guids = [example.guid for example in splits.get(split, ())]
        if strays := sum(f"_{other}_" in guid for guid in guids):
            yield f"{strays:,} of the {split} examples have guids that say {other}."
    if len(splits) == 2 and (shared := set.intersection(*({e.guid for e in examples} for examples in splits.values()))):
        yield f"{len(shared):,} guids are in both splits, such as {min(shared)}."


def _title(task: Task, rows: Mapping[str, int]) -> str:
    unit = "dialogues" if task.kind == "track" else "rows"
    sizes = [
        f"{split} {here:,}" + (f" of {official:,}" if (official := task.official_rows.get(split, here)) != here else "")
        for split, here in rows.items()
    ]
    name = task.short if task.own else f"KLUE-{task.short}"
    return f"{name}, {task.title}: {', '.join(sizes)} {unit}"
