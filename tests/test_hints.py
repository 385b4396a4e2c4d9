"""Hints of the command line: a mistyped name or a missing folder gets the right one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("tasks nre", "'ner'"),
        ("tasks yant", "'ynat'"),
        ("train ner -m mini --data sample --set save_every=3", "train.evals_per_epoch"),
        ("train ner -m mini --data sample --set epoch=3", "train.epochs"),
        ("pretrain --text x --set save_every=3", "save.every_steps"),
        ("probe runs/nothing", "did you mean runs/nothings?"),
        ("coref runs/nothing --text x", "did you mean runs/nothings?"),
        ("probe runs/else", "runs has nothings"),
        ("train ynat -m mini --data sample --max-length 2000", "512"),
        ("train ynat -m mini --data sample --set train.max_length=513", "512"),
    ],
)
def test_a_wrong_name_gets_the_right_hint(command: str, hint: str, invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "runs" / "nothings").mkdir(parents=True)
    (tmp_path / "runs" / ".locks").mkdir()
    ended = invoke(*command.split())
    assert ended.code == 2
    assert hint in ended.complaint
    assert len(ended.complaint) < 200
    assert not list(tmp_path.glob("runs/ynat*"))


def test_a_run_is_not_looked_for_on_the_hub(invoke: Run) -> None:
    ended = invoke("probe", "runs/nothing")
    assert ended.code == 2
    assert "no folder runs" in ended.complaint


def test_a_length_in_a_sweep_is_refused_before_it_starts(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('task = "ynat"\nmodel = "mini"\n[grid]\nmax_length = [128, 2000]\n')
    ended = invoke("sweep", "s.toml", "--data", "sample", "--dry-run")
    assert ended.code == 2
    assert "2000" in ended.complaint


def test_a_folder_without_runs_is_named(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    listed = invoke("runs", "empty")
    assert "no runs in empty" in listed.err
    assert listed.out.strip() == ""
    assert invoke("runs", "empty", "--json").json == []


def test_warnings_of_libraries_are_not_printed() -> None:
    """Also with filters that a library sets; -W shows them."""
    code = (
        "import logging, warnings, danseo.cli as c\n"
        "def command():\n"
        "    warnings.filterwarnings('always')\n"
        "    warnings.warn('old name', FutureWarning)\n"
        "    logging.getLogger('torch.x').warning('slow')\n"
        "    logging.getLogger('another').warning('slow')\n"
        "c.cli.main = lambda *a, **k: command()\n"
        "c.main([])\n"
    )
    for options, is_shown in (([], False), (["-W", "default"], True)):
        command = [sys.executable, *options, "-c", code]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert ("old name" in ended.stderr) == is_shown
        assert ended.returncode == 0
        assert is_shown or ended.stderr == ""
