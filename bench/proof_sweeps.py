"""Proof of sweeps on real data: NER over seeds with and without SWA, killed once; ensembles; RE over rates.

    python bench/proof_sweeps.py [--data DIR] [--folder DIR] [--kill-after SECONDS]

Everything goes through the command line, as a user would do it. The tables are what docs/results.md quotes.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measuring import texts_of

from danseo.data import find
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.runs.store import Run
from danseo.tasks import TASKS

ROOT = Path(__file__).parents[1]
DANSEO = [sys.executable, "-P", "-m", "danseo"]
ENCODERS = {
    "wide": EncoderSize(layers=3, hidden=256, heads=4, vocabulary=16000, positions=256),
    "narrow": EncoderSize(layers=3, hidden=192, heads=3, vocabulary=6000, positions=256),
}
SEEDS = (1, 2, 3)
NER = """task = "ner"
max_train_samples = 2500
epochs = 6
learning_rate = 1e-3
lr_scheduler_type = "constant"
evals_per_epoch = 1
{average}
[grid]
model = [{models}]
seed = [1, 2, 3]
"""
RE = """task = "re"
max_train_samples = 4000
epochs = 2
evals_per_epoch = 1
[grid]
model = [{models}]
learning_rate = [3e-4, 1e-3]
"""


def training_texts(root: Path) -> Iterator[str]:
    for task in TASKS.values():
        for example in find.load(task, "train", root):
            yield from texts_of(example)


def danseo(*arguments: object, fine: tuple[int, ...] = (0,)) -> str:
    """A command with its output, which is also shown."""
    command = [*DANSEO, *map(str, arguments)]
    print("$ danseo", *arguments, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    if done.returncode not in fine:
        sys.exit(f"proof: exit code {done.returncode}")
    return done.stdout


def kill_midway(arguments: list[object], seconds: float) -> None:
    """Start a sweep and kill -9 it after some seconds."""
    process = subprocess.Popen([*DANSEO, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    print(f"kill -9 after {seconds:.0f} s: {'running' if process.poll() is None else 'ended before'}", flush=True)
    process.send_signal(signal.SIGKILL)
    process.wait()


def runs_of(folder: Path, **wanted: object) -> list[Path]:
    """Finished runs with these settings, ensembles left out."""
    found = []
    for path in sorted(folder.iterdir()):
        if not (path / "scores.json").is_file() or "ensemble" in path.name:
            continue
        config = Run(path).config
        if all(getattr(config, key) == value for key, value in wanted.items()):
            found.append(path)
    return found


def ner_sweep(folder: Path, root: Path, encoders: list[Path], name: str, average: str, kill_after: float) -> Path:
    models = ", ".join(f'"{encoder}"' for encoder in encoders)
    file, runs = folder / f"{name}.toml", folder / name
    file.write_text(NER.format(models=models, average=average), "utf-8")
    command: list[object] = ["sweep", file, "--data", root, "--runs", runs, "--slots", 2]
    danseo(*command, "--dry-run")
    if kill_after:
        kill_midway(command, kill_after)
    danseo(*command)
    return runs


def ensembles(runs: Path, root: Path) -> None:
    for seed in SEEDS:
        danseo("ensemble", *runs_of(runs, seed=seed), "--data", root, "--runs", runs)
    danseo("ensemble", *runs_of(runs), "--data", root, "--runs", runs)
    danseo("runs", runs, "--table", "seeds", "--format", "markdown")


def best_against_ensemble(runs: Path, root: Path) -> None:
    singles = runs_of(runs)
    scores = {path: Run(path).read_json("scores.json")["select_score"] for path in singles}
    best = max(scores, key=lambda path: scores[path])
    together = [path for path in runs.iterdir() if "ensemble" in path.name and (path / "scores.json").is_file()]
    largest = max(together, key=lambda path: len((path / "config.toml").read_text("utf-8")))
    danseo("compare", best, largest, "--data", root)
    danseo("compare", *singles, "--over", "seeds", "--data", root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=Path("proof") / "sweeps")
    parser.add_argument("--kill-after", type=float, default=100.0)
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"proof: the real KLUE files are not in {options.data}; name their folder with --data")
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    options.folder.mkdir(parents=True, exist_ok=True)
    encoders = []
    for name, size in ENCODERS.items():
        encoders.append((options.folder / name).resolve())
        if not (encoders[-1] / "model.safetensors").is_file():
            make_encoder(encoders[-1], training_texts(options.data), "modernbert", size)
    plain = ner_sweep(options.folder, options.data, encoders, "ner-plain", "", options.kill_after)
    averaged = ner_sweep(options.folder, options.data, encoders, "ner-swa", "swa_start_epoch = 1", 0)
    for runs in (plain, averaged):
        ensembles(runs, options.data)
        best_against_ensemble(runs, options.data)
    file, runs = options.folder / "re.toml", options.folder / "re"
    file.write_text(RE.format(models=", ".join(f'"{encoder}"' for encoder in encoders)), "utf-8")
    danseo("sweep", file, "--data", options.data, "--runs", runs, "--slots", 2)
    danseo("runs", runs, "--table", "sweep", "--format", "markdown")


if __name__ == "__main__":
    main()
