"""Proof on real data: a small encoder, fine-tuned on every task, beside its baselines.

    python bench/proof.py [-m MODEL] [--recipe NAME] [--data DIR] [--folder DIR] [TASK …]

The model is the bundled model, unless told otherwise; `scratch` has random weights and is of about that size.

Runs go into the folder and are resumed; the table at the end is what docs/results.md quotes.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import texts_of

from danseo.data import find
from danseo.display.table import Table, to_markdown
from danseo.experiment import run_experiment
from danseo.models.baselines import has_linear_model
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.models.registry import configure_run, get_family
from danseo.runs.scores import get_headline
from danseo.tasks import TASKS, get_task

ROOT = Path(__file__).parents[1]
SIZE = EncoderSize(layers=4, hidden=256, heads=4, vocabulary=16000, positions=512)
COMMON = {"evals_per_epoch": 2, "head_learning_rate": None}
SETTINGS: dict[str, dict[str, Any]] = {
    "ynat": {"epochs": 2},
    "sts": {"epochs": 3},
    "nli": {"epochs": 2},
    "ner": {"epochs": 10},
    "re": {"epochs": 2},
    "dp": {"epochs": 12},
    "mrc": {"epochs": 1, "max_length": 384, "max_train_samples": 1000},
    "wos": {"epochs": 3, "max_length": 256},
}


def training_texts(root: Path) -> Iterator[str]:
    for task in TASKS.values():
        for example in find.load(task, "train", root):
            yield from texts_of(example)


def row(name: str, encoder: str, recipe: str, root: Path, runs: Path) -> tuple[object, ...]:
    task = get_task(name)
    rate = {} if recipe == "small" else {"learning_rate": 5e-4}  # that of base models is too low for so small a one
    run = run_experiment(configure_run(name, encoder, recipe, {**COMMON, **rate, **SETTINGS[name]}), root, runs)
    scores, facts = run.read_json("scores.json"), run.read_json("environment.json")
    found = get_headline(scores, "dev")
    assert found is not None
    baselines: list[float | None] = []
    for baseline in ("majority", "linear"):
        if baseline == "linear" and not has_linear_model(task):
            baselines.append(None)
            continue
        finished = run_experiment(configure_run(name, baseline, "default", {}), root, runs, quiet=True)
        headline = get_headline(finished.read_json("scores.json"), "dev")
        baselines.append(headline["value"] if headline else None)
    low, high = found["interval"]
    best_baseline = max((baseline for baseline in baselines if baseline is not None), default=0.0)
    verdict = "yes" if low > best_baseline else "no" if high < best_baseline else "not shown"
    interval = f"{low:.2f} – {high:.2f}"
    return (task.short, found["id"], found["n"], found["value"], interval, *baselines, verdict, facts["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="only these tasks")
    parser.add_argument("-m", "--model", default="mini", help="a checkpoint, or scratch")
    parser.add_argument("--recipe", help="small, for what was made of the bundled model")
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
    recipe = options.recipe or get_family(model).recipe  # of the bundled model: small
    columns = (
        "task",
        "metric",
        "n",
        "encoder",
        "95 % interval",
        "majority",
        "linear",
        "beats its baselines",
        "seconds",
    )
    rows: list[tuple[object, ...]] = []
    for name in options.tasks:
        rows.append(row(name, model, recipe, options.data, options.folder / "runs"))
        print(to_markdown(Table("proof", columns, rows)), flush=True)


if __name__ == "__main__":
    main()
