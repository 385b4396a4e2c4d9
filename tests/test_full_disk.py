"""A disk that takes nothing more ends every command that writes with one line and exit code 1."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.files import is_disk_failure, write_atomically
from danseo.models.registry import configure_run

VARIABLES = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
SWEEP = 'task = "ynat"\nmodel = "majority"\n[grid]\nseed = [1, 2]\n'
COMMANDS = {
    "report": ["report", "{linear}", "--data", "{sample}"],
    "bundle": ["export", "{linear}", "--to", "bundle", "--out", "b.zip"],
    "card": ["export", "{linear}", "--to", "card", "--out", "card"],
    "sample": ["data", "sample", "folder"],
    "describe": ["data", "describe", "{given}/own.csv", "--out", "own.toml"],
    "stats": ["data", "stats", "ynat", "--data", "{sample}", "--plot", "plot.png"],
    "train": ["train", "ynat", "-m", "linear", "--data", "{sample}"],
    "ensemble": ["ensemble", "{linear}", "{majority}", "--data", "{sample}"],
    "sweep": ["sweep", "{given}/grid.toml", "--data", "{sample}"],
    "mine": ["mine", "ynat", "-m", "majority", "--data", "{sample}"],
    "predict": ["predict", "{linear}", "{given}/texts.jsonl", "-o", "answers.jsonl"],
    "configs": ["configs", "--out", "configs"],
    "demo": ["demo", "ynat", "--folder", "demo"],
}


@pytest.fixture(scope="module")
def places(tmp_path_factory, sample) -> dict[str, str]:
    """What the commands read."""
    given, runs = tmp_path_factory.mktemp("given"), tmp_path_factory.mktemp("runs")
    (given / "grid.toml").write_text(SWEEP)
    (given / "own.csv").write_text("text,label\n" + "".join(f"글 {k} 좋다,good\n글 {k} 싫다,bad\n" for k in range(50)))
    (given / "texts.jsonl").write_text('{"text": "오늘 비가 온다"}\n' * 2000)
    made = {
        name: str(run_experiment(configure_run("ynat", name, "default", {}), sample, runs, quiet=True).path)
        for name in ("linear", "majority")
    }
    return {"given": str(given), "sample": str(sample), **made}


def run_command(arguments: list[str], places: dict[str, str], folder: Path, limit: int | None = None):
    """Run a command in a folder, with a limit on the bytes of every file that it writes."""
    command = [sys.executable, "-m", "danseo", *(argument.format(**places) for argument in arguments)]
    limits = None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **VARIABLES},
        timeout=120,
        preexec_fn=limits,
        check=False,
    )


def assert_failed(code: int, errors: str) -> None:
    complaints = [line for line in errors.splitlines() if line.startswith("danseo:")]
    assert (code, len(complaints)) == (1, 1), errors
    assert "Traceback" not in errors
    assert "free some space" in complaints[0]


DRIVER = """
import io, json, os, resource, sys
from danseo.cli import main

commands, results = json.load(sys.stdin), {}
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
out = os.dup(1)
for name, arguments in commands.items():
    os.mkdir(name)
    os.chdir(name)
    sys.stderr = io.StringIO()
    try:
        main(arguments)
    except SystemExit as end:
        results[name] = end.code, sys.stderr.getvalue()
    os.chdir("..")
os.write(out, json.dumps(results).encode())
"""


def test_commands_that_cannot_write_end_with_exit_code_1(places, tmp_path):
    commands = {name: [word.format(**places) for word in words] for name, words in COMMANDS.items()}
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        env={**os.environ, **VARIABLES},
        cwd=tmp_path,
        timeout=300,
    )
    results = json.loads(ended.stdout.splitlines()[-1])
    assert results.keys() == COMMANDS.keys()
    for code, errors in results.values():
        assert_failed(code, errors)
    assert not [path for path in tmp_path.rglob("*.part") if path.is_file()]


@pytest.mark.lengthy
def test_the_work_is_done_once_there_is_space(places, tmp_path):
    for limit, code in ((0, 1), (None, 0)):
        assert run_command(COMMANDS["sweep"], places, tmp_path, limit).returncode == code
    assert len(list((tmp_path / "runs").glob("*/scores.json"))) == 2


def test_a_really_full_disk(places, tmp_path):
    """A disk of some kilobytes, where this machine lets us make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    can_mount = shutil.which("mount") and os.geteuid() == 0
    if not can_mount or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", disk], check=False).returncode:
        pytest.skip("only root may make a small disk")
    try:
        for name in ("report", "sample"):
            ended = run_command(COMMANDS[name], places, disk)
            assert_failed(ended.returncode, ended.stderr)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, 1), (errno.EDQUOT, 1), (errno.EIO, 1), (errno.EACCES, 2)])
def test_only_the_disk_is_a_failure_of_the_work(code, kind, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(DanseoError) as caught:
        write_atomically(tmp_path / "file", "text")
    assert caught.value.exit_code == kind
    assert is_disk_failure(caught.value) == (kind == 1)
