"""Estimates of run times, and the progress display of a sweep."""

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.files import write_atomically
from danseo.runs.index import Record, read_record
from danseo.runs.progress_file import ProgressRecord
from danseo.runs.store import PROGRESS
from danseo.sweeps.driver import SweepProgress
from danseo.sweeps.plan import Planner, Point, RuntimeEstimator
from danseo.sweeps.queue import Entry, RunQueue


@pytest.fixture
def make_point(planner: Planner, tmp_path: Path) -> Callable[..., Point]:
    """Make points of a little encoder, or of another one in a folder of the same name."""
    for name, hidden in (("one", 32), ("two", 64)):
        folder = tmp_path / name / "model"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"hidden_size": hidden, "num_hidden_layers": 2}))
        (folder / "model.safetensors").write_bytes(name.encode())

    def make(name: str = "one", **settings: Any) -> Point:
        config = RunConfig(task="ynat", model=str(tmp_path / name / "model"))
        return planner.point(update_config(config, {"evals_per_epoch": 1, **settings}))

    return make


def finish(point: Point, training: float, total: float | None = None) -> Record:
    """Write a finished run that took some seconds."""
    scores = {"headline": "ynat/macro_f1@official-1", "selected_on": "select", "reported_on": "report", "scores": {}}
    point.run.start(point.config)
    facts = {"seconds": training, "device": "cpu", "model": {"name": "x", "sha256": point.model}}
    point.run.write_json("environment.json", facts | ({"wall_seconds": total} if total else {}))
    point.run.write_json("scores.json", scores)
    return read_record(point.run)


def test_sizes_give_a_guess(planner, make_point, tmp_path):
    estimator = RuntimeEstimator([], planner, "cpu")
    start = estimator.start(make_point())
    settings = ({}, {"epochs": 6.0}, {"max_train_samples": 10})
    one, longer, limited = (estimator.seconds(make_point(**each)) - start for each in settings)
    assert longer == pytest.approx(2 * one)
    assert one / 4 < limited < one, "a quarter of the training examples, but as many evaluations"
    assert estimator.seconds(make_point("two")) - start > 3 * one
    assert "guess" in estimator.source([make_point()])
    (tmp_path / "one" / "model" / "config.json").unlink()
    with pytest.raises(DanseoError, match="is not a checkpoint folder"):
        Planner(planner.root, planner.runs).point(make_point(seed=9).config)


def test_finished_runs_give_an_estimate(planner, make_point):
    point, longer, other = make_point(), make_point(epochs=6.0, seed=2), make_point("two")
    estimator = RuntimeEstimator([finish(point, 30.0, 50.0)], planner, "cpu")
    assert estimator.seconds(point) == pytest.approx(50)
    assert estimator.seconds(longer) == pytest.approx(80), "twice the training, and one start"
    assert not estimator.knows(other), "a folder of the same name holds another model"
    assert estimator.seconds(other) > 20
    assert estimator.source([point, other]) == "from finished runs and sizes"
    estimator = RuntimeEstimator([], planner, "cpu")
    estimator.learn(finish(point, 30.0), took=45.0)
    assert estimator.seconds(point) == pytest.approx(45)


@pytest.fixture
def make_display(planner: Planner, make_point: Callable[..., Point]) -> Callable[..., tuple[SweepProgress, Entry]]:
    """Make a display of a run that started some seconds ago, and of a queued one; 100 s are expected of each."""

    def make(started: float, training: float | None = None, total: float | None = None) -> tuple[SweepProgress, Entry]:
        records = [finish(make_point(seed=3), training, total)] if training else []
        points = {point.name: point for point in (make_point(seed=1), make_point(seed=2))}
        queue = RunQueue()
        for name in points:
            queue.add(name, 100)
        entry = queue.take(time.time() - started, lambda name: "free")
        assert entry
        return SweepProgress(queue, points, RuntimeEstimator(records, planner, "cpu"), quiet=True), entry

    return make


def write_progress(display: SweepProgress, entry: Entry, step: int, seconds: float, ago: float = 0.0) -> None:
    record = ProgressRecord(step, 100, seconds, time.time() - ago)
    write_atomically(display.points[entry.name].run.path / PROGRESS, json.dumps(asdict(record)))


def test_the_steps_of_a_run_show_what_is_left(make_display):
    """Twenty steps in 10 s leave 40 s; of the 20 s besides training, 15 are over."""
    display, entry = make_display(25, 80.0, 100.0)
    assert display.seconds_left_of(entry) == pytest.approx(75, abs=2), "before the first step it is the estimate"
    write_progress(display, entry, 20, 10.0)
    assert display.seconds_left_of(entry) == pytest.approx(45, abs=2)
    assert display.left() == pytest.approx(145, abs=2)
    assert "guess" not in display.eta()
    (display.points[entry.name].run.path / PROGRESS).write_text('{"step": 3')
    assert display.seconds_left_of(entry) == pytest.approx(75, abs=2), "a partial file is ignored"


def test_running_runs_correct_a_guess(make_display):
    display, entry = make_display(60)
    assert "(a guess)" in display.eta()
    write_progress(display, entry, 10, 50.0)
    assert display.seconds_left_of(entry) == pytest.approx(450, abs=2)
    assert display.left() == pytest.approx(450 + 510, abs=10), "the next run is expected to take as long"
    assert "(a guess)" not in display.eta()


def test_without_a_terminal_there_is_a_line_now_and_then(make_display, capsys, monkeypatch):
    display, entry = make_display(5)
    display.quiet = False
    write_progress(display, entry, 40, 4.0)
    display.refresh(lambda name: "cpu")
    assert capsys.readouterr().err == ""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    for _ in range(2):
        display.refresh(lambda name: "cpu")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("1 running, 1 queued; ETA")
    assert line.endswith(f"{entry.name} 40 %")


def test_a_terminal_gets_a_live_table(little, tmp_path):
    (tmp_path / "grid.toml").write_text('task = "ynat"\nmodel = "majority"\n[grid]\nseed = [1]\n')
    ours, theirs = pty.openpty()
    drawn: list[bytes] = []

    def read():
        try:
            while part := os.read(ours, 4096):
                drawn.append(part)
        except OSError:
            pass  # the other side is closed

    reader = threading.Thread(target=read)
    reader.start()
    command = [sys.executable, "-m", "danseo", "sweep", "grid.toml", "--data", str(little)]
    environment = {**os.environ, "TERM": "xterm"}
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, timeout=60, env=environment, cwd=tmp_path, text=True
    )
    os.close(theirs)
    reader.join(5)
    os.close(ours)
    screen = b"".join(drawn).decode()
    assert ended.returncode == 0
    assert "running" in screen
    assert "ETA" in screen
    assert "started" not in screen, "no lines besides the table"
    assert "status done" in ended.stdout
