"""Requests as no ordinary client sends them: each is refused in words or dropped, and the service goes on."""

import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra board or serve is not installed")
uvicorn = pytest.importorskip("uvicorn")

from danseo.config.run import RunConfig  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.inference.predict import LoadedModel  # noqa: E402
from danseo.models.base import Answers  # noqa: E402
from danseo.records import Prediction  # noqa: E402
from danseo.serve import http as danseo_http  # noqa: E402
from danseo.serve.app import Limits, make_app  # noqa: E402
from danseo.serve.http import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED, make_server  # noqa: E402
from danseo.serve.server import serve_in_thread  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from tests.asgi_server import LoopbackServer  # noqa: E402

POST = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Echo:
    """A model that answers a headline with itself."""

    reads_pos = False

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()

    def predict(self, examples) -> Answers:
        self.open.wait(20)
        return Answers([Prediction(example.guid, example.text, {example.text: 1.0}) for example in examples])


class Served(LoopbackServer):
    """A service on a free port."""

    def __init__(self) -> None:
        self.model = Echo()
        limits = Limits(most_bytes=20_000, most_characters=5_000, batch=8)
        app = make_app(LoadedModel(self.model, TASKS["ynat"], "a run"), limits, ["127.0.0.1"])
        super().__init__(make_server(app, log_level="error", lifespan="on", timeout_graceful_shutdown=20))

    def predict(self, body: str | bytes) -> tuple[int, Any]:
        status, _, text = self.request("POST", "/predict", body, {"Content-Type": "application/json"})
        return status, json.loads(text)

    def is_well(self) -> bool:
        return bool(self.predict('"비"'.encode())[1]["answer"] == "비")


@pytest.fixture(params=["httptools", pytest.param("h11", marks=pytest.mark.lengthy)])
def served(request, monkeypatch, capsys) -> Iterator[Served]:
    """Both readers of requests, as not everybody has httptools."""
    if request.param == "h11":
        monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)
    else:
        pytest.importorskip("httptools")
    made = Served()
    yield made
    assert not capsys.readouterr().err, "no traceback, whatever comes"
    if made.thread.is_alive():
        made.end()


def answer_to(served: Served, *parts: bytes, end: bool = False) -> bytes:
    """What comes back until the connection ends."""
    with socket.create_connection(served.address, timeout=10) as client:
        with suppress(ConnectionError):  # refused before all is sent
            for part in parts:
                client.sendall(part)
            if end:
                client.shutdown(socket.SHUT_WR)
        found = b""
        with suppress(ConnectionError):
            while part := client.recv(1 << 16):
                found += part
        return found


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@pytest.mark.parametrize(
    "flood",
    [
        (GET + b"X: ", b"a" * (1 << 16)),
        (GET, b"X: a\r\n" * 10_000),
        (b"GET /", b"a" * (1 << 16)),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n", b"X: a\r\n" * 10_000),
    ],
    ids=["one header", "many headers", "address", "trailers"],
)
def test_headers_without_end_are_refused(served, flood):
    first, unit = flood
    assert status_of(answer_to(served, first, *[unit] * 100)) in (431, 400, 0)  # 0: it was still sending
    assert served.is_well()


def test_headers_are_bounded_in_size_and_number(served):
    close = b"Connection: close\r\n\r\n"
    assert status_of(answer_to(served, GET + b"X: " + b"a" * (MAX_HEAD_BYTES - 200) + b"\r\n" + close)) == 200
    many = b"".join(b"X%d: a\r\n" % number for number in range(MAX_HEADERS - 5))
    assert status_of(answer_to(served, GET + many + close)) == 200
    assert status_of(answer_to(served, GET + b"X: " + b"a" * 4 * MAX_HEAD_BYTES + b"\r\n" + close)) in (431, 400, 0)
    assert status_of(answer_to(served, GET + many * 20 + close)) in (431, 200)  # h11 bounds bytes alone


