"""A Hub that does wrong: one line in the time that is promised, and nothing false stays in the cache."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from danseo.errors import DanseoError, NetworkError
from danseo.hub import download, from_hub
from danseo.models.encoder.network import load_encoder_config
from danseo.patience import LEAST, patience, watched

from .hostile import PAGE, closed_port, deaf, serving
from .test_hub import set_endpoint

TINY = '{"model_type": "bert", "hidden_size": 32, "vocab_size": 100}'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    (folder / "config.json").write_text(TINY)
    (folder / "validation-00000-of-00001.parquet").write_bytes(b"PAR1" * 9000)
    (folder / "train-00000-of-00001.parquet").write_bytes(b"PAR1" * 9000)
    return folder


@pytest.fixture
def point_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A process that knows only the Hub at an address, and an empty cache."""

    def point(url: str) -> None:
        set_endpoint(monkeypatch, url)
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        for name, value in {
            "ENDPOINT": url,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_CACHE": str(tmp_path / "hub"),
            "HF_HUB_DISABLE_XET": True,
        }.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)

    return point


@pytest.fixture
def ask(point_at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """What is said of a model at an address."""

    def asked(url: str) -> str:
        point_at(url)
        monkeypatch.setenv("DANSEO_TIMEOUT", "2")
        with pytest.raises(NetworkError) as caught:
            load_encoder_config("org/tiny")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return asked


def pages_in(folder: Path) -> list[str]:
    """What the Hub's cache holds in the way of web pages."""
    return [path.name for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:1] == b"<"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("silent", "less than 16 KiB came in 2 s (--timeout); take -m mini, which is here, name a local folder"),
        ("drip", "less than 16 KiB came in 2 s (--timeout)"),
        ("portal", "for config.json, a web page came instead; log in to the network first"),
        ("trouble", "status 503"),
        ("noise", "cannot be reached"),
        ("circle", "cannot be reached"),
    ],
)
def test_a_model_from_a_hostile_hub(fault: str, said: str, files: Path, tmp_path: Path, ask) -> None:
    with serving(files, fault) as hub:
        assert said in ask(hub.url)
    assert pages_in(tmp_path) == []


def test_a_hub_that_never_says_a_word(ask) -> None:
    with deaf() as url:
        assert "cannot be reached: " in ask(url)


def test_a_refused_connection_ends_in_five_seconds_with_the_offline_ways(point_at, sample, tmp_path, capsys) -> None:
    """With the usual patience of a minute: nobody is waited for who is not there."""
    from danseo.cli import main

    point_at(f"http://127.0.0.1:{closed_port()}")
    began = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main(["train", "ynat", "-m", "org/tiny", "--data", str(sample), "--runs", str(tmp_path / "runs")])
    assert time.monotonic() - began < 5
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "cannot be reached" in line
    assert "take -m mini, which is here, name a local folder, or fill the cache" in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("fault", ["silent", "drip"])
def test_data_from_a_hostile_hub(fault: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANSEO_TIMEOUT", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with serving(files, fault) as hub, pytest.raises(Exception, match=r"came in 1 s|timed out"):
        download(f"{hub.url}/datasets/klue/klue/resolve/main/ynat/train-00000-of-00001.parquet")


def test_a_page_that_is_in_the_cache_already_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    (tmp_path / "blob").write_bytes(PAGE)
    (snapshot / "config.json").symlink_to(tmp_path / "blob")
    (snapshot / "vocab.txt").write_text("<s>\n<pad>\n")

    def load() -> None:
        raise OSError("It looks like the config file is not a valid JSON file")

    with pytest.raises(NetworkError, match=r"for config\.json, a web page came instead"):
        from_hub("org/tiny", load)
    assert not (tmp_path / "blob").exists()
    assert [path.name for path in snapshot.iterdir()] == ["vocab.txt"]
    with pytest.raises(OSError, match="not a valid JSON"):
        from_hub("org/tiny", load)


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
    monkeypatch.setenv("DANSEO_TIMEOUT", "1")
    monkeypatch.setattr("danseo.patience._BYTES_PER_SECOND_OF_WORK", 1 << 20)  # others may compute here as well

    def computing() -> bool:
        end = time.monotonic() + 2
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
