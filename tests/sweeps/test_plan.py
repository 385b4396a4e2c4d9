"""What a sweep expects: directories, states, and seconds learned from finished runs."""

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

from danseo.config import RunConfig
from danseo.display.progress import clock_time
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.files import write_atomically
from danseo.runs.directory import STANDING
from danseo.runs.index import Record, read_record
from danseo.runs.standing import Standing
from danseo.settings.values import with_settings
from danseo.sweeps.board import Board
from danseo.sweeps.clock import Clock, measured
from danseo.sweeps.plan import Planner, Point, state_of
from danseo.sweeps.schedule import Entry, Schedule


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
    assert planner._size(RunConfig(task="ner", model=str(tmp_path / "large"))) > 3 * 12 * 12 * 768**2
    base = with_settings(RunConfig(task="ner", model=str(tmp_path / "base")), {"epochs": 2})
    clock = Clock([], planner, "cpu")
    one, longer, larger, limited = (
        clock.seconds(planner.point(with_settings(base, settings)))
        for settings in ({}, {"epochs": 4}, {"model": str(tmp_path / "large")}, {"limit": 10})
    )
    assert one > clock.start(planner.point(base)) > 1, "starting takes its time, however little there is to do"
    fitting = [seconds - clock.start(planner.point(base)) for seconds in (one, longer, larger, limited)]
    assert fitting[1] == pytest.approx(2 * fitting[0])
    assert fitting[2] > 3 * fitting[0]
    assert fitting[0] / 4 < fitting[3] < fitting[0], "a quarter to learn, and as much to evaluate"
    (tmp_path / "base" / "config.json").unlink()
    with pytest.raises(DanseoError, match="is not a checkpoint folder"):
        planner._size(base)


@pytest.fixture
def trained(planner: Planner, tmp_path: Path) -> Callable[..., Point]:
    """Points of a little encoder, and of another one in a folder of the same name."""
    for name, hidden in (("one", 32), ("two", 64)):
        folder = tmp_path / name / "model"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"hidden_size": hidden, "num_hidden_layers": 2}))
        (folder / "model.safetensors").write_bytes(name.encode())

    def point(name: str = "one", **settings: Any) -> Point:
        config = RunConfig(task="ynat", model=str(tmp_path / name / "model"))
        return planner.point(with_settings(config, {"evaluations": 1, **settings}))

    return point


def ended(point: Point, fitting: float, whole: float | None = None, **facts: Any) -> Record:
    """A finished run of a point that took so long."""
    scores = {"headline": "ynat/macro_f1@official-1", "selected_on": "select", "reported_on": "report", "scores": {}}
    point.run.start(point.config)
    noted = {"seconds": fitting, "device": "cpu", "model": {"name": "x", "sha256": point.model}, **facts}
    point.run.write_json("environment.json", noted | ({"wall_seconds": whole} if whole else {}))
    point.run.write_json("scores.json", scores)
    return read_record(point.run)


def test_finished_runs_teach_the_clock_their_pace_and_their_start(planner, trained):
    point, longer, other = trained(), trained(epochs=6.0, seed=2), trained("two")
    clock = Clock([ended(point, 30.0, 50.0)], planner, "cpu")
    assert clock.seconds(point) == pytest.approx(50)
    assert clock.seconds(longer) == pytest.approx(80), "twice the fitting, and one start"
    assert clock.source([point]) == "from finished runs of the same task and model"
    assert not clock.knows(other), "a folder of the same name holds another model"
    assert clock.seconds(other) > 20, "what is known of its sizes and of starting helps all the same"
    assert clock.source([point, other]) == "from finished runs and sizes"
    assert "guess" in Clock([], planner, "cpu").source([point])


def test_a_clock_learns_while_a_sweep_goes_on(planner, trained):
    point = trained()
    clock = Clock([], planner, "cpu")
    assert not clock.knows(point)
    clock.learn(ended(point, 30.0), took=45.0)
    assert clock.seconds(point) == pytest.approx(45)


