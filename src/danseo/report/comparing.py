"""The runs of a task against each other: letters for those that are not told apart, and a matrix of differences."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.plots.figures import Grid
from danseo.report.blocks import Block, FigureBlock, NoteBlock, TableBlock
from danseo.report.collect import Collection
from danseo.runs.compare import SeedComparisonResult, compare_runs
from danseo.runs.index import Record
from danseo.runs.layouts.variants import key_of
from danseo.scoring.tables import ComparisonResult
from danseo.tasks.task import Task

MOST = 8  # runs against each other; more pairs would take long, and tell little after correction
ROUNDS = 1000


@dataclass(frozen=True)
class Compared:
    """What the paired tests say; without two runs on the same examples, why there are none."""

    result: ComparisonResult | SeedComparisonResult | None = None
    renamed: dict[str, str] | None = None
    """System of the comparison -> name on pages."""
    why_not: str = ""
    seeds_of: dict[str, str] = field(default_factory=dict)
    """Run's name on pages -> the system that it is a seed of, where systems were compared over seeds."""

    def system(self, name: str) -> str:
        """What stands for a run in the tests: itself, or the system that it is a seed of."""
        return self.seeds_of.get(name, name)

    def letters_of(self, name: str) -> str:
        """The letters of a run, those of its system where that was tested; nothing where neither was."""
        return self.letters().get(self.system(name), "")

    def letters(self) -> dict[str, str]:
        """Name on pages -> letters; runs that share one are not told apart."""
        if self.result is None or self.renamed is None:
            return {}
        result = self.result
        id_ = result.task.headline
        groups = result.groups(id_) if isinstance(result, SeedComparisonResult) else result.comparison.groups(id_)
        return {self.renamed[name]: letters for name, letters in groups.items()}

    def blocks(self) -> list[Block]:
        """The matrix, with the table of tests behind it."""
        if self.result is None or self.renamed is None:
            return [NoteBlock(self.why_not)] if self.why_not else []
        result, names = self.result, self.renamed
        differences = result.differences if isinstance(result, SeedComparisonResult) else result.comparison.differences
        order = list(self.letters())
        known = {(names[d.b], names[d.a]): d for d in differences}
        largest = max((abs(d.value) for d in differences), default=0) or 1.0
        texts, strengths = [], []
        for row in order:
            cells = [_cell(known, row, column) for column in order]
            texts.append([text for text, _ in cells])
            strengths.append([value / largest * (0.9 if text.endswith("*") else 0.25) for text, value in cells])
        table = _renamed(result.tables()[1], names)
        caption = "row minus column in points; * differs at 5 % after Holm's correction for all pairs"
        if isinstance(result, SeedComparisonResult):
            caption += "; tested over examples and seeds"
        grid = Grid(order, order, texts, strengths)
        return [FigureBlock(f"Differences in {result.task.headline}", grid, table, caption), *self._notes()]

    def _notes(self) -> list[Block]:
        return [NoteBlock(self.why_not)] if self.why_not else []

    def as_dict(self) -> dict[str, Any]:
        return self.result.as_dict() if self.result else {"why_not": self.why_not}


def _cell(known: dict[tuple[str, str], Any], row: str, column: str) -> tuple[str, float]:
    if row == column:
        return "", 0.0
    difference, sign = (known[row, column], 1) if (row, column) in known else (known[column, row], -1)
    if difference.identical:
        return "=", 0.0
    value = sign * difference.value
    if value != value:
        return "–", 0.0
    shown = f"{value:+.1f}" if abs(value) >= 0.05 else "0.0"
    return f"{shown}{'*' if difference.is_significant else ''}", value


def _renamed(table: Table, names: dict[str, str]) -> Table:
    """The table of tests with the names of the pages."""
    rows = [(" − ".join(names.get(part, part) for part in str(row[0]).split(" − ")), *row[1:]) for row in table.rows]
    return Table(table.title, table.columns, rows, table.note)


def compare_task(collection: Collection, task: Task, records: Sequence[Record], rounds: int = ROUNDS) -> Compared:
    """The paired tests of a task's runs: over seeds where every system has two or more, else run by run."""
    comparable = _same_data(records)
    if len(comparable) < 2:
        return Compared(why_not="one run alone has nothing to be compared with")
    if collection.dev(comparable[0]) is None:
        return Compared(why_not=f"no paired tests: the dev file that the runs of {task.name} answered is not there")
    seeds = _systems(comparable)
    over = "seeds" if 2 <= len(seeds) <= MOST and all(len(runs) > 1 for runs in seeds) else None
    chosen = comparable if over else sorted(comparable, key=_by_score)[:MOST]
    try:
        paths = [record.run.path for record in chosen]
        result = compare_runs(paths, collection.data_dir, over=over, headline_only=True, rounds=rounds)
    except DanseoError as error:
        return Compared(why_not=f"no paired tests: {error}")
    left = f"the best {MOST} of {len(comparable)} runs are compared" if len(chosen) < len(comparable) else ""
    if isinstance(result, SeedComparisonResult):
        own = {record.run.path.name: collection.name(record) for record in chosen}
        of_system = {own[run]: system for system, runs in result.runs.items() for run in runs if run in own}
        return Compared(result, {name: name for name in result.runs}, left, of_system)
    by_path = {str(record.run.path): collection.name(record) for record in chosen}
    return Compared(result, {name: by_path[str(path)] for name, path in result.files.items()}, left)


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
