"""A training is sent to a tracker while it runs; a tracker that fails or hangs costs one line."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.errors import DanseoError
from danseo.export import live_tracker
from danseo.export.live_tracker import LiveTracker, SweepTracker
from danseo.export.registry import FORMATS
from danseo.extras import is_installed
from danseo.runs.store import Run

STUB = """
import json, os, time
from pathlib import Path

def write(kind, content):
    with open(os.environ["STUB_FILE"], "a") as file:
        file.write(json.dumps([kind, content]) + chr(10))

class Settings:
    def __init__(self, **options): pass

class Artifact:
    def __init__(self, name, type): self.names = []
    def add_file(self, path, name): self.names.append(name)

class Part:
    def __init__(self, kind): self.kind = kind
    def update(self, content, **options): write(self.kind, content)

class Run:
    config, summary = Part("config"), Part("summary")
    def log(self, content, step): write("curve", [step, content])
    def log_artifact(self, artifact): write("files", artifact.names)
    def finish(self): write("finish", None)

def init(id, name, config, dir, mode, **options):
    if os.environ.get("STUB_DOES") == "fail":
        raise RuntimeError("the stub rejects everything")
    while os.environ.get("STUB_DOES") == "hang":
        time.sleep(1)
    (Path(dir) / "wandb" / f"offline-run-1-{id}").mkdir(parents=True)
    write("start", [name, config["model"], mode])
    return Run()
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list]:
    """A package named wandb that writes what it gets to a file."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "wandb.py").write_text(STUB)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.setenv("STUB_FILE", str(tmp_path / "stub.jsonl"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.chdir(tmp_path)

    def read() -> list:
        path = tmp_path / "stub.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    return read


@pytest.fixture
def unfinished(run: Path, tmp_path: Path) -> Run:
    """A run that is being trained."""
    shutil.copytree(run, tmp_path / "runs" / run.name)
    (tmp_path / "runs" / run.name / "scores.json").unlink()
    return Run(tmp_path / "runs" / run.name)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_curves_are_sent_during_the_training_and_scores_at_its_end(run: Path, unfinished: Run, stub):
    with LiveTracker("wandb", unfinished.path.parent, quiet=True) as tracker:
        tracker.start(unfinished)
        for step in (1, 2):
            unfinished.log({"step": step, "loss": 1 / step, "note": "x"})
            wait_for(lambda step=step: ["curve", [step, {"train/loss": 1 / step}]] in stub())
        tracker.check(2, None)
        shutil.copy(run / "scores.json", unfinished.path)
        tracker.finish(unfinished)
    kinds = [kind for kind, _ in stub()]
    assert kinds == ["start", "curve", "curve", "config", "summary", "files", "finish"]
    assert stub()[0][1] == [run.name, "linear", "offline"]
    assert "report/ynat/macro_f1@official-1" in stub()[4][1]
    assert {"config.toml", "scores.json", "log.jsonl"} <= set(stub()[5][1])


def test_a_tracker_that_fails_is_one_line(unfinished: Run, stub, monkeypatch, capfd):
    monkeypatch.setenv("STUB_DOES", "fail")
    with LiveTracker("wandb", unfinished.path.parent) as tracker:
        tracker.start(unfinished)
        wait_for(lambda: tracker.process.poll() is not None)
        tracker.check(1, None)
        tracker.check(2, None)
        tracker.finish(unfinished)
    warnings = [line for line in capfd.readouterr().err.splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert "the stub rejects everything" in warnings[0]
    assert f"danseo export {unfinished.path} --to wandb" in warnings[0]


def test_a_tracker_that_hangs_is_stopped_at_the_end(unfinished: Run, stub, monkeypatch, capfd):
    monkeypatch.setenv("STUB_DOES", "hang")
    monkeypatch.setattr(live_tracker, "_FINISH_SECONDS", 0.2)
    with LiveTracker("wandb", unfinished.path.parent, quiet=True) as tracker:
        tracker.start(unfinished)
        process = tracker.process
        tracker.finish(unfinished)
    assert process.poll() is not None
    assert capfd.readouterr().err.count("WARNING: wandb failed: no answer") == 1


def test_an_interrupted_training_stops_its_tracker(unfinished: Run, stub):
    with LiveTracker("wandb", unfinished.path.parent, quiet=True) as tracker:  # left without finish()
        tracker.start(unfinished)
        process = tracker.process
    assert process.poll() is not None
    assert "finish" not in [kind for kind, _ in stub()]


@pytest.mark.parametrize("does", ["work", "fail"])
def test_the_command_trains_whatever_the_tracker_does(sample: Path, stub, monkeypatch, does):
    monkeypatch.setenv("STUB_DOES", does)
    command = ["train", "ynat", "-m", "majority", "--data", str(sample), "--track", "wandb"]
    for times in (1, 2):  # the second time the run is finished, and sent unless it is there
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        assert result.stderr.count("WARNING: wandb failed") == (does == "fail")
        assert [kind for kind, _ in stub()].count("finish") == (does == "work"), times


@pytest.mark.parametrize("does", ["work", "fail"])
def test_a_sweep_sends_each_of_its_runs_once(sample: Path, stub, monkeypatch, does):
    monkeypatch.setenv("STUB_DOES", does)
    Path("two.toml").write_text('task = "ynat"\nmodel = "majority"\n[grid]\nseed = [1, 2]\n')
    command = ["sweep", "two.toml", "--data", str(sample), "--track", "wandb", "--slots", "1"]
    for times in (1, 2):  # the second time nothing is left to run
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        assert result.stderr.count("WARNING: wandb failed") == (does == "fail" and times == 1)
        sent = [content[0] for kind, content in stub() if kind == "start"]
        assert len(set(sent)) == len(sent) == (2 if does == "work" else 0)
        assert [kind for kind, _ in stub()].count("finish") == len(sent)


def test_a_run_of_a_sweep_is_followed_while_it_runs(run: Path, unfinished: Run, stub):
    with SweepTracker("wandb", unfinished.path.parent, quiet=True) as tracker:
        tracker.update(unfinished, "running")
        unfinished.log({"step": 1, "loss": 0.5})
        wait_for(lambda: ["curve", [1, {"train/loss": 0.5}]] in stub())
        process = tracker.trackers[unfinished].process
        tracker.update(unfinished, "failed")
    assert process.poll() is not None
    assert "finish" not in [kind for kind, _ in stub()]


def test_a_tracker_among_the_runs_is_refused(sample: Path, stub):
    result = CliRunner().invoke(
        cli, ["train", "ynat", "-m", "majority", "--data", str(sample), "--runs", ".", "--track", "wandb"]
    )
    assert isinstance(result.exception, DanseoError)
    assert "name another --runs" in str(result.exception)


@pytest.mark.parametrize("name", ["mlflow", "trackio", "wandb"])
def test_real_trackers_follow_a_training(name: str, run: Path, unfinished: Run, tmp_path: Path, monkeypatch, capfd):
    if not all(map(is_installed, FORMATS[name].packages)):
        pytest.skip(f"{name} is not installed; make test-trackers installs it")
    monkeypatch.chdir(tmp_path)
    for variable in ("MLFLOW_TRACKING_URI", "WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    with LiveTracker(name, unfinished.path.parent, quiet=True) as tracker:
        tracker.start(unfinished)
        unfinished.log({"step": 1, "loss": 2.0})
        files = {
            "mlflow": "mlflow-runs/mlflow.db",
            "trackio": "trackio-runs/danseo.db",
            "wandb": "wandb-runs/wandb/offline-run-*",
        }
        wait_for(lambda: any(tmp_path.glob(files[name])))  # before the end of the training
        shutil.copy(run / "scores.json", unfinished.path)
        tracker.finish(unfinished)
    assert "WARNING" not in capfd.readouterr().err
    with pytest.raises(DanseoError, match="among the runs"):
        LiveTracker(name, tmp_path)