def test_journals_tell_how_long_runs_took(tmp_path):
    events = [
        {"time": 10.0, "run": "a", "state": "running"},
        {"time": 15.0, "run": "b", "state": "running"},
        {"time": 40.0, "run": "a", "state": "done", "ending": "done"},
        {"time": 99.0, "run": "b", "state": "done", "ending": "found"},
    ]
    (tmp_path / "x.sweep.jsonl").write_text("\n".join(map(json.dumps, events)) + '\n{"time": 1')
    assert measured(tmp_path) == {"a": 30.0}


@pytest.fixture
def board(planner: Planner, trained: Callable[..., Point]) -> Callable[..., tuple[Board, Entry]]:
    """A board with a run that was started some seconds ago and another one that waits; 100 s are expected of each."""

    def make(clock: Clock, started: float) -> tuple[Board, Entry]:
        points = {point.name: point for point in (trained(seed=1), trained(seed=2))}
        schedule = Schedule()
        for name in points:
            schedule.add(name, 100)
        entry = schedule.take(time.time() - started, lambda name: "free")
        assert entry
        return Board(schedule, points, clock, quiet=True), entry

    return make


def stands(board: Board, entry: Entry, step: int, seconds: float, ago: float = 0.0) -> None:
    """The run's worker has noted how far it is."""
    standing = Standing(step, 100, seconds, time.time() - ago)
    write_atomically(board.points[entry.name].run.path / STANDING, json.dumps(asdict(standing)))


def test_what_is_left_of_a_run_goes_by_its_steps(planner, trained, board):
    """Twenty steps in 10 s leave 40 s; of the 20 s beside the fitting, 15 are gone, so that 5 come after it."""
    clock = Clock([ended(trained(seed=3), 80.0, 100.0)], planner, "cpu")
    shown, entry = board(clock, started=25)
    assert shown.left_of(entry) == pytest.approx(75, abs=2), "before the first step it is what was expected"
    stands(shown, entry, 20, 10.0)
    assert shown.left_of(entry) == pytest.approx(45, abs=2)
    assert shown.left() == pytest.approx(145, abs=2)
    assert "guess" not in shown.eta()
    stands(shown, entry, 20, 10.0, ago=4.0)
    assert shown.left_of(entry) == pytest.approx(45, abs=2), "four seconds less, and four less were used to start"
    (shown.points[entry.name].run.path / STANDING).write_text('{"step": 3')
    assert shown.left_of(entry) == pytest.approx(75, abs=2), "half a file says nothing"


def test_between_two_notes_time_goes_on(planner, trained, board):
    clock = Clock([ended(trained(seed=3), 80.0, 80.1)], planner, "cpu")
    shown, entry = board(clock, started=30)
    stands(shown, entry, 20, 20.0, ago=10.0)
    assert shown.left_of(entry) == pytest.approx(70, abs=2), "80 s were left ten seconds ago"


def test_a_run_that_goes_on_has_less_left(planner, trained, board):
    clock = Clock([ended(trained(seed=3), 80.0, 100.0)], planner, "cpu")
    shown, entry = board(clock, started=10)
    stands(shown, entry, 50, 40.0, ago=500.0)  # by a worker that was killed
    assert shown.left_of(entry) == pytest.approx(50, abs=2), "40 s of fitting and 20 s of starting, 10 of them gone"


def test_a_guess_is_corrected_by_what_runs_show_and_says_what_it_is(planner, board):
    shown, entry = board(Clock([], planner, "cpu"), started=60)
    assert "(a guess)" in shown.eta()
    stands(shown, entry, 10, 50.0)
    left = shown.left_of(entry)
    assert left == pytest.approx(450, abs=2)
    assert shown.left() == pytest.approx(450 + 510, abs=10), "the next one is expected to take as long as this one"
    assert "(a guess)" not in shown.eta()


def test_without_a_terminal_a_line_tells_now_and_then(planner, trained, board, capsys, monkeypatch):
    shown, entry = board(Clock([], planner, "cpu"), started=5)
    shown.quiet = False
    stands(shown, entry, 40, 4.0)
    shown.refresh(lambda name: "cpu")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(shown, "_shown", time.monotonic() - 61)
    shown.refresh(lambda name: "cpu")
    shown.refresh(lambda name: "cpu")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("1 running, 1 queued; ETA")
    assert line.endswith(f"{entry.name} 40 %")


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
