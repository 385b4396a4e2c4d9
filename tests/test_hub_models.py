"""Models by name: from a stub Hub, from its cache, or one quick line if neither has them."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from danseo.errors import DanseoError, NetworkError
from danseo.hub import request_headers, resolve_model
from tests.hostile import closed_port
from tests.loopback import serve, set_endpoint


@dataclass
class Models:
    """The folder that a stub Hub serves as org/tiny, and its response to other requests."""

    folder: Path
    url: str = ""
    error: str = "RepoNotFound"
    status: int = 401
    delay: float = 0.0
    requests: list[str] = field(default_factory=list)

    def respond(self, path, headers):
        self.requests.append(path)
        time.sleep(self.delay)
        repository, _, name = path.lstrip("/").partition("/resolve/main/")
        file = self.folder / name
        if repository != "org/tiny":
            return self.status, {"X-Error-Code": self.error} if self.error else {}, b""
        if not file.is_file():
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        return 200, {"ETag": f'"{name}"', "X-Repo-Commit": "0" * 40}, file.read_bytes()


@pytest.fixture
def models(tmp_path, monkeypatch):
    stub = Models(tmp_path / "encoder")
    with serve(lambda *request: stub.respond(*request)) as stub.url:
        set_endpoint(monkeypatch, stub.url)
        yield stub


@contextmanager
def serve_hang_ups():
    """Yield an address that closes every connection, and the callers."""
    calls = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up():
            with suppress(OSError):
                while True:
                    connection, caller = server.accept()
                    calls.append(caller)
                    connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", calls
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "command",
    [
        "train ynat -m klue/roberta-base --data sample",
        "train ynat -m klue/roberta-base --data sample --recipe official",
        "probe klue/roberta-base",
        "pretrain --text text.txt --from klue/roberta-base",
        "coref klue/roberta-base --text text.txt",
        "data get nli --data data",
        "data probes --lambada hub --out probes",
    ],
)
def test_commands_try_the_hub_once_and_name_a_remedy(command, invoke, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("서울에 비가 왔다.\n")
    with serve_hang_ups() as (url, calls):
        set_endpoint(monkeypatch, url)
        result = invoke(*command.split())
    assert result.code == 1
    assert f"the Hub ({url}) cannot be reached: " in result.complaint
    remedy = "--from" if command.startswith("data get") else "--lambada" if "lambada" in command else "HF_HUB_OFFLINE=1"
    assert remedy in result.complaint
    assert "huggingface.co" not in result.complaint
    assert len(calls) == 1, "the library's own tries take over 20 s"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


def test_slow_server(models, monkeypatch):
    monkeypatch.setenv("DANSEO_TIMEOUT", "0.2")
    models.delay = 2.0
    with pytest.raises(NetworkError, match="cannot be reached: "):
        request_headers(f"{models.url}/org/tiny/resolve/main/config.json")


@pytest.mark.parametrize(
    ("status", "error", "class_", "message"),
    [
        (401, "RepoNotFound", DanseoError, "no such model on the Hub"),
        (403, "GatedRepo", DanseoError, "is gated"),
        (404, "RevisionNotFound", DanseoError, "no revision 'v9'"),
        (404, "EntryNotFound", DanseoError, "no config.json"),
        (503, "", NetworkError, "status 503"),
    ],
)
def test_refused_models(status, error, class_, message, models):
    models.status, models.error = status, error
    with pytest.raises(class_, match=message):
        resolve_model(f"org/{error or 'other'}@v9")


def test_names_that_are_no_ids_never_reach_the_hub(models, tmp_path):
    for name in ("./nowhere", "/nowhere/at/all", "a/b/c"):
        with pytest.raises(DanseoError, match="no such folder"):
            resolve_model(name)
    (tmp_path / "file").write_text("")
    with pytest.raises(DanseoError, match="is a file; name a checkpoint folder"):
        resolve_model(str(tmp_path / "file"))
    assert resolve_model(str(tmp_path))[0] == str(tmp_path)
    with pytest.raises(DanseoError, match="did you mean 'mini'"):
        resolve_model("minni")
    assert models.requests == []


@pytest.mark.parametrize(("wrong", "right"), [("mini2", "mini"), ("liner", "linear"), ("majorty", "majority")])
def test_misspelt_models_never_reach_the_hub(wrong, right, invoke, models, monkeypatch):
    set_endpoint(monkeypatch, models.url)
    result = invoke("train", "ner", "-m", wrong, "--data", "sample")
    assert result.code == 2
    assert f"no model named {wrong!r}; did you mean {right!r}?" in result.complaint
    assert models.requests == []


def test_offline_and_not_in_the_cache(models, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE is set but the cache"):
        resolve_model("org/other")
    assert models.requests == []


LOAD = "from danseo.models.encoder.network import load_encoder_config as load; print(load('org/tiny').model_type)"


@pytest.mark.lengthy
def test_model_is_downloaded_once_and_then_read_from_the_cache(models, tmp_path):
    models.folder.mkdir()
    (models.folder / "config.json").write_text('{"model_type": "bert"}')

    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    for url in (models.url, f"http://127.0.0.1:{closed_port()}"):
        command, variables = [sys.executable, "-c", LOAD], environment | {"HF_ENDPOINT": url}
        result = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
        assert result.stdout == "bert\n", result.stderr
    assert models.requests
