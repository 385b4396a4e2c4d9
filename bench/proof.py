"""Proof on real data: a small encoder, fine-tuned on every task, beside its floors.

    python bench/proof.py [-m MODEL] [--recipe NAME] [--data DIR] [--folder DIR] [TASK …]

The model is the encoder in the box, unless told otherwise; `scratch` has random weights and is of about that size.

Runs go into the folder and are resumed; the table at the end is what docs/findings.md quotes.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from danseo.data import find
from danseo.demo import texts_of
from danseo.display.table import Table, to_markdown
from danseo.experiment import run_experiment
from danseo.models.families import family_of
from danseo.models.scratch import Size, make_encoder
from danseo.recipes import configured
from danseo.runs.scores import headline_of
from danseo.tasks import TASKS, get_task

ROOT = Path(__file__).parents[1]
SIZE = Size(layers=4, hidden=256, heads=4, vocabulary=16000, positions=512)
COMMON = {"evaluations": 2, "head_learning_rate": None}
SETTINGS: dict[str, dict[str, Any]] = {
    "ynat": {"epochs": 2},
    "sts": {"epochs": 3},
    "nli": {"epochs": 2},
    "ner": {"epochs": 10},
    "re": {"epochs": 2},
    "dp": {"epochs": 12},
    "mrc": {"epochs": 1, "max_length": 384, "limit": 1000},
    "wos": {"epochs": 3, "max_length": 256},
}


def training_texts(root: Path) -> Iterator[str]:
    for task in TASKS.values():
        for example in find.load(task, "train", root):
            yield from texts_of(example)


def row(name: str, encoder: str, recipe: str, root: Path, runs: Path) -> tuple[object, ...]:
    task = get_task(name)
    rate = {} if recipe == "small" else {"learning_rate": 5e-4}  # that of base models is too low for so small a one
    run = run_experiment(configured(name, encoder, recipe, {**COMMON, **rate, **SETTINGS[name]}), root, runs)
    scores, facts = run.read_json("scores.json"), run.read_json("environment.json")
    found = headline_of(scores, "dev")
    assert found is not None
    floors: list[float | None] = []
    for floor in ("majority", "linear"):
        if floor == "linear" and task.kind not in ("classify", "score"):
            floors.append(None)
            continue
        finished = run_experiment(configured(name, floor, "default", {}), root, runs, quiet=True)
        headline = headline_of(finished.read_json("scores.json"), "dev")
        floors.append(headline["value"] if headline else None)
    low, high = found["interval"]
    best_floor = max((floor for floor in floors if floor is not None), default=0.0)
    verdict = "yes" if low > best_floor else "no" if high < best_floor else "not shown"
    interval = f"{low:.2f} – {high:.2f}"
    return (task.short, found["id"], found["n"], found["value"], interval, *floors, verdict, facts["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="only these tasks")
    parser.add_argument("-m", "--model", default="mini", help="a checkpoint, or scratch")
    parser.add_argument("--recipe", help="small, for what was made of the encoder in the box")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=Path("proof"))
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"proof: the real KLUE files are not in {options.data}; name their folder with --data")
    model, scratch = options.model, options.folder / "encoder"
    if model == "scratch":
        model = str(scratch)
        if not (scratch / "model.safetensors").is_file():
            make_encoder(scratch, training_texts(options.data), "modernbert", SIZE)
    recipe = options.recipe or family_of(model).recipe  # of the encoder in the box: small
    columns = ("task", "metric", "n", "encoder", "95 % interval", "majority", "linear", "beats its floors", "seconds")
    rows: list[tuple[object, ...]] = []
    for name in options.tasks:
        rows.append(row(name, model, recipe, options.data, options.folder / "runs"))
        print(to_markdown(Table("proof", columns, rows)), flush=True)


if __name__ == "__main__":
    main()
