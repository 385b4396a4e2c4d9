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
for command in {commands!r}:
    try:
        main(command)
    except SystemExit as ended:
        assert not ended.code, (command, ended.code)
print(*(name for name in {names!r} if name in sys.modules), file=sys.stderr)
"""


def loaded_by(names: tuple[str, ...], *commands: list[str]) -> str:
    """Which of the modules some commands load in one process."""
    script = RUN.format(commands=commands, names=names)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
    return ended.stderr.splitlines()[-1]  # after lines of progress on a slow machine


def test_help_needs_no_numbers() -> None:
    assert loaded_by((*HEAVY, *LATER_ONLY, "numpy", "rich"), ["--help"]) == ""


def test_light_commands_load_nothing_heavy(sample: Path, tmp_path: Path) -> None:
    """Resampled areas of re are sparse products, which save more seconds than scipy.sparse takes to load."""
    scores = {}
    for name in ("ner", "re"):
        task = TASKS[name]
        gold, answers = sample / task.folder / task.file("dev"), tmp_path / f"{name}.jsonl"
        write_predictions(answers, baseline("oracle", task, task.read(gold)))
        scores[name] = ["score", name, str(gold), str(answers), "--details"]
    others = [["tasks", "--json"], ["published", "ner"], ["data", "check", "--data", str(sample)]]
    assert loaded_by((*HEAVY, *LATER_ONLY), *others, scores["ner"]) == ""
    assert loaded_by((*HEAVY, *LATER_ONLY), scores["re"]) == "scipy"


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
