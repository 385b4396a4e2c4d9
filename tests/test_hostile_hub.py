"""A Hub with faults: one line within the timeout, and no false file stays in the cache."""

import os
import subprocess
import sys
import time

import pytest

pytest.importorskip("transformers")

from danseo.cli import main
from danseo.errors import DanseoError, NetworkError
from danseo.hub import download, load_from_hub
from danseo.models.encoder.network import load_encoder_config, loading_error
from danseo.timeouts import MIN_BYTES, get_timeout, run_with_timeout

from .hostile import PAGE, closed_port, deaf, serving
from .loopback import set_endpoint

TINY = '{"model_type": "bert", "hidden_size": 32, "vocab_size": 100}'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    (folder / "config.json").write_text(TINY)
    (folder / "validation-00000-of-00001.parquet").write_bytes(b"PAR1" * 9000)
    (folder / "train-00000-of-00001.parquet").write_bytes(b"PAR1" * 9000)
    return folder


@pytest.fixture
def point_at(tmp_path, monkeypatch):
    """Set the only known Hub, with an empty cache."""

    def point(url):
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
def load_error(point_at, monkeypatch):
    """Return the error of loading a model from an address."""

    def load(url):
        point_at(url)
        monkeypatch.setenv("DANSEO_TIMEOUT", "2")
        with pytest.raises(NetworkError) as caught:
            load_encoder_config("org/tiny")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return load


def find_web_pages(folder):
    return [path.name for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:1] == b"<"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("silent", "less than 16 KiB arrived in 2 s (--timeout); use the bundled model mini"),
        ("drip", "less than 16 KiB arrived in 2 s"),
        ("portal", "for config.json, a web page arrived instead"),
        ("trouble", "status 503"),
        ("noise", "cannot be reached"),
        ("circle", "cannot be reached"),
    ],
)
def test_models_from_a_hostile_hub(fault, message, files, tmp_path, load_error):
    with serving(files, fault) as hub:
        assert message in load_error(hub.url)
    assert find_web_pages(tmp_path) == []


def test_half_a_file_is_a_failure_of_the_network():
    """The library tries for nine seconds; then its own error names no network, but the cause of it does."""
    closed = type("RemoteProtocolError", (Exception,), {"__module__": "httpx2"})("peer closed connection")
    error = OSError("Can't load the configuration of 'org/tiny'")
    error.__cause__ = closed
    found = loading_error("org/tiny", error)
    assert isinstance(found, NetworkError)
    assert "peer closed connection" in str(found)
    error.__cause__ = None
    assert not isinstance(loading_error("org/tiny", error), NetworkError)


def test_silent_hub(load_error):
    with deaf() as url:
        assert "cannot be reached: " in load_error(url)


def test_refused_connection_ends_in_five_seconds_with_a_remedy(point_at, sample, tmp_path, capsys):
    """With the default timeout of a minute."""
    point_at(f"http://127.0.0.1:{closed_port()}")
    start = time.monotonic()
    with pytest.raises(SystemExit) as caught:
        main(["train", "ynat", "-m", "org/tiny", "--data", str(sample), "--runs", str(tmp_path / "runs")])
    assert time.monotonic() - start < 5
    assert caught.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "cannot be reached" in line
    assert "use the bundled model mini" in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("fault", ["silent", "drip"])
def test_data_from_a_hostile_hub(fault, files, monkeypatch):
    monkeypatch.setenv("DANSEO_TIMEOUT", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with serving(files, fault) as hub, pytest.raises(Exception, match=r"arrived in 1 s|timed out"):
        download(f"{hub.url}/datasets/klue/klue/resolve/main/ynat/train-00000-of-00001.parquet")


def test_web_page_in_the_cache_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    (tmp_path / "blob").write_bytes(PAGE)
    (snapshot / "config.json").symlink_to(tmp_path / "blob")
    (snapshot / "vocab.txt").write_text("<s>\n<pad>\n")

    def load():
        raise OSError("It looks like the config file is not a valid JSON file")

    with pytest.raises(NetworkError, match=r"for config\.json, a web page arrived instead"):
        load_from_hub("org/tiny", load)
    assert not (tmp_path / "blob").exists()
    assert [path.name for path in snapshot.iterdir()] == ["vocab.txt"]
    with pytest.raises(OSError, match="not a valid JSON"):
        load_from_hub("org/tiny", load)


# Timeouts


def test_progress_extends_the_timeout(monkeypatch):
    monkeypatch.setenv("DANSEO_TIMEOUT", "0.4")
    parts = []

    def receive():
        for _ in range(6):
            time.sleep(0.2)
            parts.append(MIN_BYTES)
        return "complete"

    assert run_with_timeout(receive, lambda: sum(parts), "it") == "complete"
    with pytest.raises(NetworkError, match=r"it: less than 16 KiB arrived in 0\.4 s"):
        run_with_timeout(lambda: time.sleep(3), lambda: 0, "it")


def test_computing_extends_the_timeout(monkeypatch):
    monkeypatch.setenv("DANSEO_TIMEOUT", "1")
    monkeypatch.setattr("danseo.timeouts._BYTES_PER_SECOND_OF_WORK", 1 << 20)  # others may compute here as well

    def compute():
        end = time.monotonic() + 2
        while time.monotonic() < end:
            sum(range(1000))
        return True

    assert run_with_timeout(compute, lambda: 0, "it")


def test_errors_of_the_work_are_raised():
    with pytest.raises(KeyError):
        run_with_timeout(lambda: {}["a"], lambda: 0, "it")


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf"])
def test_timeout_is_a_number_of_seconds(value, monkeypatch):
    monkeypatch.setenv("DANSEO_TIMEOUT", value)
    with pytest.raises(DanseoError, match="should be seconds"):
        get_timeout()


def test_telemetry_of_libraries_is_off():
    program = (
        "import os\nfrom danseo import cli\n"
        "try:\n    cli.main(['tasks'])\nexcept SystemExit:\n    print([os.environ[name] for name in cli.TELEMETRY])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_DISABLE_TELEMETRY"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert result.stdout.splitlines()[-1] == "['1', '0', '1']"
