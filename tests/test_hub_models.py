"""Models by name: from a stub Hub on 127.0.0.1, from its cache, and one quick line where neither has them."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from danseo.errors import DanseoError, NetworkError
from danseo.hub import pretrained, reach
from tests.conftest import Result
from tests.test_hub import closed_port, set_endpoint


@dataclass
class Models:
    """What a stub Hub serves as org/tiny, and how it answers to all else."""

    folder: Path
    url: str = ""
    error: str = "RepoNotFound"
    status: int = 401
    delay: float = 0.0
    asked: list[str] = field(default_factory=list)


def handler_of(stub: Models) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            stub.asked.append(self.path)
            time.sleep(stub.delay)
            repository, _, name = self.path.lstrip("/").partition("/resolve/main/")
            file = stub.folder / name
            if repository != "org/tiny":
                self.answer(stub.status, {"X-Error-Code": stub.error} if stub.error else {})
            elif not file.is_file():
                self.answer(404, {"X-Error-Code": "EntryNotFound"})
            else:
                self.answer(200, {"ETag": f'"{name}"', "X-Repo-Commit": "0" * 40}, file.read_bytes())

        def answer(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Models]:
    stub = Models(tmp_path / "encoder")
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(stub))
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    set_endpoint(monkeypatch, stub.url)
    yield stub
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def hanging_up() -> Iterator[tuple[str, list[Any]]]:
    """An address where every caller is heard of and none gets an answer."""
    calls: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    connection, caller = server.accept()
                    calls.append(caller)
                    connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", calls
        server.shutdown(socket.SHUT_RDWR)


def run(folder: Path, command: str, **environment: str) -> Result:
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    own = {"HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1", **environment}
    arguments = [sys.executable, "-m", "danseo", *command.split()]
    return Result(subprocess.run(arguments, env=keep | own, capture_output=True, text=True, timeout=120, cwd=folder))


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
def test_without_the_hub_a_command_asks_once_and_says_what_helps(command: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("서울에 비가 왔다.\n")
    with hanging_up() as (url, calls):
        result = run(tmp_path, command, HF_ENDPOINT=url)
    assert result.code == 1
    assert f"the Hub ({url}) cannot be reached: " in result.complaint
    ways = "--from" if command.startswith("data get") else "--lambada" if "lambada" in command else "HF_HUB_OFFLINE=1"
    assert ways in result.complaint
    assert "huggingface.co" not in result.complaint
    assert len(calls) == 1, "the library's own tries take over 20 s"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


def test_a_refused_connection(tmp_path: Path) -> None:
    result = run(tmp_path, "train ynat -m org/tiny --data sample", HF_ENDPOINT=f"http://127.0.0.1:{closed_port()}")
    assert result.complaint.endswith(
        " cannot be reached: [Errno 111] Connection refused; take -m mini, which is here, name a local folder, or fill "
        "the cache where there is a network and set HF_HUB_OFFLINE=1"
    )


def test_an_answer_that_does_not_come_is_not_waited_for(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("danseo.hub._SECONDS", 0.2)
    models.delay = 2.0
    with pytest.raises(NetworkError, match="cannot be reached: "):
        reach(f"{models.url}/org/tiny/resolve/main/config.json")


@pytest.mark.parametrize(
    ("status", "error", "kind", "expected"),
    [
        (401, "RepoNotFound", DanseoError, "no such folder, and no such model on the Hub; if it is private"),
        (403, "GatedRepo", DanseoError, "is gated: accept its terms"),
        (404, "RevisionNotFound", DanseoError, "has no revision 'v9' on the Hub"),
        (404, "EntryNotFound", DanseoError, "has no config.json on the Hub"),
        (503, "", NetworkError, "the Hub answers with status 503"),
    ],
)
def test_what_the_hub_says_no_to(
    status: int, error: str, kind: type[DanseoError], expected: str, models: Models
) -> None:
    models.status, models.error = status, error
    with pytest.raises(kind, match=expected):
        pretrained(f"org/{error or 'other'}@v9")


def test_names_that_are_no_ids_never_reach_the_hub(models: Models, tmp_path: Path) -> None:
    for name in ("./nowhere", "/nowhere/at/all", "a/b/c"):
        with pytest.raises(DanseoError, match="no such folder, and no Hub id either"):
            pretrained(name)
    (tmp_path / "file").write_text("")
    with pytest.raises(DanseoError, match="is a file; name a checkpoint folder"):
        pretrained(str(tmp_path / "file"))
    assert pretrained(str(tmp_path))[0] == str(tmp_path)
    with pytest.raises(DanseoError, match="no model named 'minni'; did you mean 'mini'"):
        pretrained("minni")
    assert models.asked == []


def test_a_misspelt_model_is_told_before_the_hub_is_asked(models: Models, tmp_path: Path) -> None:
    for wrong, right in {"minni": "mini", "mini2": "mini", "liner": "linear", "majorty": "majority"}.items():
        result = run(tmp_path, f"train ner -m {wrong} --data sample", HF_ENDPOINT=models.url)
        assert result.code == 2
        assert f"no model named {wrong!r}; did you mean {right!r}?" in result.complaint
    models.status, models.error = 401, "RepoNotFound"
    assert (
        "no such model on the Hub"
        in run(tmp_path, "train ner -m o/mini --data sample", HF_ENDPOINT=models.url).complaint
    )


def test_offline_and_not_in_the_cache(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE is set but the cache of the Hub does not hold it"):
        pretrained("org/other")
    assert models.asked == []


LOAD = "from danseo.models.encoder.network import load_encoder_config as load; print(load('org/tiny').model_type)"


def test_a_model_comes_from_the_hub_once_and_then_from_the_cache(models: Models, tmp_path: Path) -> None:
    models.folder.mkdir()
    (models.folder / "config.json").write_text('{"model_type": "bert"}')

    def loaded(**environment: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        own = {
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            **environment,
        }
        return subprocess.run([sys.executable, "-c", LOAD], env=kept | own, capture_output=True, text=True, timeout=120)

    assert loaded(HF_ENDPOINT=models.url).stdout == "bert\n"
    assert models.asked
    ended = loaded(HF_ENDPOINT=f"http://127.0.0.1:{closed_port()}")
    assert ended.stdout == "bert\n", ended.stderr