@pytest.mark.parametrize("megabytes", [1, 8])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_over_the_limit_is_answered_to_clients_that_close_behind_it(served, megabytes, is_chunked):
    content = b"x" * (megabytes << 20)
    data = iter([content[k : k + 65536] for k in range(0, len(content), 65536)]) if is_chunked else content
    address = f"http://127.0.0.1:{served.address[1]}/predict"
    with pytest.raises(urllib.error.HTTPError) as refused:  # it asks for the connection to be closed
        urllib.request.urlopen(urllib.request.Request(address, data, {"Content-Type": "application/json"}), timeout=20)
    assert refused.value.code == 413
    assert "more than 20,000 bytes" in json.loads(refused.value.read())["error"]
    other = urllib.request.Request(address, content, {"Content-Type": "text/plain"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(other, timeout=20)
    assert refused.value.code == 415
    assert served.is_well()


def test_expect_100_continue_is_rejected_at_once(served):
    expecting = POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
    assert status_of(answer_to(served, expecting)) == 413
    with socket.create_connection(served.address, timeout=10) as client:
        client.sendall(POST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert status_of(client.recv(1 << 16)) == 100
        client.sendall('"비"'.encode())
        assert status_of(client.recv(1 << 16)) == 200


def test_a_body_without_end_is_not_read_without_end(served, monkeypatch):
    monkeypatch.setattr(danseo_http, "_MAX_DISCARDED_BYTES", 1 << 20)
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = 0
    with socket.create_connection(served.address, timeout=10) as client, suppress(OSError):
        client.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        while sent < 500:
            client.sendall(chunk)
            sent += 1
    assert sent < 500
    assert served.is_well()


@pytest.mark.parametrize(
    "parts",
    [
        (POST + b"Content-Length: 100\r\n\r\n", b'"a'),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b'2\r\n"a\r\n'),
        (b"GET /health HTTP/1.1\r\nX: ",),
        (),
        (POST + b"Content-Length: 99999999\r\n\r\n", b"x" * 70_000),
    ],
    ids=["body", "chunks", "head", "nothing", "refused body"],
)
def test_a_client_that_sends_no_more_does_not_delay_the_end(served, parts):
    with socket.create_connection(served.address) as client:
        for part in parts:
            client.sendall(part)
        time.sleep(0.3)
        assert served.is_well()
        assert served.end() < 5


def test_requests_before_the_shutdown_are_answered(served):
    served.model.open.clear()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.is_well)
        time.sleep(0.5)
        served.server.should_exit = True
        time.sleep(0.5)
        served.model.open.set()
        assert asked.result(20)
    served.end()


def test_requests_before_the_first_answer_are_bounded(served):
    served.model.open.clear()
    one = POST + b'Content-Length: 3\r\n\r\n"a"'
    with socket.create_connection(served.address, timeout=5) as client, suppress(OSError):
        for _ in range(20):
            client.sendall(one * MAX_PIPELINED)
            connections = list(served.server.server_state.connections)
            assert all(len(getattr(each, "pipeline", ())) <= MAX_PIPELINED for each in connections)
    time.sleep(0.2)
    served.model.open.set()
    assert served.is_well()


@pytest.mark.parametrize(
    ("request_", "statuses"),
    [
        (GET + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde", {400}),
        (GET + b"Content-Length: -3\r\n\r\nabc", {400}),
        (GET + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n", {400, 200}),
        (POST + b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n1", {400, 413}),
        (POST + b"Content-Length: 30\r\n\r\n" + b'"a"', {0, 400}),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {400, 404}),
        (b"GET /%ff%fe%00 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {404}),
        (b"GET //[::1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {404, 400}),
        (b"GET http://evil/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {200, 404}),
        (b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {400, 404, 405}),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {400, 404, 405}),
        (b"FOO /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {400, 405}),
        (b"HEAD /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {200}),
        (GET + b"Range: bytes=0-5\r\nConnection: close\r\n\r\n", {200}),
        (GET + b"Connection: close, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", {200, 400}),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", {400}),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}),
        (b"\x16\x03\x01" * 100, {400}),
        (b"\r\n" * 100 + GET + b"Connection: close\r\n\r\n", {200, 400}),
    ],
)
def test_odd_requests(served, request_, statuses):
    assert status_of(answer_to(served, request_, end=True)) in statuses
    assert served.is_well()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"title": "a", "id": NaN}', 422),
        (b'{"title": "a", "more": 1e999}', 422),
        (b'{"title": "a", "more": ' + b"9" * 5000 + b"}", 400),
        (b'{"title": "a", "more": ' + b"[" * 800 + b"]" * 800 + b"}", 200),
        (b'{"title": "a", "more": ' + b"[" * 9000 + b"]" * 9000 + b"}", 400),
        (b'{"title": "a", "\\ud800": 1}', 422),
        (b"\xff\xfe", 400),
        (b"", 400),
    ],
)
def test_odd_bodies(served, body, status):
    size = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    assert status_of(answer_to(served, POST + size + body)) in (status, 422)
    assert served.is_well()


def test_a_large_request_does_not_hold_up_the_others(served):
    """Its texts are answered in several batches, and a small request goes into the next one."""
    order: list[str] = []
    answer = served.model.predict

    def slowly(examples) -> Answers:
        time.sleep(0.2)
        return answer(examples)

    served.model.predict = slowly

    def ask(name: str, texts: list[str]) -> list[str]:
        records = served.predict(json.dumps(texts))[1]
        order.append(name)
        return [record["answer"] for record in records]

    large = [f"text {number}" for number in range(60)]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, "large", large)
        while not served.server.server_state.tasks:
            time.sleep(0.001)
        second = pool.submit(ask, "small", ["b"])
        assert first.result(20) == large
        assert second.result(20) == ["b"]
    assert order == ["small", "large"]


def test_a_text_over_the_limit_is_refused(served):
    status, document = served.predict(json.dumps(["a", "b" * 5001]))
    assert status == 413
    assert "item 2: more than 5,000 characters" in document["error"]


def test_a_long_text_does_not_hold_up_the_others(sample: Path, tmp_path: Path) -> None:
    """Its letters are composed in the thread of the model, and quickly."""
    run = run_experiment(RunConfig(task="ynat", model="linear"), sample, tmp_path, quiet=True).path
    text = json.dumps("가" + "\u0301\u0323" * 9_000, ensure_ascii=False).encode()
    with serve_in_thread(run) as ready, ThreadPoolExecutor(1) as pool:
        while not ready.uvicorn_server.started:
            time.sleep(0.01)

        def ask(body: bytes) -> float:
            connection = HTTPConnection(*ready.listener.getsockname(), timeout=60)
            began = time.monotonic()
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            assert connection.getresponse().status == 200
            connection.close()
            return time.monotonic() - began

        long = pool.submit(ask, text)
        waits = []
        while not long.done():
            waits.append(ask('"비"'.encode()))
        assert long.result() < 20
        assert max(waits) < 20
