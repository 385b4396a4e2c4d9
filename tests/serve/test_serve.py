"""danseo serve, as clients meet it: real requests on loopback, many at a time, good and bad."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from danseo.config.run import RunConfig
from danseo.experiment import run_experiment
from danseo.export.base import ExportRequest
from danseo.export.registry import export_run
from danseo.inference.output import read_record_schema
from danseo.inference.predict import LoadedModel, open_model
from danseo.models.base import Answers, LoadOptions
from danseo.records import Prediction
from danseo.serve.app import PAGES, Limits, make_app
from danseo.serve.server import is_loopback
from danseo.tasks import TASKS
from tests.asgi_server import LoopbackServer
from tests.tiny import quick_config, read_split, tiny_encoder

LIMITS = Limits(most_bytes=2000, most_items=5, batch=16, room=40)


class Slow:
    """A model that answers a headline with itself, and takes its time."""

    reads_pos = False

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.open = threading.Event()
        self.open.set()

    def predict(self, examples) -> Answers:
        self.open.wait(30)
        self.batches.append(len(examples))
        time.sleep(0.001)
        if any(example.text == "fail" for example in examples):
            raise RuntimeError("a bug")
        return Answers([Prediction(example.guid, example.text, {example.text: 1.0}) for example in examples])


class Server(LoopbackServer):
    """A service of a model."""

    def __init__(self, model: Any, limits: Limits = LIMITS) -> None:
        self.model = model
        super().__init__(make_app(LoadedModel(model, TASKS["ynat"], "a run"), limits, ["127.0.0.1"]), lifespan="on")

    def ask(self, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> tuple[int, dict, Any]:
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content is not None else {}
        status, found, text = self.request("POST" if content is not None else "GET", path, content, {**kind, **headers})
        return status, found, json.loads(text) if found["content-type"].startswith("application/json") else text


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(Slow())
    yield made
    made.end()


def test_one_and_many(server: Server) -> None:
    status, _, one = server.ask("/predict", "새 공장 착공")
    assert (status, one["answer"], one["confidence"]) == (200, "새 공장 착공", 1.0)
    jsonschema.validate(one, read_record_schema())
    assert "text" not in one
    status, _, many = server.ask("/predict?text=1", [{"title": "비", "id": 3}, "눈\n안개", '{"이상한 글'])
    assert [(each["guid"], each["answer"], each["text"]) for each in many] == [
        ("3", "비", "비"), ("2", "눈 안개", "눈 안개"), ("3", '{"이상한 글', '{"이상한 글'),
    ]  # fmt: skip
    assert many[0]["id"] == 3
    assert server.ask("/predict", [])[2] == []


def test_concurrent_requests_get_their_own_answers(server: Server) -> None:
    """500 requests from 20 clients, each with a text of its own; batches hold several of them."""
    server.model.batches.clear()

    def client(number: int) -> list[tuple[int, str, str]]:
        found = []
        for k in range(25):
            text = f"고객 {number} 질문 {k}"
            status, _, record = server.ask("/predict", {"title": text, "guid": text})
            found.append((status, text, record["guid"] + "|" + record["answer"]))
        return found

    with ThreadPoolExecutor(20) as pool:
        answers = [answer for found in pool.map(client, range(20)) for answer in found]
    assert len(answers) == 500
    assert all((status, said) == (200, f"{text}|{text}") for status, text, said in answers)
    assert sum(server.model.batches) == 500
    assert len(server.model.batches) < 450, "requests are answered together"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[" * 1500, 400, "not valid JSON"),
        (b'"' + b"x" * 3000 + b'"', 413, "more than 2,000 bytes"),
        (b'["a","a","a","a","a","a"]', 413, "more than 5 texts"),
        (b"7", 422, "item 1: not a text or an object"),
        (b'["a", " "]', 422, "item 2: the text is empty"),
        (b'[{"title": 4}]', 422, "item 1: field 'title' should be a text, not 4"),
        (b'{"other": 4}', 422, "ynat needs"),
        (b'"\\ud800"', 422, "surrogate"),
    ],
)
def test_bad_requests_get_a_reason(server: Server, body: bytes, status: int, reason: str) -> None:
    found, _, document = server.ask("/predict", raw=body)
    assert found == status
    assert reason in document["error"]


def test_other_requests_are_refused(server: Server) -> None:
    assert server.ask("/predict", raw=b"a=b", **{"Content-Type": "application/x-www-form-urlencoded"})[0] == 415
    assert server.ask("/predict")[0] == 405
    assert server.ask("/../page.html")[0] == 404
    assert server.ask("/health", Host="evil.example")[0] == 400, "another name may be a rebound one"


def test_a_failing_model_fails_only_its_requests(server: Server) -> None:
    assert server.ask("/predict", "fail")[0] == 500
    assert server.ask("/predict", "비")[2]["answer"] == "비"
    assert server.ask("/health")[2]["waiting"] == 0


def test_a_real_model_answers_a_crowd_as_it_answers_alone(sample: Path, tmp_path: Path) -> None:
    """500 requests from 20 clients to a fine-tuned encoder in ONNX Runtime."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    config = quick_config("ynat", tiny_encoder(tmp_path, sample, layers=1), max_train_samples=16, max_length=32)
    run = run_experiment(config, sample, tmp_path / "runs", quiet=True)
    export_run("onnx", ExportRequest(str(run.path), str(tmp_path / "out")))
    model = open_model(tmp_path / "out", LoadOptions()).model
    examples = read_split(sample, "ynat", "dev", 50)
    alone = [prediction.answer for prediction in model.predict(examples)]
    crowd = Server(model, Limits())
    bodies = [{"title": examples[k % 50].text, "id": f"{k}"} for k in range(500)]
    try:
        with ThreadPoolExecutor(20) as clients:
            answers = list(clients.map(lambda body: crowd.ask("/predict", body)[2], bodies))
    finally:
        crowd.end()
    assert [answer["guid"] for answer in answers] == [body["id"] for body in bodies]
    assert [answer["answer"] for answer in answers] == alone * 10


