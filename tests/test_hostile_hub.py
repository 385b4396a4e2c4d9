"""A Hub that does wrong: one line in the time that is promised, and nothing false stays in the cache."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from danseo.errors import DanseoError, NetworkError
from danseo.hub import download
from danseo.patience import LEAST, patience, watched

from .conftest import Result
from .hostile import FAULTS, closed_port, deaf, serving

TINY = '{"model_type": "bert", "hidden_size": 32, "vocab_size": 100}'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    (folder / "config.json").write_text(TINY)
    (folder / "validation-00000-of-00001.parquet").write_bytes(b"PAR1" * 9000)
    (folder / "train-00000-of-00001.parquet").write_bytes(b"PAR1" * 9000)
    return folder


def run(folder: Path, url: str, *command: str) -> tuple[Result, float]:
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    own = {"HF_HOME": str(folder / "hf"), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    own |= {"DANSEO_CACHE": str(folder / "cache")}
    began = time.monotonic()
    arguments = [sys.executable, "-m", "danseo", *command]
    done = subprocess.run(arguments, env=keep | own, capture_output=True, text=True, timeout=120, cwd=folder)
    return Result(done), time.monotonic() - began


def cached(folder: Path) -> list[str]:
    """What the Hub's cache holds in the way of contents."""
    return [path.name for path in (folder / "hf").rglob("*") if path.is_file() and path.read_bytes()[:1] == b"<"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_model_from_a_hostile_hub(fault: str, files: Path, tmp_path: Path) -> None:
    with serving(files, fault) as hub:
        command = ("train", "ynat", "-m", "org/tiny", "--data", "sample", "--timeout", "2")
        result, seconds = run(tmp_path, hub.url, *command)
    assert result.code == 1, result.err
    assert "model org/tiny" in result.complaint
    assert cached(tmp_path) == []
    assert not (tmp_path / "runs").exists()
    assert seconds < 60


@pytest.mark.parametrize("fault", ["silent", "drip"])
def test_data_from_a_hostile_hub(fault: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANSEO_TIMEOUT", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with serving(files, fault) as hub:
        began = time.monotonic()
        with pytest.raises(Exception, match=r"came in 1 s|timed out"):
            download(f"{hub.url}/datasets/klue/klue/resolve/main/ynat/train-00000-of-00001.parquet")
        assert time.monotonic() - began < 10


def test_a_refused_connection_is_known_in_five_seconds(files: Path, tmp_path: Path) -> None:
    result, seconds = run(tmp_path, f"http://127.0.0.1:{closed_port()}", "data", "get", "nli", "--data", "data")
    assert result.code == 1
    assert "--from" in result.complaint
    assert seconds < 5 + started(tmp_path)


def started(folder: Path) -> float:
    """What starting python and the Hub's library takes here, where others compute as well."""
    began = time.monotonic()
    program = "import danseo.cli, huggingface_hub; huggingface_hub.hf_hub_url"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=folder)
    return 2 * (time.monotonic() - began)


def test_a_hub_that_never_says_a_word(tmp_path: Path) -> None:
    with deaf() as url:
        result, _ = run(tmp_path, url, "train", "ynat", "-m", "org/tiny", "--data", "sample", "--timeout", "1")
    assert result.code == 1
    assert "cannot be reached: " in result.complaint


# Patience


def test_work_that_comes_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANSEO_TIMEOUT", "0.4")
    arrived = [0]

    def steady() -> str:
        for _ in range(6):
            time.sleep(0.2)
            arrived[0] += LEAST
        return "whole"

    assert watched(steady, lambda: arrived[0], "it") == "whole"
    with pytest.raises(NetworkError, match=r"it: less than 16 KiB came in 0\.4 s"):
        watched(lambda: time.sleep(3), lambda: 0, "it")


def test_work_that_computes_is_no_hanging_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANSEO_TIMEOUT", "1.5")

    def computing() -> bool:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            sum(range(1000))
        return True

    assert watched(computing, lambda: 0, "it")


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(KeyError):
        watched(lambda: {}["a"], lambda: 0, "it")


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan", "inf"])
def test_patience_is_a_number_of_seconds(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANSEO_TIMEOUT", given)
    with pytest.raises(DanseoError, match="should be seconds"):
        patience()


def test_libraries_do_not_report_home(tmp_path: Path) -> None:
    """In the process of a command, unless its user wants them to."""
    program = (
        "import os\nfrom danseo import cli\n"
        "try:\n    cli.main(['tasks'])\nexcept SystemExit:\n    print([os.environ[name] for name in cli.TELEMETRY])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_DISABLE_TELEMETRY"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "['1', '0', '1']"
