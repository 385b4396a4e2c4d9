"""Proof on real KLUE-RE: baselines that see a part, then a study on one encoder; folds against the best single run.

    python bench/proof_re.py [--data DIR] [--folder DIR] [--model FOLDER] [--minutes N] [--train N] [--dev N]
                             [--epochs N] [--lr RATE] [--precision NAME] [--seeds 1 2 3] [--cells NAME …]
                             [--markers NAME] [--no-baselines]

Without a model only the baselines are made, of all data. With one, the study is a normal sweep file in the folder, of
the first examples of train and dev; its runs are made one after the other by this process, which saves the start of
one per run. Cells come in the order in which they are named, each with all of its seeds before the next one begins, so
that whatever the time allows has its interval; when the minutes are over the same command goes on where it was.
Nothing is picked: the last weights of each run answer dev once, so all of dev counts. What only changes answers (the
mask by types, another prior) is made of the base's saved probabilities.
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from danseo.data.dev_split import split_indices
from danseo.data.find import require_file
from danseo.display.table import Table, format_interval, to_markdown
from danseo.experiment import run_experiment
from danseo.files import read_text, write_atomically
from danseo.inference.evaluation import adjust_predictions
from danseo.models.registry import configure_run
from danseo.runs.predictions import MemberSet, open_members
from danseo.runs.scores import get_headline
from danseo.runs.store import Run
from danseo.scoring.compare import Comparison, Difference, compare
from danseo.scoring.score import measure
from danseo.scoring.tables import format_p
from danseo.sweeps.preparation import SweepOptions, prepare
from danseo.sweeps.sweep import StudyCells
from danseo.tables.ablation import BASE, measure_study, read_studies
from danseo.tasks import TASKS

ROOT = Path(__file__).parents[1]
NAME = "proof-re"
BASELINES = ("majority", "linear:sentence", "linear:entities", "linear")
FOLDS = "5 folds"
CELLS = {
    "concat": 'markers = "concat"',
    FOLDS: "n_folds = 5",
    "untyped markers": 'markers = "entity_marker"',
    "first piece": 'pooling = "cls"',
    "focal": 'loss = "focal"',
    "hard negatives": "hard_negative_ratio = 0.5",
    "R-Drop": "rdrop_alpha = 1.0",
    "whole entities": 'pooling = "e_mean"',
    "untyped, first piece": 'markers = "entity_marker", pooling = "cls"',
    "concat, first piece": 'markers = "concat", pooling = "cls"',
    "mask in training": 'type_mask = "training"',
    "signs": 'markers = "entity_marker_punct"',
    "klue markers": 'markers = "klue"',
}
"""The most wanted ones first."""
AFTERWARDS: dict[str, dict[str, Any]] = {
    "type mask": {"prior": None, "type_mask": True},
    "prior by EM": {"prior": "em", "type_mask": False},
    "prior of the select half": {"prior": "select", "type_mask": False},
}
DIFFERENCE = ("difference", "95 % interval", "p")
SWEEP = """task = "re"
recipe = "small"
model = {model}
markers = "{markers}"
pooling = "e_start"
precision = "{precision}"
attn_implementation = "sdpa"
epochs = {epochs}
learning_rate = {rate}
evals_per_epoch = 0
num_threads = 1

[study]
seeds = {seeds}

[study.changes]
{changes}
"""


def baseline_table(root: Path, runs: Path) -> Table:
    """The linear model with all it can see, and without the sentence or the entities."""
    rows: list[tuple[object, ...]] = []
    for name in BASELINES:
        run = run_experiment(configure_run("re", name, "default", {}), root, runs)
        found = get_headline(run.read_json("scores.json"), "dev")
        rows.append((name, *((found["value"], *found["interval"]) if found else (None, None, None))))
    return Table("baselines, all of dev", ("model", "micro F1", "from", "to"), rows)


def written(asked: argparse.Namespace, cells: Sequence[str]) -> Path:
    """The sweep file of the study with so many of its cells."""
    changes = "\n".join(f'"{cell}" = {{{CELLS[cell]}}}' for cell in cells)
    model = json.dumps(str(asked.model), ensure_ascii=False)
    path: Path = asked.folder / f"{NAME}.toml"
    facts = {
        "markers": asked.markers,
        "precision": asked.precision,
        "epochs": asked.epochs,
        "rate": asked.lr,
        "seeds": asked.seeds,
    }
    path.write_text(SWEEP.format(model=model, changes=changes, **facts), "utf-8")
    return path


def run_study(asked: argparse.Namespace) -> None:
    """The runs of the sweep, cell by cell, for as long as there is time."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, 60 * asked.minutes))
    try:
        for count in range(1, len(asked.cells) + 1):
            prepared = prepare(
                written(asked, asked.cells[:count]), SweepOptions(asked.data, asked.folder), offline=True
            )
            study = StudyCells(prepared, NAME)
            study.write()
            for point in prepared.points:
                run_experiment(point.config, asked.data, asked.folder, quiet=True)
                print(f"{point.name} is done; cells so far: {count}", file=sys.stderr, flush=True)
            study.join_folds(quiet=True)
    except KeyboardInterrupt:
        print("the time is over; the same command goes on", file=sys.stderr)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    StudyCells(prepared, NAME).join_folds(quiet=True)


