"""Proof on real KLUE-RE: floors that see a part, then a study on one encoder; folds against one run.

    python bench/proof_re.py [--data DIR] [--folder DIR] [--model FOLDER] [--minutes N] [--limit N] [--epochs N]
                             [--lr RATE] [--seeds 1 2 3] [--cells NAME …] [--markers NAME] [--slots N]

Without a model only the floors are made. With one, the study is an ordinary sweep file in the folder, run as a user
would run it; when the minutes are over the sweep is ended politely, and the same command goes on where it was. All
cells get their first seed before any gets its second. The tables show what there is: a change with one seed has no
interval, and so no effect. Nothing is picked: the last weights of each run answer dev once.
"""

import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path

from danseo.display.table import Table, to_markdown
from danseo.experiment import run_experiment
from danseo.recipes import configured
from danseo.runs.compare import compare_runs
from danseo.runs.directory import Run
from danseo.runs.layouts.ablation import BASE, ablation_tables, read_studies
from danseo.runs.scores import headline_of
from danseo.sweeps.preparing import Options, prepare
from danseo.sweeps.studies import PlannedStudy

ROOT = Path(__file__).parents[1]
FLOORS = ("majority", "linear:sentence", "linear:entities", "linear")
FOLDS = "5 folds"
CELLS = {
    "concat": 'markers = "concat"',
    FOLDS: "folds = 5",
    "entity_marker": 'markers = "entity_marker"',
    "signs": 'markers = "entity_marker_punct"',
    "cls pooling": 'pooling = "cls"',
    "type mask": 'type_mask = "inference"',
    "focal": 'loss = "focal"',
    "hard negatives": "hard_negatives = 0.5",
    "R-Drop": "rdrop = 1.0",
    "klue markers": 'markers = "klue"',
}
SWEEP = """task = "re"
model = {model}
markers = "{markers}"
pooling = "e_start"
precision = "fp32"
attention = "sdpa"
limit = {limit}
epochs = {epochs}
learning_rate = {rate}
evaluations = 0
threads = 1

[study]
seeds = {seeds}

[study.changes]
{changes}
"""


def floor_table(root: Path, runs: Path) -> Table:
    """The linear model with all it can see, and without the sentence or the entities."""
    rows: list[tuple[object, ...]] = []
    for name in FLOORS:
        run = run_experiment(configured("re", name, "default", {}), root, runs)
        found = headline_of(run.read_json("scores.json"), "dev")
        rows.append((name, *((found["value"], *found["interval"]) if found else (None, None, None))))
    return Table("floors, all of dev", ("model", "micro F1", "from", "to"), rows)


def written(asked: argparse.Namespace) -> Path:
    """The sweep file of the study."""
    changes = "\n".join(f'"{cell}" = {{{CELLS[cell]}}}' for cell in asked.cells)
    model = json.dumps(str(asked.model), ensure_ascii=False)
    path: Path = asked.folder / "proof-re.toml"
    facts = {
        "markers": asked.markers,
        "limit": asked.limit,
        "epochs": asked.epochs,
        "rate": asked.lr,
        "seeds": asked.seeds,
    }
    path.write_text(SWEEP.format(model=model, changes=changes, **facts), "utf-8")
    return path


def run_study(path: Path, asked: argparse.Namespace) -> None:
    """The sweep, for as long as there is time."""
    command = [sys.executable, "-m", "danseo", "sweep", path, "--data", asked.data, "--runs", asked.folder]
    sweep = subprocess.Popen([str(word) for word in (*command, "--slots", asked.slots)])
    try:
        sweep.wait(60 * asked.minutes)
    except subprocess.TimeoutExpired:
        print(f"{asked.minutes:g} minutes are over; the same command goes on", file=sys.stderr)
        sweep.send_signal(signal.SIGTERM)
        sweep.wait()
    PlannedStudy(prepare(path, Options(asked.data, asked.folder), offline=True), path.stem).join_folds(quiet=True)


def fold_tables(asked: argparse.Namespace) -> list[Table]:
    """The ensemble of the folds of each seed against the run of the base that is best on the select half."""
    (study,) = [each for each in read_studies(asked.folder) if each.name == "proof-re"]
    done = {
        cell: [r for name in names if (r := Run(asked.folder / name)).is_finished]
        for cell, names in study.cells.items()
    }
    if not done[BASE] or not done.get(FOLDS):
        return []
    best = max(done[BASE], key=lambda run: run.read_json("scores.json")["select_score"])
    return [table for run in done[FOLDS] for table in compare_runs([best.path, run.path], str(asked.data)).tables()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "proof-re")
    parser.add_argument("--model", help="an encoder; without one only the floors are made")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--limit", type=int, default=6000)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument(
        "--markers", default="typed_entity_marker", help="of the base; signs are not in every vocabulary"
    )
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS), metavar="NAME")
    parser.add_argument("--no-floors", action="store_true")
    asked = parser.parse_args()
    if not asked.data.is_dir():
        print(f"no data in {asked.data}; name it with --data", file=sys.stderr)
        return 2
    asked.folder.mkdir(parents=True, exist_ok=True)
    tables = [] if asked.no_floors else [floor_table(asked.data, asked.folder)]
    if asked.model:
        run_study(written(asked), asked)
        tables += [*ablation_tables(asked.folder, str(asked.data)), *fold_tables(asked)]
    print("\n\n".join(to_markdown(table) for table in tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
