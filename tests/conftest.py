"""What many tests share: the built-in sample, the real data where it is there, and a way to run commands."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from danseo.sample import write_sample

# Some virtual machines announce matrix units whose use kills the process; tests of bfloat16 do without them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Several processes on few cores wait for each other politely.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Background jobs of a shell ignore Ctrl-C and so do their children; the commands under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
REAL_DATA = ROOT.parent / "shared" / "data" / "klue"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured and kept in tests is no concern of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
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
    """What a command printed and how it ended."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line that a user error prints."""
        assert "Traceback" not in self.err, self.err
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


@pytest.fixture
def danseo(tmp_path: Path) -> Callable[..., Result]:
    """Run the command line in a process of its own, with a cache of its own."""

    def run(*arguments: object, **environment: str) -> Result:
        command = [sys.executable, "-m", "danseo", *map(str, arguments)]
        variables = {**os.environ, "DANSEO_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", **environment}
        variables.pop("DANSEO_DATA", None)
        return Result(subprocess.run(command, capture_output=True, text=True, env=variables, timeout=600, cwd=tmp_path))

    return run
