"""Light commands stay light: no torch and its like, and a start in a fraction of their time."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from danseo.data.prediction_file import write_predictions
from danseo.scoring.score import baseline
from danseo.tasks import TASKS

HEAVY = ("torch", "transformers", "sklearn", "scipy")
LATER_ONLY = ("matplotlib", "pyarrow", "huggingface_hub", "pydantic")  # needed by single commands
RUN = """
import sys
from danseo.cli import main
try:
    main({arguments!r})
except SystemExit as ended:
    assert not ended.code, ended.code
print(*(name for name in {names!r} if name in sys.modules), file=sys.stderr)
"""


def loaded_by(arguments: list[str], names: tuple[str, ...]) -> str:
    """Which of the modules a command loads."""
    script = RUN.format(arguments=arguments, names=names)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
    return ended.stderr.strip()


@pytest.mark.parametrize("arguments", [["tasks", "--json"], ["published", "ner"]], ids=" ".join)
def test_light_commands_load_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_by(arguments, (*HEAVY, *LATER_ONLY)) == ""


def test_help_needs_no_numbers() -> None:
    assert loaded_by(["--help"], (*HEAVY, *LATER_ONLY, "numpy", "rich")) == ""


@pytest.mark.parametrize("name", ["ner", "re"])
def test_score_loads_nothing_heavy(name: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    gold = sample / task.folder / task.file("dev")
    write_predictions(tmp_path / "p.jsonl", baseline("oracle", task, task.read(gold)))
    # resampled areas are sparse products, which save RE more seconds than scipy.sparse takes to load
    names = [heavy for heavy in (*HEAVY, *LATER_ONLY) if (name, heavy) != ("re", "scipy")]
    assert loaded_by(["score", name, str(gold), str(tmp_path / "p.jsonl"), "--details"], tuple(names)) == ""


def test_data_check_loads_nothing_heavy(sample: Path) -> None:
    assert loaded_by(["data", "check", "--data", str(sample)], (*HEAVY, *LATER_ONLY)) == ""


def test_no_light_module_imports_torch() -> None:
    """Importing any module of danseo outside training and models, and the fitting of masked models, loads no torch."""
    heavy = ("danseo.training", "danseo.models", "danseo.mlm.masked_trainer")
    script = f"""
import importlib, pkgutil, sys
import danseo
for module in pkgutil.walk_packages(danseo.__path__, "danseo."):
    if not module.name.startswith({heavy!r}) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        found = [name for name in {HEAVY[:2]!r} if name in sys.modules]
        assert not found, (module.name, found)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr[-2000:]


def _children_seconds() -> float:
    """Return the processor seconds of all child processes so far; other processes do not change them."""
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.skipif(not all(map(find_spec, ("torch", "transformers"))), reason="the train extra is not installed")
def test_the_start_takes_a_small_part_of_importing_torch() -> None:
    commands = {
        "heavy": ["-c", "import torch, transformers"],
        "help": ["-m", "danseo", "--help"],
        "tasks": ["-m", "danseo", "tasks"],
    }
    times: dict[str, float] = {}
    for name, command in commands.items():
        start = _children_seconds()
        subprocess.run([sys.executable, *command], capture_output=True, timeout=300, check=True)
        times[name] = _children_seconds() - start
    assert times["help"] <= times["heavy"] / 5, times
    assert times["tasks"] <= times["heavy"] / 4, times  # it needs numpy
