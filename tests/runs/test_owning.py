"""danseo train owns its run: two at once never write both, leftovers of a kill go, and --force checks first."""

import json
import subprocess
import sys

import pytest

from danseo.errors import DanseoError, WorkFailed
from danseo.experiment import run_experiment
from danseo.models.registry import configure_run
from danseo.runs.lock import lock_folder


@pytest.fixture
def train_baseline(sample, tmp_path):
    """Train a baseline."""
    return lambda **options: run_experiment(
        configure_run("ynat", "majority", "default", {}), sample, tmp_path / "runs", quiet=True, **options
    )


def test_a_run_that_another_has_is_left_alone(train_baseline):
    run = train_baseline()
    scores = (run.path / "scores.json").read_bytes()
    with lock_folder(run.path), pytest.raises(WorkFailed, match="another process"):
        train_baseline(force=True, wait=False)
    assert (run.path / "scores.json").read_bytes() == scores
    assert train_baseline(force=True, wait=False).is_finished


def test_two_commands_at_once_end_alike(sample, tmp_path):
    command = [sys.executable, "-m", "danseo", "train", "ynat", "-m", "majority", "--data", sample, "--json"]
    started = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    documents = [json.loads(process.communicate(timeout=120)[0]) for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert documents[0] == documents[1]
    assert len(list((tmp_path / "runs").glob("ynat--*"))) == 1


def test_the_next_command_sweeps_out_what_a_kill_left(train_baseline):
    run = train_baseline()
    (run.path / "checkpoint").mkdir()
    (run.path / "best.safetensors").touch()
    (run.path / ".scores.json.77.part").touch()
    before = (run.path / "scores.json").stat().st_mtime_ns
    assert train_baseline().path == run.path
    assert not run.find_partial_files()
    assert (run.path / "scores.json").stat().st_mtime_ns == before, "and does nothing else"


def test_force_removes_nothing_before_all_has_proved_good(train_baseline, sample, monkeypatch):
    run = train_baseline()
    scores = (run.path / "scores.json").read_bytes()

    def refuse(*_):
        raise DanseoError("no such device")

    monkeypatch.setattr("danseo.models.baselines.make_baseline", refuse)
    with pytest.raises(DanseoError, match="no such device"):
        train_baseline(force=True)
    assert (run.path / "scores.json").read_bytes() == scores
    assert not (run.path / "error.txt").exists()
