"""Proof on real KLUE-RE: floors that see a part, then one change at a time on one encoder, folds last.

    python bench/proof_re.py [--data DIR] [--folder DIR] [--model FOLDER] [--minutes N] [--limit N] [--seeds 1 2 3]

Without a model only the floors are made. Runs go into the folder and are resumed: the same command goes on. When the
minutes are over no further run is started, and the table shows what there is; a change with one seed has no effect.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from danseo.display.table import Table, to_markdown
from danseo.ensembling.making import Options, make_ensemble
from danseo.experiment import run_experiment
from danseo.recipes import configured
from danseo.runs.compare import compare_runs
from danseo.runs.directory import Run
from danseo.runs.layouts.ablation import BASE, ENDING, Study, ablation_tables
from danseo.runs.scores import headline_of

ROOT = Path(__file__).parents[1]
FLOORS = ("majority", "linear:sentence", "linear:entities", "linear")
CELLS: dict[str, dict[str, Any]] = {
    BASE: {},
    "concat": {"markers": "concat"},
    "typed markers": {"markers": "typed_entity_marker"},
    "type mask": {"type_mask": "inference"},
    "starts of entities": {"pooling": "e_start"},
    "focal": {"loss": "focal"},
    "hard negatives": {"hard_negatives": 0.5},
    "R-Drop": {"rdrop": 1.0},
}
FOLDS = 5


class Budget:
    """Runs as long as there is time; a finished one costs none."""

    def __init__(self, root: Path, runs: Path, minutes: float) -> None:
        self.root, self.runs, self.until = root, runs, time.monotonic() + 60 * minutes

    def run(self, model: str, settings: dict[str, Any]) -> Run | None:
        if time.monotonic() > self.until:
            return None
        return run_experiment(configured("re", model, "default", settings), self.root, self.runs)


def floor_table(budget: Budget) -> Table:
    """The linear model with all it can see, and without the sentence or the entities."""
    rows: list[tuple[object, ...]] = []
    for name in FLOORS:
        if run := budget.run(name, {}):
            found = headline_of(run.read_json("scores.json"), "dev")
            rows.append((name, *((found["value"], *found["interval"]) if found else (None, None, None))))
    return Table("floors, all of dev", ("model", "micro F1", "from", "to"), rows)


def study(budget: Budget, model: str, common: dict[str, Any], seeds: list[int]) -> None:
    """The cells, seed by seed, so that all have two before any has three."""
    cells: dict[str, list[str]] = {cell: [] for cell in CELLS}
    for seed in seeds:
        for cell, changes in CELLS.items():
            if run := budget.run(model, {**common, **changes, "seed": seed}):
                cells[cell].append(run.path.name)
    text = json.dumps(Study("proof-re", cells).as_dict(), ensure_ascii=False)
    (budget.runs / f"proof-re{ENDING}").write_text(text, "utf-8")


def fold_tables(budget: Budget, model: str, common: dict[str, Any], seeds: list[int]) -> list[Table]:
    """The ensemble of the folds against the run of the base that is best on the select half."""
    parts = [budget.run(model, {**common, "folds": FOLDS, "fold": fold, "seed": seeds[0]}) for fold in range(FOLDS)]
    singles = [budget.run(model, {**common, "seed": seed}) for seed in seeds]
    runs, bases = [run for run in parts if run], [run for run in singles if run]
    if len(runs) < FOLDS or not bases:
        return []
    best = max(bases, key=lambda run: run.read_json("scores.json")["select_score"])
    ensemble = make_ensemble([run.path for run in runs], str(budget.root), budget.runs, Options())
    return compare_runs([best.path, ensemble.path], str(budget.root)).tables()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "proof-re")
    parser.add_argument("--model", help="an encoder; without one only the floors are made")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    asked = parser.parse_args()
    if not asked.data.is_dir():
        print(f"no data in {asked.data}; name it with --data", file=sys.stderr)
        return 2
    asked.folder.mkdir(parents=True, exist_ok=True)
    budget = Budget(asked.data, asked.folder, asked.minutes)
    tables = [floor_table(budget)]
    if asked.model:
        common = {"limit": asked.limit, "epochs": asked.epochs}
        study(budget, asked.model, common, asked.seeds)
        tables += ablation_tables(asked.folder, str(asked.data))
        tables += fold_tables(budget, asked.model, common, asked.seeds)
    print("\n\n".join(to_markdown(table) for table in tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
