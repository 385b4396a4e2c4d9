"""The race for the bundled model: architectures and objectives pre-trained for equal minutes of one core.

    python bench/race.py [--minutes N] [--text DIR] [--data DIR] [--folder DIR] [--lanes NAME …]

Every lane reads the same pieces of the same text, from random weights, in one thread; then it is fine-tuned on the
first examples of four tasks and judged by the select halves of their dev sets, once, by its last weights. Held-out
losses compare lanes that guess masked pieces. Both are resumed; the table at the end is what docs/results.md quotes.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from measuring import ResultTable, say
from proof_decoders import shortened

from danseo.data import find
from danseo.data.dev_split import split_indices
from danseo.data.prediction_file import read_predictions
from danseo.experiment import run_experiment
from danseo.mlm.run_folder import RESULT
from danseo.models.registry import configure_run
from danseo.runs.store import Run
from danseo.scoring.score import measure
from danseo.tasks import get_task

ROOT = Path(__file__).parents[1]
LANES: dict[str, dict[str, object]] = {
    "ModernBERT 4 x 256": {},
    "ModernBERT 6 x 256": {"model.num_hidden_layers": 6},
    "ModernBERT 6 x 320": {"model.num_hidden_layers": 6, "model.hidden_size": 320, "model.num_attention_heads": 5},
    "BERT 4 x 256": {"model.architecture": "bert"},
    "ModernBERT 4 x 256, rtd": {"objective": "rtd"},
}
TASKS = {"sts": 5000, "nli": 6000, "ner": 1500, "ynat": 5000}
"""With how many examples of train they are learned."""
DEV = 2000
FITTING = {"epochs": 2, "evals_per_epoch": 0, "num_threads": 1}


def pretrained(name: str, options: argparse.Namespace) -> Path:
    """The lane's weights after its minutes."""
    folder: Path = options.folder / name.replace(" ", "-").replace(",", "")
    command = [sys.executable, "-P", "-m", "danseo", "pretrain", "--config", "mini", "--text", str(options.text)]
    command += ["--out", str(folder), "--minutes", str(options.minutes)]
    settings = {"num_threads": 1, "train.batch_size": 32, "train.precision": options.precision}
    settings |= {"save.checkpoints": 1, **LANES[name]}
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def select_score(name: str, encoder: Path, options: argparse.Namespace) -> float:
    """The headline score of a short fine-tuning on the select half of the first dev examples."""
    data = options.folder / "data"
    config = configure_run(name, str(encoder), "small", {**FITTING, "precision": options.precision})
    run = run_experiment(config, data, options.folder / "runs", quiet=True)
    task = run.task
    examples = find.load(task, "dev", data)
    answers = read_predictions(run.path / "predictions" / "dev.jsonl", task, examples)
    chosen = split_indices(task, examples, "select")
    return measure(task, [examples[k] for k in chosen], [answers[k] for k in chosen])[task.headline].value()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6.0, help="of pre-training per lane")
    parser.add_argument("--text", type=Path, default=ROOT.parent / "shared" / "data" / "text" / "kowiki")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=Path("race"))
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--lanes", nargs="*", default=list(LANES), choices=list(LANES), metavar="NAME")
    options = parser.parse_args()
    for name, count in TASKS.items():
        shortened(options.data, options.folder / "data", name, {"train": count, "dev": DEV})
    columns = ("lane", "pieces, million", "held-out loss", *(get_task(name).headline for name in TASKS))
    table = ResultTable(f"{options.minutes:g} minutes of one core each", columns)
    for lane in options.lanes:
        folder = pretrained(lane, options)
        say(f"{lane} is pre-trained")
        result, last = Run(folder).read_json(RESULT), Run(folder).read_log()[-1]
        scores = [select_score(name, folder / "model", options) for name in TASKS]
        table.add(lane, result["pieces"] / 1e6, last.get("held_out_loss"), *scores)


if __name__ == "__main__":
    main()
