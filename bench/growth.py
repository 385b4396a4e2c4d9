"""How time and memory grow with the size of the work: training, predict, runs and compare, each a command of its own.

    python bench/growth.py [--scale N] [--only train predict runs compare] [--plot FILE]

Seconds are those of the processor, memory is the most that the command had. Time is linear if a further row, line or
run costs at most 1.3 times as much between the last two sizes as between the first two. `compare` tests all pairs of
systems: they are its work. --scale 0.1 takes a tenth of every size.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from measuring import ResultTable, one_line, say

from danseo.data.find import write_sample
from danseo.display.plots.figures import Chart, Curve
from danseo.display.plots.image_files import save_figures
from danseo.experiment import run_experiment
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.models.registry import configure_run
from danseo.tasks import TASKS
from pages import copies

SIZES = {
    "train": (1_000, 10_000, 100_000),
    "predict": (10_000, 100_000, 1_000_000),
    "runs": (100, 1_000, 10_000),
    "compare": (10, 50, 200),
}
UNITS = {"train": "rows", "predict": "lines", "runs": "runs", "compare": "pairs of systems"}
MOST_GROWTH, SHORTEST = 1.3, 0.5
ENCODER = EncoderSize(layers=1, hidden=64, heads=2, vocabulary=2000, positions=64)
LAUNCHER = """
import json, os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet), 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""
"""Starts a command from a small process: the system counts the memory of the process that started it too."""
SHORT = ("--epochs", "1", "--max-length", "64", "--set", "num_threads=1", "--set", "precision=fp32")


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds of the processor, and megabytes at most."""

    size: int
    seconds: float
    megabytes: float


def run_danseo(*arguments: object) -> tuple[float, float]:
    """Run a command; return its CPU seconds and its peak memory in MB."""
    command = [sys.executable, "-c", LAUNCHER, sys.executable, "-P", "-m", "danseo", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    code, seconds, megabytes = json.loads(done.stdout or "[1, 0, 0]")
    if code:
        raise RuntimeError((done.stderr.strip() or "no message").splitlines()[-1])
    return seconds, megabytes


def repeat_rows(sample: Path, count: int) -> Iterator[dict[str, str]]:
    """Yield so many titles with labels; every one differs from the others."""
    task = TASKS["ynat"]
    examples = task.read(sample / task.folder / task.file("train"))
    for number in range(count):
        example = examples[number % len(examples)]
        yield {"guid": f"g{number}", "title": f"{example.text} {number}", "label": str(example.gold)}


def train(work: Path, size: int) -> tuple[float, float]:
    task, data = TASKS["ynat"], work / f"data{size}"
    if not (work / "encoder").is_dir():
        make_encoder(work / "encoder", [row["title"] for row in repeat_rows(work / "sample", 500)], "bert", ENCODER)
    (data / task.folder).mkdir(parents=True)
    rows = list(repeat_rows(work / "sample", size))
    (data / task.folder / task.file("train")).write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    dev = work / "sample" / task.folder / task.file("dev")
    (data / task.folder / task.file("dev")).write_bytes(dev.read_bytes())
    return run_danseo("train", "ynat", "-m", work / "encoder", "--data", data, "--runs", work / f"runs{size}", *SHORT)


def predict(work: Path, size: int) -> tuple[float, float]:
    if not list(work.glob("runs*/ynat--*")):
        train(work, 500)
    run = next(work.glob("runs*/ynat--*"))
    with (work / "lines.txt").open("w", encoding="utf-8") as file:
        file.writelines(row["title"] + "\n" for row in repeat_rows(work / "sample", size))
    return run_danseo("predict", run, work / "lines.txt", "-o", work / "out.jsonl")


def list_runs(work: Path, size: int) -> tuple[float, float]:
    copies(make_firsts(work), work / f"many{size}", size, whole=False)
    return run_danseo("runs", work / f"many{size}")


def compare(work: Path, size: int) -> tuple[float, float]:
    copies(make_firsts(work), work / f"systems{size}", size)
    return run_danseo("compare", *sorted((work / f"systems{size}").iterdir()), "--data", work / "sample", "--json")


def make_firsts(work: Path) -> list[Path]:
    configs = [configure_run("ynat", model, "default", {}) for model in ("majority", "linear")]
    return [run_experiment(config, work / "sample", work / "first", quiet=True).path for config in configs]


WORK: dict[str, Callable[[Path, int], tuple[float, float]]] = {
    "train": train,
    "predict": predict,
    "runs": list_runs,
    "compare": compare,
}


def measure(name: str, work: Path, scale: float, table: ResultTable) -> list[Cost]:
    """Add a row per size; the last one has the verdict."""
    costs: list[Cost] = []
    for size in (max(2, round(scale * size)) for size in SIZES[name]):
        seconds, megabytes = WORK[name](work, size)
        units = size * (size - 1) // 2 if name == "compare" else size
        costs.append(Cost(units, seconds, megabytes))
        growth = measure_growth(costs) if len(costs) == len(SIZES[name]) else None
        verdict = None if growth is None else "PASS" if growth <= MOST_GROWTH else "FAIL"
        table.add(name, f"{size:,}", f"{units:,} {UNITS[name]}", seconds, round(megabytes), growth, verdict)
    return costs


def measure_growth(costs: list[Cost]) -> float | None:
    """Return what a further unit costs between the last two sizes over what it costs between the first two."""
    first, middle, last = costs
    if middle.seconds - first.seconds < SHORTEST:
        return None  # the start of the command is all that was measured
    before = (middle.seconds - first.seconds) / (middle.size - first.size)
    return (last.seconds - middle.seconds) / (last.size - middle.size) / before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", default=list(WORK), choices=list(WORK))
    parser.add_argument("--plot", type=Path, default=Path("growth.png"))
    options = parser.parse_args()
    columns = ("command", "size", "work", "CPU seconds", "peak MB", "cost of a further one, last / first", "verdict")
    table, found = ResultTable("growth of time and memory, one thread", columns), dict[str, list[Cost]]()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder) / "sample")
        for name in options.only:
            with one_line(name, failures):
                found[name] = measure(name, Path(folder), options.scale, table)
    charts = [
        Chart([Curve(name, [(c.size, getattr(c, key)) for c in costs])], UNITS[name], label, from_zero=True)
        for name, costs in found.items()
        for key, label in (("seconds", "CPU seconds"), ("megabytes", "peak MB"))
    ]
    if charts:
        save_figures(options.plot, charts, title="Growth of time and memory")
        say(f"plot: {options.plot}")
    return int(bool(failures) or any(row[-1] == "FAIL" for row in table.rows))


if __name__ == "__main__":
    sys.exit(main())
