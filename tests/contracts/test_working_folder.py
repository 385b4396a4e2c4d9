"""Python files in the current folder are no packages: no process that danseo starts imports them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SOURCE = Path(__file__).parents[2] / "src" / "danseo"
NAMES = ("numpy", "torch", "json", "click", "gliner", "optuna", "transformers", "danseo")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds files with the names of packages; the file that they would leave comes out."""
    folder, trace = tmp_path / "here", tmp_path / "it-ran"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()\nraise SystemExit('{name}.py ran')\n")
    monkeypatch.chdir(folder)
    return trace


def start_danseo(*words: object) -> "subprocess.CompletedProcess[str]":
    """Start a command as the installed program does: with the folder of the program first, not the current one."""
    command = [sys.executable, "-P", "-m", "danseo", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_python_is_started_in_one_way():
    """A new place that starts Python has to take the command from launcher.py."""
    for path in SOURCE.rglob("*.py"):
        if path.name != "launcher.py":
            assert not re.search(r"sys\.executable|multiprocessing|ProcessPool", path.read_text("utf-8")), path


def test_a_sweep_does_not_import_from_the_current_folder(trap: Path, sample: Path, tmp_path: Path):
    file = tmp_path / "some.toml"
    file.write_text("task = 'ynat'\nmodel = 'majority'\n[grid]\nseed = [1]\n")
    done = start_danseo("sweep", file, "--data", sample, "--runs", tmp_path / "runs")
    assert not trap.exists(), done.stderr
    assert done.returncode == 0, done.stderr


def test_the_trial_of_bf16_does_not_import_from_the_current_folder(trap: Path):
    from danseo.training.precision import bf16_works

    bf16_works()
    assert not trap.exists()


def test_a_tracker_does_not_import_from_the_current_folder(trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from danseo.export.trackers import TrackedRun, send_to_tracker

    tracked = TrackedRun("run", "", "", "", "", "ynat", 0.0, 0.0, {}, {}, [], {}, {})

    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "tracker.py").write_text(
        "import json, click\ndef log_run(tracked):\n    return {'name': tracked.name}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(packages), prepend=os.pathsep if os.environ.get("PYTHONPATH") else None)
    assert send_to_tracker("tracker", tracked, {})["name"] == tracked.name
    assert not trap.exists()


@pytest.mark.lengthy
def test_ray_does_not_import_from_the_current_folder(trap: Path, sample: Path, tmp_path: Path):
    pytest.importorskip("ray")
    file = tmp_path / "some.toml"
    file.write_text("task = 'ynat'\nmodel = 'majority'\n[grid]\nseed = [1]\n")
    relative = os.path.relpath(tmp_path / "runs")
    done = start_danseo("sweep", file, "--data", sample, "--runs", relative, "--executor", "ray", "--slots", 1)
    assert not trap.exists(), done.stderr
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "runs").glob("*/scores.json"))
