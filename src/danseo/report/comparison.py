"""Paired tests of the runs of a task: letters for runs that do not differ significantly, and a matrix."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from danseo.display.plots.figures import Grid
from danseo.display.table import Table
from danseo.errors import DanseoError, get_message
from danseo.language import _
from danseo.report.collection import Collection
from danseo.report.html import Block, FigureBlock, NoteBlock
from danseo.runs.index import Record
from danseo.scoring.tables import ComparisonResult
from danseo.tables.comparison import SeedComparisonResult, compare_runs
from danseo.tables.variants import get_variant_key
from danseo.tasktypes.base import Task

MAX_COMPARED = 8  # more pairs would take long, and few would be significant after correction
ROUNDS = 1000


@dataclass(frozen=True)
class TaskComparison:
    """The paired tests of a task's runs, or the reason why there are none."""

    result: ComparisonResult | SeedComparisonResult | None = None
    names: dict[str, str] = field(default_factory=dict)
    """System of the comparison -> name on pages."""
    note: str = ""
    seeds_of: dict[str, str] = field(default_factory=dict)
    """Name on pages -> the system that the run is a seed of, if systems were compared over seeds."""

    def system(self, name: str) -> str:
        """Return the system that a run is a seed of; else the run itself."""
        return self.seeds_of.get(name, name)

    def letters_of(self, name: str) -> str:
        """Return the letters of a run or of its system; empty if it was not tested."""
        return self.letters().get(self.system(name), "")

    def letters(self) -> dict[str, str]:
        """Return name on pages -> letters; runs with the same letter do not differ significantly."""
        if self.result is None:
            return {}
        groups = self._tests.groups(self.result.task.headline)
        return {self.names[name]: letters for name, letters in groups.items()}

    @property
    def _tests(self) -> Any:
        return self.result.comparison if isinstance(self.result, ComparisonResult) else self.result

    def blocks(self) -> list[Block]:
        """Return the matrix of differences, with the table of tests behind it."""
        notes: list[Block] = [NoteBlock(self.note)] if self.note else []
        if self.result is None:
            return notes
        result, names, differences = self.result, self.names, self._tests.differences
        order = list(self.letters())
        known = {(names[d.b], names[d.a]): d for d in differences}
        largest = max((abs(d.value) for d in differences), default=0) or 1.0
        texts, strengths = [], []
        for row in order:
            cells = [_format_cell(known, row, column) for column in order]
            texts.append([text for text, _ in cells])
            strengths.append([value / largest * (0.9 if text.endswith("*") else 0.25) for text, value in cells])
        table = _rename_systems(result.tables()[1], names)
        caption = _("row minus column in points; * significant (α = 5 %) after Holm's correction for all pairs")
        if isinstance(result, SeedComparisonResult):
            caption += _("; tested over examples and seeds")
        grid = Grid(order, order, texts, strengths)
        title = _("Differences in {metric}").format(metric=result.task.headline)
        return [FigureBlock(title, grid, table, caption), *notes]


def _format_cell(known: dict[tuple[str, str], Any], row: str, column: str) -> tuple[str, float]:
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


def _rename_systems(table: Table, names: dict[str, str]) -> Table:
    """Return the table of tests with the names of the pages."""
    rows = [(" − ".join(names.get(part, part) for part in str(row[0]).split(" − ")), *row[1:]) for row in table.rows]
    return Table(table.title, table.columns, rows, table.note)


def compare_task(collection: Collection, task: Task, records: Sequence[Record], rounds: int = ROUNDS) -> TaskComparison:
    """Run the paired tests of a task's runs: over seeds if every system has two or more, else run by run."""
    readable = [record for record in records if collection.dev(record) is not None]
    comparable = _choose_same_data(readable if len(readable) > 1 else records)
    if len(comparable) < 2:
        return TaskComparison(note=_("there is only one run, so nothing is compared"))
    if collection.dev(comparable[0]) is None:
        text = _("no paired tests: the dev file of these runs of {task} is missing; name its folder with --data")
        return TaskComparison(note=text.format(task=task.name))
    seeds = Counter(map(get_variant_key, comparable))
    over = "seeds" if 2 <= len(seeds) <= MAX_COMPARED and min(seeds.values()) > 1 else None
    chosen = comparable if over else sorted(comparable, key=lambda record: -record.rank_value())[:MAX_COMPARED]
    try:
        paths = [record.run.path for record in chosen]
        result = compare_runs(paths, collection.data_dir, over=over, headline_only=True, rounds=rounds)
    except DanseoError as error:
        return TaskComparison(note=_("no paired tests: {error}").format(error=get_message(error)))
    text = _("the best {n} of {all} runs are compared").format(n=MAX_COMPARED, all=len(comparable))
    note = text if len(chosen) < len(comparable) else ""
    if isinstance(result, SeedComparisonResult):
        own = {record.run.path.name: collection.name(record) for record in chosen}
        of_system = {own[run]: system for system, runs in result.runs.items() for run in runs if run in own}
        return TaskComparison(result, {name: name for name in result.runs}, note, of_system)
    by_path = {str(record.run.path): collection.name(record) for record in chosen}
    return TaskComparison(result, {name: by_path[str(path)] for name, path in result.files.items()}, note)


def _choose_same_data(records: Sequence[Record]) -> list[Record]:
    """Return the runs on the dev file that most runs answered."""
    files = [record.dev_sha256 for record in records]
    most = max(files, key=files.count, default="")
    return [record for record in records if record.dev_sha256 == most and most]