def test_health_and_schema(server: Server) -> None:
    health = server.ask("/health")[2]
    assert (health["status"], health["task"], health["model"]) == ("ok", "ynat", "a run")
    found = server.ask("/schema")[2]
    assert (found["type"], found["is_pair"], found["answer"]) == ("classification", False, read_record_schema())


def test_the_page_has_the_language_of_the_visitor(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DANSEO_LANG")
    assert '<html lang="en">' in server.ask("/")[2]
    page = server.ask("/", **{"Accept-Language": "ko"})[2]
    assert '<html lang="ko">' in page
    assert "주제 분류" in page
    assert 'href="/?lang=en"' in page
    assert '<html lang="en">' in server.ask("/?lang=en", **{"Accept-Language": "ko"})[2]
    assert server.ask("/schema", **{"Accept-Language": "ko"})[2]["title"] == "topic classification"


def test_the_page_loads_nothing_else(server: Server) -> None:
    for path, (_, kind) in PAGES.items():
        status, headers, text = server.ask(path)
        assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "innerHTML" not in text
        outside = [word for word in text.split('"') if word.startswith(("http:", "https:", "//"))]
        assert outside in ([], ["http://www.w3.org/2000/svg"])


def test_too_much_is_put_off() -> None:
    server = Server(Slow(), Limits(room=4))
    server.model.open.clear()
    with ThreadPoolExecutor(8) as pool:
        first = [pool.submit(server.ask, "/predict", f"질문 {k}") for k in range(4)]
        while server.ask("/health")[2]["waiting"] < 4:
            time.sleep(0.01)
        status, headers, document = server.ask("/predict", "더")
        assert (status, int(headers["retry-after"]) >= 1) == (429, True)
        assert "queue is full" in document["error"]
        server.server.should_exit = True  # what was asked before the end is answered
        server.model.open.set()
        assert [each.result(30)[2]["answer"] for each in first] == [f"질문 {k}" for k in range(4)]
    server.end()


def test_the_command_serves_and_stops(sample: Path, tmp_path: Path) -> None:
    run = run_experiment(RunConfig(task="ner", model="majority"), sample, tmp_path).path
    command = [sys.executable, "-m", "danseo", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stderr
        said = process.stderr.readline()
        port = int(said.split("127.0.0.1:")[1].split("/")[0])
        for _ in range(200):  # it listens before it answers
            try:
                connection = HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request("POST", "/predict", '"서울에 비"'.encode(), {"Content-Type": "application/json"})
                break
            except OSError:
                time.sleep(0.05)
        record = json.loads(connection.getresponse().read())
        assert len(record["answer"]) == 5
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)


def test_a_taken_port_and_a_wrong_folder_are_one_line(invoke: Callable, sample: Path, tmp_path: Path) -> None:
    assert "not a run directory" in invoke("serve", tmp_path / "nowhere").complaint
    run = run_experiment(RunConfig(task="ynat", model="majority"), sample, tmp_path / "runs").path
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be used" in invoke("serve", run, "--port", port).complaint


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_what_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