def some_data(asked: argparse.Namespace) -> Path:
    """A folder with the first examples of train and dev."""
    task, folder = TASKS["re"], Path(asked.folder)
    root = folder / f"data-{asked.train}-{asked.dev}"
    for split, count in (("train", asked.train), ("dev", asked.dev)):
        rows = json.loads(read_text(require_file(task, split, asked.data)))
        write_atomically(root / task.folder / task.file(split), json.dumps(rows[:count], ensure_ascii=False))
    return root


def study_tables(asked: argparse.Namespace) -> list[Table]:
    """What each change is worth, what the base's answers are worth when adjusted, and folds against a single run."""
    (study,) = [each for each in read_studies(asked.folder) if each.name == NAME]
    done = {
        cell: [path for name in names if Run(path := asked.folder / name).is_finished]
        for cell, names in study.cells.items()
    }
    tables = [measure_study(asked.folder, study, str(asked.data), on="dev").table()]
    if len(done[BASE]) > 1:
        tables.append(adjusted_table(open_members(done[BASE], str(asked.data)), asked.data))
    if done[BASE] and done.get(FOLDS):
        tables.append(fold_table(done[BASE], done[FOLDS], str(asked.data)))
    return tables


def adjusted_table(members: MemberSet, root: Path) -> Table:
    """The base's saved probabilities, masked by types and under other priors: the same weights, so seed by seed.

    The report half alone, as one of the ways looks at the select half.
    """
    task, examples = members.task, members.examples
    positions, metrics = split_indices(task, examples, "report"), tuple(task.columns.values())
    skipped = [id_ for id_ in task.metrics if id_ not in metrics]
    rows: list[tuple[object, ...]] = []
    for (name, way), member in product(AFTERWARDS.items(), members.members):
        adjusted = adjust_predictions(Run(member.path), task, root, examples, member.predictions, **way).predictions
        answers = {kind: [each[k] for k in positions] for kind, each in ((BASE, member.predictions), (name, adjusted))}
        found = compare(task, [examples[k] for k in positions], answers, skip=skipped)
        rows += [(name, member.seed, d.metric, *_told(found, d)) for d in found.differences]
    columns = ("answers of the base", "seed", "metric", "plain", "adjusted", *DIFFERENCE)
    return Table("answers adjusted after training", columns, sorted(rows, key=lambda row: (row[0], row[2])))


def fold_table(single: Sequence[Path], folds: Sequence[Path], data: str) -> Table:
    """The ensemble of the folds of each seed against the single run that is best on the same examples, all of dev."""
    members = open_members([*single, *folds], data)
    task, listed = members.task, members.members
    metrics = tuple(task.columns.values())
    skipped = [id_ for id_ in task.metrics if id_ not in metrics]
    score = {m.path: measure(task, members.examples, m.predictions, skipped) for m in listed[: len(single)]}
    rows: list[tuple[object, ...]] = []
    for metric, member in product(metrics, listed[len(single) :]):
        best = max(listed[: len(single)], key=lambda each: score[each.path][metric].value())
        answers = {best.name: best.predictions, member.name: member.predictions}
        found = compare(task, members.examples, answers, skip=[id_ for id_ in task.metrics if id_ != metric])
        rows.append((member.seed, metric, best.seed, *_told(found, found.differences[0])))
    columns = ("seed", "metric", "seed of the best single run", "best single run", "the five folds", *DIFFERENCE)
    return Table("five folds against the best single run by each metric, all of dev", columns, rows)


def _told(found: Comparison, difference: Difference) -> tuple[object, ...]:
    values = found.values[difference.metric]
    interval = format_interval((difference.low, difference.high), signed=True)
    return values[difference.a], values[difference.b], difference.value, interval, format_p(difference.p)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / NAME)
    parser.add_argument("--model", help="an encoder; without one only the baselines are made")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--train", type=int, default=4000, help="examples to learn from")
    parser.add_argument("--dev", type=int, default=8000, help="examples to answer")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--precision", default="auto")
    parser.add_argument(
        "--markers", default="typed_entity_marker", help="of the base; signs are not in every vocabulary"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS), metavar="NAME")
    parser.add_argument("--no-baselines", action="store_true")
    asked = parser.parse_args()
    if not asked.data.is_dir():
        print(f"no data in {asked.data}; name it with --data", file=sys.stderr)
        return 2
    asked.folder.mkdir(parents=True, exist_ok=True)
    tables = [] if asked.no_baselines else [baseline_table(asked.data, asked.folder)]
    if asked.model:
        asked.data = some_data(asked)
        run_study(asked)
        tables += study_tables(asked)
    print("\n\n".join(to_markdown(table) for table in tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
