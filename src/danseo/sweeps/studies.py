"""A study: which runs make up each cell, and the folds of a cell joined to one run per seed."""

import json
from functools import partial

from danseo.display.escaping import say
from danseo.ensembling.making import Options, make_ensemble
from danseo.files import write_atomically
from danseo.recipes import encoder_facts
from danseo.runs.directory import Run
from danseo.runs.layouts.ablation import ENDING, Study
from danseo.sweeps.preparing import Prepared

_LACKING = "folds-of-"  # before the name of the first one: no such run is ever there


class PlannedStudy:
    """The cells of a study by the names of their runs, for the table of the ablation."""

    def __init__(self, prepared: Prepared, name: str) -> None:
        self.name, self.runs, self.root = name, prepared.planner.runs, prepared.planner.root
        look = partial(encoder_facts, offline=prepared.planner.offline)
        self.parts = {
            cell: [[prepared.planner.point(config).name for config in folds] for folds in by_seed]
            for cell, by_seed in prepared.sweep.cells(look).items()
        }
        self.joined: dict[str, str] = {}
        """First fold -> the ensemble of all of them."""

    def write(self) -> None:
        """Put the study beside its runs; an ensemble that is not made yet counts as one that is not done."""
        cells = {
            cell: [
                folds[0] if len(folds) == 1 else self.joined.get(folds[0], f"{_LACKING}{folds[0]}") for folds in by_seed
            ]
            for cell, by_seed in self.parts.items()
        }
        text = json.dumps(Study(self.name, cells).as_dict(), ensure_ascii=False, indent=2)
        write_atomically(self.runs / f"{self.name}{ENDING}", text + "\n")

    def join_folds(self, *, quiet: bool) -> None:
        """Average the folds of each cell and seed, where all of them are done."""
        for folds in [folds for by_seed in self.parts.values() for folds in by_seed if len(folds) > 1]:
            if all(Run(self.runs / name).is_finished for name in folds):
                made = make_ensemble([self.runs / name for name in folds], str(self.root), self.runs, Options())
                self.joined[folds[0]] = made.path.name
                if not quiet:
                    say(f"{made.path.name}: the {len(folds)} folds of {folds[0]} together")
        if self.joined:
            self.write()
