"""What a sweep expects: directories, states, and seconds learned from finished runs."""

import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from danseo.config import RunConfig, with_settings
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.runs.index import find_runs
from danseo.sweeps.board import Board, clock_time
from danseo.sweeps.plan import Clock, parameters_of, state_of
from danseo.sweeps.schedule import Schedule


def test_a_point_is_the_directory_that_train_would_make(planner, points):
    (point,) = points(5)
    assert state_of(point) == "new"
    run = run_experiment(point.config, planner.root, planner.runs, quiet=True)
    assert run.path == point.run.path
    assert state_of(point) == "done"


def test_a_file_in_the_way_is_refused(planner, points):
    (point,) = points(5)
    planner.runs.mkdir()
    point.run.path.write_text("")
    with pytest.raises(DanseoError, match="is a file where a run directory is due"):
        points(5)


def test_larger_and_longer_is_expected_to_take_longer(planner, tmp_path):
    for name, hidden in (("base", 768), ("large", 1024)):
        (tmp_path / name).mkdir()
        facts = {"hidden_size": hidden, "num_hidden_layers": 12 if name == "base" else 24}
        (tmp_path / name / "config.json").write_text(json.dumps(facts))
        (tmp_path / name / "model.safetensors").touch()
    assert parameters_of(str(tmp_path / "large")) > 3 * parameters_of(str(tmp_path / "base"))
    base = with_settings(RunConfig(task="ner", model=str(tmp_path / "base")), {"epochs": 2})
    clock = Clock([], planner, "cpu")
    one, longer, larger, limited = (
        clock.seconds(planner.point(with_settings(base, settings)))
        for settings in ({}, {"epochs": 4}, {"model": str(tmp_path / "large")}, {"limit": 10})
    )
    assert longer == pytest.approx(2 * one)
    assert larger > 3 * one
    assert limited == pytest.approx(one / 4)
    (tmp_path / "base" / "config.json").unlink()
    with pytest.raises(DanseoError, match="is not a checkpoint folder"):
        parameters_of(str(tmp_path / "base"))


def test_finished_runs_teach_the_clock(planner, points):
    (point,) = points(1)
    run = run_experiment(point.config, planner.root, planner.runs, quiet=True)
    facts = run.read_json("environment.json")
    run.write_json("environment.json", {**facts, "seconds": 30.0})
    clock = Clock(find_runs(planner.runs), planner, "cpu")
    (twice,) = points(2, epochs=2)
    assert clock.seconds(point) == pytest.approx(30)
    assert clock.seconds(twice) == pytest.approx(60)
    assert clock.source([point]) == "from finished runs of the same task and model"
    assert "guess" in Clock([], planner, "cpu").source([point])


def test_what_is_left_follows_the_log_and_the_pace(points):
    running, queued = points(1, 2, epochs=4)
    schedule = Schedule()
    schedule.add(running.name, 100)
    schedule.add(queued.name, 50)
    board = Board(schedule, {point.name: point for point in (running, queued)}, quiet=True)
    entry = schedule.take(board.started - 10, lambda name: "free")
    assert board.left_of(entry) == pytest.approx(90, abs=2)
    running.run.start(running.config)
    running.run.log({"step": 5, "epoch": 1.0, "score": 1.0})
    assert board.share(entry) == 0.25
    assert board.left_of(entry) == pytest.approx(30, abs=4)
    assert board.left() == pytest.approx(80, abs=4)
    with (running.run.path / "log.jsonl").open("a") as file:
        file.write('{"step": 9, "ep')
    assert board.share(entry) == 0.25, "a line that is being written does not count"


def test_what_is_left_of_a_run_that_goes_on_or_starts_anew(points):
    (point,) = points(1, epochs=4)
    schedule = Schedule()
    schedule.add(point.name, 100)
    board = Board(schedule, {point.name: point}, quiet=True)
    point.run.start(point.config)
    point.run.log({"step": 10, "epoch": 2.0, "score": 1.0})  # by a worker that was killed
    entry = schedule.take(board.started - 10, lambda name: "free")
    board.event(entry, "started")
    assert board.left_of(entry) == pytest.approx(40, abs=2), "half of it is done already"
    point.run.log({"step": 15, "epoch": 3.0, "score": 1.0})
    assert board.left_of(entry) == pytest.approx(10, abs=2), "a quarter in ten seconds, and a quarter left"
    (point.run.path / "log.jsonl").unlink()
    point.run.log({"step": 5, "epoch": 1.0, "score": 1.0})
    board.left_of(entry)
    point.run.log({"step": 10, "epoch": 2.0, "score": 1.0})
    assert 0 < board.left_of(entry) < 60


@pytest.mark.parametrize(("seconds", "shown"), [(3, "3 s"), (125, "2 min 05 s"), (7260, "2 h 01 min")])
def test_clock_time(seconds, shown):
    assert clock_time(seconds) == shown


def test_a_terminal_gets_a_live_table(little, tmp_path):
    """On a terminal the board is drawn; what is left in the end is the table of runs on standard output."""
    path = tmp_path / "grid.toml"
    path.write_text('task = "ynat"\nmodel = "majority"\n[grid]\nseed = [1, 2]\n')
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def read():
        try:
            while part := os.read(ours, 4096):
                seen.append(part)
        except OSError:
            pass  # the other side is closed

    reader = threading.Thread(target=read)
    reader.start()
    command = [sys.executable, "-m", "danseo", "sweep", str(path), "--data", str(little), "--runs", str(tmp_path / "r")]
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, timeout=60, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    reader.join(5)
    os.close(ours)
    drawn = b"".join(seen).decode()
    assert ended.returncode == 0
    assert "running" in drawn
    assert "ETA" in drawn
    assert "started" not in drawn, "no lines besides the table"
    assert ended.stdout.decode().count("majority") == 2
    assert "status done" in ended.stdout.decode()
