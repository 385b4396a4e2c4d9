"""Sentences per second of a tagger: danseo predict in torch, ONNX and int8, transformers.pipeline, danseo serve.

All on the same checkpoint and the same sentences, one thread each, in seconds of the processor, so that a busy machine
counts for nobody. The encoder was never pre-trained, as speed does not depend on what it knows, and is fine-tuned for a
moment.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":  # before anybody computes; other benches take parts of this one
    os.environ["OMP_NUM_THREADS"] = "1"

from measuring import ResultTable, say

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.data.find import write_sample
from danseo.data.input_reader import InputLine, read_line
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.export.base import ExportRequest
from danseo.export.registry import export_run
from danseo.inference.output import get_writer, predict_records
from danseo.inference.predict import open_model
from danseo.metrics.tagging import list_entities
from danseo.models.base import LoadOptions
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.tasks import TASKS

DATA = Path(__file__).parents[2] / "shared" / "data" / "klue"
SIZE = EncoderSize(layers=4, hidden=256, heads=4, vocabulary=8000, positions=512)
SENTENCES = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 500
CLIENTS, ROUNDS = 20, 5
LEAST_GAIN, LEAST_SHARE = 3.0, 0.8
Spans = list[tuple[int, int, str]]


def make_run(folder: Path) -> Path:
    """A tagger of the size of small Korean encoders."""
    task = TASKS["ner"]
    train = task.read(DATA / task.folder / task.file("train"))[:3000]
    encoder = make_encoder(folder / "encoder", [example.text for example in train], "bert", SIZE)
    settings = {
        "max_train_samples": 256,
        "epochs": 3,
        "learning_rate": 5e-4,
        "precision": "fp32",
        "num_threads": 1,
        "max_length": 256,
    }
    config = update_config(RunConfig(task="ner", model=str(encoder)), settings)
    write_sample(folder / "sample")
    return run_experiment(config, folder / "sample", folder / "runs", quiet=True).path


def timed(work: Callable[[], Any], rounds: int = 2) -> tuple[float, Any]:
    """Seconds of the processor of the best of some rounds, and what came out."""
    best, found = float("inf"), None
    for _ in range(rounds):
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
    return best, found


def with_danseo(path: Path, lines: Sequence[InputLine], precision: str | None = None) -> tuple[float, list[Spans]]:
    opened = open_model(path, LoadOptions("cpu" if (path / "config.toml").is_file() else None, precision))
    predict_records(opened.model, opened.task, lines[:32])
    seconds, records = timed(lambda: predict_records(opened.model, opened.task, lines))
    return seconds, [[(s["start"], s["end"], s["type"]) for s in record["spans"]] for record in records]


def with_pipeline(path: Path, lines: Sequence[InputLine], batch: int) -> tuple[float, list[Spans]]:
    from transformers import pipeline

    made = pipeline("ner", model=str(path / "model"), device="cpu", ignore_labels=[])  # type: ignore[call-overload]
    texts = [line.example.text for line in lines]
    made(texts[:32], batch_size=batch)
    seconds, found = timed(lambda: made(texts, batch_size=batch), 1 if batch == 1 else 2)
    return seconds, [spans_of_pieces(text, pieces) for text, pieces in zip(texts, found, strict=True)]


def spans_of_pieces(text: str, pieces: Sequence[dict[str, Any]]) -> Spans:
    """The entities that the best label of each piece makes; a space between two pieces of one joins it."""
    tags = ["O"] * len(text)
    for piece in pieces:
        for workdir in range(piece["start"], piece["end"]):
            tags[workdir] = piece["entity"] if workdir == piece["start"] else piece["entity"].replace("B-", "I-")
    for workdir, character in enumerate(text[:-1]):
        if character == " " and tags[workdir] == "O" and tags[workdir + 1].startswith("I-"):
            tags[workdir] = tags[workdir + 1]
    return list(list_entities(tags))


@dataclass(frozen=True)
class Round:
    """The same lines through predict and through serve, one after the other."""

    predict: tuple[float, float]
    """Seconds of the processor, and of the clock."""
    serve: tuple[float, float]
    """Seconds of the server's processor (those of the clients are their own), and of the clock."""
    spans: list[Spans]


