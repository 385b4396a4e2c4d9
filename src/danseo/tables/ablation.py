"""Ablation tables: the effect of each change with its interval and Holm's p."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError
from danseo.files import find_own_files, read_json
from danseo.language import _
from danseo.runs.predictions import open_members
from danseo.runs.store import Run
from danseo.scoring.compare_seeds import SeedDifference, compare_with_base
from danseo.scoring.score import example_clusters, measure
from danseo.scoring.tables import format_p

ENDING = ".study.json"
BASE = "base"


@dataclass(frozen=True)
class AblationStudy:
    """The cells of a study: changes and their runs, with the same seeds in each."""

    name: str
    cells: dict[str, list[str]]
    """Cell -> names of run directories; the first one is the base."""

    def as_dict(self) -> dict[str, Any]:
        return {"study": self.name, "cells": self.cells}


def read_studies(folder: Path) -> list[AblationStudy]:
    """Return the studies of a folder of runs."""
    paths = find_own_files(folder, f"*{ENDING}")
    if not paths:
        raise DanseoError(f"--table ablation: no study in {folder}; run a sweep with a [study] table there")
    studies = []
    for path in paths:
        found = read_json(path)
        cells = found.get("cells") if isinstance(found, dict) else None
        if (
            not isinstance(cells, dict)
            or BASE not in cells
            or not all(isinstance(runs, list) and all(map(_is_name, runs)) for runs in cells.values())
        ):
            raise DanseoError(f"{path} is corrupted: no cells with a base; run its sweep again")
        studies.append(AblationStudy(path.name.removesuffix(ENDING), cells))
    return studies


def _is_name(run: Any) -> bool:
    """Return whether this is the name of a folder and not a path."""
    return isinstance(run, str) and run not in ("", ".", "..") and "/" not in run and "\0" not in run


def make_ablation_tables(folder: Path, data_dir: str | None, *, rounds: int = 2000) -> list[Table]:
    """Return a table per study."""
    return [measure_study(folder, study, data_dir, rounds=rounds).table() for study in read_studies(folder)]


@dataclass(frozen=True)
class Ablation:
    """A study with its results."""

    study: AblationStudy
    done: dict[str, list[str]]
    """Cell -> the names of its finished runs."""
    means: dict[str, float]
    differences: dict[str, SeedDifference]
    """Cell -> its difference from the base; cells without two finished seeds have none."""
    headline: str = ""
    part: str = _("report split of dev")
    n: int = 0

    def table(self) -> Table:
        """Return every cell compared with the base; a cell without an interval has a reason."""
        rows = [self._make_row(cell) for cell in self.study.cells]
        columns = ("change", "mean", "effect", "95 % interval", "p (Holm)", "significant", "runs")
        note = _("{metric}, {split}, n = {n:,}; effects against the base, over seeds and examples")
        note = note.format(metric=self.headline or _("no metric"), split=self.part, n=self.n)
        return Table(_("{name}: ablation").format(name=self.study.name), columns, rows, note)

    def _make_row(self, cell: str) -> tuple[object, ...]:
        done, planned, reason = self.done[cell], self.study.cells[cell], None
        runs = str(len(done))
        if len(done) < len(planned):
            runs = _("{n} of {all}").format(n=len(done), all=len(planned))
        if found := self.differences.get(cell):
            interval = format_interval((found.low, found.high), signed=True)
            return cell, self.means[cell], found.value, interval, format_p(found.p_holm), found.verdict, runs
        if cell != BASE:
            has_base = len(self.done.get(BASE, ())) > 1
            reason = _("no interval: fewer than two seeds") if has_base else _("no interval: the base lacks seeds")
        return cell, self.means.get(cell), None, None, None, reason, runs


def measure_study(
    folder: Path, study: AblationStudy, data_dir: str | None, *, on: str = "report", rounds: int = 2000
) -> Ablation:
    """Compare the finished runs of every cell with those of the base."""
    done = {cell: [name for name in runs if Run(folder / name).is_finished] for cell, runs in study.cells.items()}
    usable = [cell for cell, runs in done.items() if len(runs) > 1]
    if BASE not in usable or len(usable) < 2:
        return Ablation(study, done, {}, {})
    members = open_members([folder / name for cell in usable for name in done[cell]], data_dir)
    chosen = members if on == "dev" else members.select_split("report")
    chosen = chosen if chosen.examples else members
    task, headline = members.task, members.task.headline
    others = [id_ for id_ in task.metrics if id_ != headline]
    measured = iter([measure(task, chosen.examples, m.predictions, others) for m in chosen.members])
    systems = {cell: [next(measured) for _ in done[cell]] for cell in usable}
    clusters = example_clusters(task, chosen.examples)
    compared, listed = compare_with_base(systems, BASE, headline, clusters, rounds=rounds)
    means = {cell: system.mean for cell, system in compared.items()}
    differences = {difference.b: difference for difference in listed}
    part = _("report split of dev") if chosen is not members else _("whole dev set")
    return Ablation(study, done, means, differences, headline, part, len(chosen.examples))
