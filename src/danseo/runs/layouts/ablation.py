"""Each change of a study with its effect, its interval over seeds and examples, and Holm's p: an ablation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.display.table import Table, shown_interval
from danseo.errors import DanseoError
from danseo.files import parse_json, read_text
from danseo.runs.answers import open_members
from danseo.runs.directory import Run
from danseo.scoring.over_seeds import SeedDifference, compare_with_base
from danseo.scoring.score import example_clusters, measure
from danseo.scoring.tables import shown_p

ENDING = ".study.json"
BASE = "base"


@dataclass(frozen=True)
class Study:
    """The cells of a study: what each changes, and its runs, the same seeds in every one."""

    name: str
    cells: dict[str, list[str]]
    """Cell -> names of run directories; the first one is the base."""

    def as_dict(self) -> dict[str, Any]:
        return {"study": self.name, "cells": self.cells}


def read_studies(folder: Path) -> list[Study]:
    """The studies whose sweeps wrote into a folder of runs."""
    paths = sorted(folder.glob(f"*{ENDING}"))
    if not paths:
        raise DanseoError(f"--table ablation: no study in {folder}; run a sweep with a [study] table there")
    studies = []
    for path in paths:
        found = parse_json(read_text(path), path)
        cells = found.get("cells") if isinstance(found, dict) else None
        if (
            not isinstance(cells, dict)
            or BASE not in cells
            or not all(isinstance(runs, list) for runs in cells.values())
        ):
            raise DanseoError(f"{path} is damaged: no cells with a base; run its sweep again")
        studies.append(Study(path.name.removesuffix(ENDING), cells))
    return studies


def ablation_tables(folder: Path, data_dir: str | None, *, rounds: int = 2000) -> list[Table]:
    """A table per study."""
    return [ablation_table(folder, study, data_dir, rounds=rounds) for study in read_studies(folder)]


@dataclass(frozen=True)
class Ablation:
    """A study with what it came to."""

    study: Study
    done: dict[str, list[str]]
    """Cell -> the names of its finished runs."""
    means: dict[str, float]
    differences: dict[str, SeedDifference]
    """Cell -> its difference from the base; cells without two finished seeds have none."""
    headline: str = ""
    part: str = "report half of dev"
    n: int = 0

    def table(self) -> Table:
        """Every cell against the base; a cell without an interval has no effect either, and says why."""
        has_base = len(self.done.get(BASE, ())) > 1
        rows = [
            _row(cell, planned, self.done[cell], self.means, self.differences, has_base)
            for cell, planned in self.study.cells.items()
        ]
        columns = ("change", "mean", "effect", "95 % interval", "p (Holm)", "shown", "runs")
        told = f"{self.headline or 'no metric'}, {self.part}, n = {self.n:,}"
        note = f"{told}; effects against the base, over seeds and examples"
        return Table(f"{self.study.name}: ablation", columns, rows, note)


def ablation_table(folder: Path, study: Study, data_dir: str | None, *, rounds: int = 2000) -> Table:
    """A study as a table."""
    return measure_study(folder, study, data_dir, rounds=rounds).table()


def measure_study(
    folder: Path, study: Study, data_dir: str | None, *, on: str = "report", rounds: int = 2000
) -> Ablation:
    """Compare the finished runs of every cell with those of the base; all of dev is for runs that picked nothing."""
    done = {cell: [name for name in runs if Run(folder / name).is_finished] for cell, runs in study.cells.items()}
    usable = [cell for cell, runs in done.items() if len(runs) > 1]
    if BASE not in usable or len(usable) < 2:
        return Ablation(study, done, {}, {})
    members = open_members([folder / name for cell in usable for name in done[cell]], data_dir)
    chosen = members if on == "dev" else members.half("report")
    chosen = chosen if chosen.examples else members
    task, headline = members.task, members.task.headline
    others = [id_ for id_ in task.metrics if id_ != headline]
    measured = iter([measure(task, chosen.examples, m.predictions, others) for m in chosen.listed])
    systems = {cell: [next(measured) for _ in done[cell]] for cell in usable}
    found = compare_with_base(systems, BASE, headline, example_clusters(task, chosen.examples), rounds=rounds)
    means = {cell: system.mean for cell, system in found.systems.items()}
    differences = {difference.b: difference for difference in found.differences}
    part = "report half of dev" if chosen is not members else "all of dev"
    return Ablation(study, done, means, differences, headline, part, len(chosen.examples))


def _row(
    cell: str,
    planned: Sequence[str],
    done: Sequence[str],
    means: dict[str, float],
    differences: dict[str, SeedDifference],
    has_base: bool,
) -> tuple[object, ...]:
    runs = f"{len(done)}" if len(done) == len(planned) else f"{len(done)} of {len(planned)}"
    if found := differences.get(cell):
        interval = shown_interval(found.low, found.high, signed=True)
        return cell, means[cell], found.value, interval, shown_p(found.p_holm), found.verdict, runs
    why = (
        None
        if cell == BASE
        else "no interval: fewer than two seeds"
        if has_base
        else "no interval: the base lacks seeds"
    )
    return cell, means.get(cell), None, None, None, why, runs