def against_service(path: Path, lines: Sequence[InputLine]) -> list[Round]:
    """One request per sentence from 20 clients, and the work of `danseo predict` on a file of the same lines.

    Both read the JSON of a line, answer, and write JSON; neither counts its start. The clients are threads of this
    process, so where there are few cores they take time of the clock from the server, but not of its processor.
    """
    asked = [json.dumps({"text": line.example.text, "guid": line.example.guid}).encode() for line in lines]
    opened, write = open_model(path, LoadOptions()), get_writer("jsonl", TASKS["ner"])

    def predict() -> None:
        read = [read_line(text, number, opened.task) for number, text in enumerate(asked, 1)]
        write(predict_records(opened.model, opened.task, [line for line in read if isinstance(line, InputLine)]))

    with service(path) as (port, pid):
        predict()
        return [_round(predict, asked, port, pid) for _ in range(ROUNDS)]


def _round(predict: Callable[[], None], asked: Sequence[bytes], port: int, pid: int) -> Round:
    own = threading.local()

    def ask(body: bytes) -> dict[str, Any]:
        connection = own.connection = getattr(own, "connection", None) or HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        record: dict[str, Any] = json.loads(reply.read())
        assert (reply.status, record["guid"]) == (200, json.loads(body)["guid"]), record
        return record

    clock, start = time.perf_counter(), time.process_time()
    predict()
    predicted = time.process_time() - start, time.perf_counter() - clock
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(ask, asked[: 2 * CLIENTS]))
        clock, start = time.perf_counter(), _processor(pid)
        records = list(clients.map(ask, asked))
        served = _processor(pid) - start, time.perf_counter() - clock
    spans = [[(s["start"], s["end"], s["type"]) for s in record["spans"]] for record in records]
    return Round(predicted, served, spans)


@contextmanager
def service(path: Path) -> Iterator[tuple[int, int]]:
    """The port and the process of a service."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-P", "-m", "danseo", "serve", str(path), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        process.stderr.readline()
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


def _processor(pid: int) -> float:
    """The seconds that a process has computed."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def main() -> int:
    if not DATA.is_dir():
        say("the real KLUE files are not in ../shared/data/klue")
        return 0
    task = TASKS["ner"]
    examples = task.read(DATA / task.folder / task.file("dev"))[:SENTENCES]
    lines = [InputLine(number, example, {}) for number, example in enumerate(examples, 1)]
    with tempfile.TemporaryDirectory() as workdir:
        folder = Path(workdir)
        say("training a tagger for a moment, then exporting it")
        run = make_run(folder)
        onnx, rounded = folder / "onnx", folder / "int8"
        export_run("onnx", ExportRequest(str(run), str(onnx)))
        export_run("onnx", ExportRequest(str(run), str(rounded), options={"int8": True, "no_check": True}))
        ways: dict[str, Callable[[], tuple[float, list[Spans]]]] = {
            "transformers.pipeline": lambda: with_pipeline(run, lines, 1),
            "transformers.pipeline, 32 at a time": lambda: with_pipeline(run, lines, 32),
            "danseo predict, torch": lambda: with_danseo(run, lines),
            "danseo predict, torch int8": lambda: with_danseo(run, lines, "int8"),
            "danseo predict, ONNX": lambda: with_danseo(onnx, lines),
            "danseo predict, ONNX int8": lambda: with_danseo(rounded, lines),
        }
        table = ResultTable(
            f"{len(lines)} sentences of KLUE-NER dev, {SIZE.layers} layers of {SIZE.hidden}, one thread",
            ("way", "sentences/s", "× pipeline", "sentences as torch %"),
        )
        found = {name: way() for name, way in ways.items()}
        rounds = against_service(onnx, lines)
        found["danseo serve, ONNX, 20 clients"] = min(each.serve[0] for each in rounds), rounds[-1].spans
        base, torch_answers = found["transformers.pipeline"][0], found["danseo predict, torch"][1]
        for name, (seconds, spans) in found.items():
            same = sum(one == other for one, other in zip(spans, torch_answers, strict=True)) / len(lines)
            table.add(name, round(len(lines) / seconds, 1), round(base / seconds, 2), round(100 * same, 1))
        gain = base / found["danseo predict, ONNX"][0]
        share, by_clock = (median(each.predict[k] / each.serve[k] for each in rounds) for k in (0, 1))
        print(f"\nONNX is {gain:.1f} × the pipeline (due: {LEAST_GAIN})")
        print(
            f"serve reaches {100 * share:.0f} % of predict by seconds of the processor (due: {100 * LEAST_SHARE:.0f}), "
            f"{100 * by_clock:.0f} % by the clock, clients on the same cores; median of {ROUNDS} rounds"
        )
        if found["danseo predict, ONNX"][1] != torch_answers:
            raise DanseoError("the exported model answers other than its run")
        return 0 if gain >= LEAST_GAIN and share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
