"""Fixtures of the tests of sweeps: a little data, and workers that pretend to train."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.runs.lock import RunLocks
from danseo.sweeps.driver import Driver, PointList, SweepLog
from danseo.sweeps.local_executor import LocalExecutor
from danseo.sweeps.plan import Planner, Point, RuntimeEstimator
from danseo.tasks import TASKS

FAKE = '''
"""Pretends to train: sleeps for as many tenths of a second as epochs; what else it does depends on the seed."""
import os, signal, sys, time
from pathlib import Path
from danseo.sweeps import worker

def pretend(order, run):
    seed, tries = order.settings["seed"], Path(order.runs) / f"tries-{order.name}"
    with tries.open("a") as file:
        file.write(f"{os.getpid()} {time.time()}\\n")
    count = len(tries.read_text().splitlines())
    time.sleep(order.settings["train.epochs"] / 10)
    if 100 <= seed < 200 and count <= seed - 100:  # fails that many times
        raise SystemExit("no luck today")
    if seed == 200:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 201:
        print("about to break", flush=True)
        os.abort()
    if seed == 202:
        run.path.mkdir()
        run.fail("the reason")
        return "failed", "the reason"
    run.write_json("scores.json", {})
    return "done", ""

worker._run = pretend
worker.main()
'''


@pytest.fixture(scope="session")
def little(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty headlines and as many sentences with entities."""
    folder = tmp_path_factory.mktemp("little")
    for name in ("ynat", "ner"):
        task = TASKS[name]
        (folder / task.folder).mkdir()
        for split in ("train", "dev"):
            text = (sample / task.folder / task.file(split)).read_text("utf-8")
            short = (
                json.dumps(json.loads(text)[:40], ensure_ascii=False)
                if name == "ynat"
                else "\n\n".join(text.strip().split("\n\n")[:40]) + "\n\n"
            )
            (folder / task.folder / task.file(split)).write_text(short, "utf-8")
    return folder


@pytest.fixture
def planner(little: Path, tmp_path: Path) -> Planner:
    return Planner(little, tmp_path / "runs")


@pytest.fixture
def points(planner: Planner) -> Callable[..., list[Point]]:
    """Points of the majority model; the seed decides how a pretending worker ends."""

    def make(*seeds: int, epochs: float = 1) -> list[Point]:
        base = RunConfig(task="ynat", model="majority")
        return [planner.point(update_config(base, {"seed": seed, "epochs": epochs})) for seed in seeds]

    return make


@pytest.fixture
def driver(planner: Planner, tmp_path: Path) -> Callable[..., Driver]:
    """A driver of points with pretending workers."""

    def make(points: list[Point], slots: int = 2, **options) -> Driver:
        (tmp_path / "fake.py").write_text(FAKE)
        executor = LocalExecutor(["cpu"] * slots, [sys.executable, str(tmp_path / "fake.py")])
        log = SweepLog(planner.runs / "test.sweep.jsonl")
        clock = RuntimeEstimator([], planner, "cpu")
        options = {"quiet": True, **options}
        return Driver(PointList(points), executor, RunLocks(planner.runs), clock, log, root=planner.root, **options)

    return make


def count_tries(point: Point) -> int:
    """Return how often a pretending worker started the run."""
    path = point.run.path.parent / f"tries-{point.name}"
    return len(path.read_text().splitlines()) if path.exists() else 0


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition: Callable[[], Any], seconds: float = 300) -> Any:
    """Wait until a condition holds, and return its value."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, "timeout"
        time.sleep(0.01)
    return value
