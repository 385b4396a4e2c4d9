"""The runs of a task against each other: letters for those that are not told apart, and a matrix of differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.plots.figures import Grid
from danseo.report.blocks import Block, FigureBlock, NoteBlock, TableBlock
from danseo.report.collect import Collection
from danseo.runs.compare import SeedSheet, compare_runs
from danseo.runs.index import Record
from danseo.runs.layouts.variants import key_of
from danseo.scoring.tables import CompareSheet
from danseo.tasks.task import Task

MOST = 8  # runs against each other; more pairs would take long, and tell little after correction
ROUNDS = 1000


@dataclass(frozen=True)
class Compared:
    """What the paired tests say; without two runs on the same examples, why there are none."""

    sheet: CompareSheet | SeedSheet | None = None
    renamed: dict[str, str] | None = None
    """System of the sheet -> name on pages."""
    why_not: str = ""

    def letters(self) -> dict[str, str]:
        """Name on pages -> letters; runs that share one are not told apart."""
        if self.sheet is None or self.renamed is None:
            return {}
        sheet = self.sheet
        id_ = sheet.task.headline
        groups = sheet.groups(id_) if isinstance(sheet, SeedSheet) else sheet.comparison.groups(id_)
        return {self.renamed[name]: letters for name, letters in groups.items()}

    def blocks(self) -> list[Block]:
        """The matrix, with the table of tests behind it."""
        if self.sheet is None or self.renamed is None:
            return [NoteBlock(self.why_not)] if self.why_not else []
        sheet, names = self.sheet, self.renamed
        differences = sheet.differences if isinstance(sheet, SeedSheet) else sheet.comparison.differences
        order = list(self.letters())
        known = {(names[d.b], names[d.a]): d for d in differences}
        largest = max((abs(d.value) for d in differences), default=0) or 1.0
        texts, strengths = [], []
        for row in order:
            cells = [_cell(known, row, column) for column in order]
            texts.append([text for text, _ in cells])
            strengths.append([value / largest * 0.9 for _, value in cells])
        table = _renamed(sheet.tables()[1], names)
        caption = "row minus column in points; * differs at 5 % after Holm's correction for all pairs"
        if isinstance(sheet, SeedSheet):
            caption += "; tested over examples and seeds"
        grid = Grid(order, order, texts, strengths)
        return [FigureBlock(f"Differences in {sheet.task.headline}", grid, table, caption), *self._notes()]

    def _notes(self) -> list[Block]:
        return [NoteBlock(self.why_not)] if self.why_not else []

    def as_dict(self) -> dict[str, Any]:
        return self.sheet.as_dict() if self.sheet else {"why_not": self.why_not}


def _cell(known: dict[tuple[str, str], Any], row: str, column: str) -> tuple[str, float]:
    if row == column:
        return "", 0.0
    difference, sign = (known[row, column], 1) if (row, column) in known else (known[column, row], -1)
    if difference.identical:
        return "=", 0.0
    value = sign * difference.value
    if value != value:
        return "–", 0.0
    return f"{value:+.1f}{'*' if difference.is_significant else ''}", value


def _renamed(table: Table, names: dict[str, str]) -> Table:
    """The table of tests with the names of the pages."""
    rows = [(" − ".join(names.get(part, part) for part in str(row[0]).split(" − ")), *row[1:]) for row in table.rows]
    return Table(table.title, table.columns, rows, table.note)


def compare_task(collection: Collection, task: Task, records: Sequence[Record], rounds: int = ROUNDS) -> Compared:
    """The paired tests of a task's runs: over seeds where every system has two or more, else run by run."""
    alike = _same_data(records)
    if len(alike) < 2:
        return Compared(why_not="one run alone has nothing to be compared with")
    if collection.dev(alike[0]) is None:
        return Compared(why_not=f"no paired tests: the dev file that the runs of {task.name} answered is not there")
    seeds = _systems(alike)
    over = "seeds" if 2 <= len(seeds) <= MOST and all(len(runs) > 1 for runs in seeds) else None
    chosen = alike if over else sorted(alike, key=_by_score)[:MOST]
    try:
        paths = [record.run.path for record in chosen]
        sheet = compare_runs(paths, collection.data_dir, over=over, headline_only=True, rounds=rounds)
    except DanseoError as error:
        return Compared(why_not=f"no paired tests: {error}")
    left = f"the best {MOST} of {len(alike)} runs are compared" if len(chosen) < len(alike) else ""
    if isinstance(sheet, SeedSheet):
        return Compared(sheet, {name: name for name in sheet.runs}, left)
    by_path = {str(record.run.path): collection.name(record) for record in chosen}
    return Compared(sheet, {name: by_path[str(path)] for name, path in sheet.files.items()}, left)


def _same_data(records: Sequence[Record]) -> list[Record]:
    """The runs on the dev file that most of them answered."""
    files = [record.dev_sha256 for record in records]
    most = max(files, key=files.count, default="")
    return [record for record in records if record.dev_sha256 == most and most]


def _systems(records: Sequence[Record]) -> list[list[Record]]:
    groups: dict[object, list[Record]] = {}
    for record in records:
        groups.setdefault(key_of(record), []).append(record)
    return list(groups.values())


def _by_score(record: Record) -> float:
    found = record.score()
    return -(found["value"] if found and found["value"] is not None else -1e9)


def link_rows(collection: Collection, table: Table, records: Sequence[Record]) -> TableBlock:
    """A table whose run names lead to their pages."""
    return TableBlock(table, collection.links(records))
