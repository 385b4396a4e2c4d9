"""Shared fixtures: the bundled sample, the real data if it is there, and two ways to run commands."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from danseo.data.find import write_sample

# Some virtual machines announce matrix units whose use kills the process; tests of bfloat16 do without them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Several processes on few cores wait for each other politely.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Each worker of pytest, and each command that it starts, has one core of its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Background jobs of a shell ignore Ctrl-C and so do their children; the commands under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
REAL_DATA = ROOT.parent / "shared" / "data" / "klue"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module of lengthy tests for `make test`; some of them load spaCy, GLiNER or Ray."""
    if config.option.markexpr != "not lengthy" or collection_path.suffix != ".py":
        return None
    is_lengthy = "\npytestmark = pytest.mark.lengthy\n" in collection_path.read_text("utf-8")
    return is_lengthy or (collection_path.parent.name == "systems" and collection_path.name != "conftest.py") or None


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the measurements and files of tests out of the user's cache, and their texts in English."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DANSEO_LANG", "en")
        patch.setenv("DANSEO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder)
    return folder


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not REAL_DATA.is_dir():
        pytest.skip("the real KLUE files are not in ../shared/data/klue")
    return REAL_DATA


class Result:
    """The output and exit code of a command."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line of an error; lines that report progress on a slow machine do not count."""
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.strip().splitlines() if not line.endswith(" so far")]
        assert len(lines) == 1, self.err
        return lines[0]


@pytest.fixture
def danseo(tmp_path: Path) -> Callable[..., Result]:
    """Run a command in a new process, in tmp_path and with a new cache."""

    def run(*arguments: object, **environment: str) -> Result:
        command = [sys.executable, "-m", "danseo", *map(str, arguments)]
        variables = {**os.environ, "DANSEO_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", **environment}
        variables.pop("DANSEO_DATA", None)
        return Result(subprocess.run(command, capture_output=True, text=True, env=variables, timeout=600, cwd=tmp_path))

    return run


@pytest.fixture
def invoke(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
    """Run a command in this process, in tmp_path and with a new cache; quicker than danseo."""
    from danseo.cli import main

    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("DANSEO_DATA", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended, mock.patch.dict(os.environ):  # options set variables
            main([str(argument) for argument in arguments])
        return Result(subprocess.CompletedProcess([], int(ended.value.code or 0), *capsys.readouterr()))

    return run
