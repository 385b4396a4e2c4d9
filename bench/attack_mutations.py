"""Typed changes of run folders, bundles, parquet, task files, model folders, LLM replies and HTTP requests.

Each attack prepares valid objects once. `attempt(number)` makes the number-th change of them, runs a command or sends
a request, and returns what was changed and what went wrong (None if it held).
"""

import asyncio
import gzip
import importlib
import json
import random
import re
import shutil
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from attack_commands import MEGABYTES, Child, Ended, computed, find_fault, resident, run_command
from measuring import Limit, say
from tests.mutations import SECRET, change_content, change_document, change_folder, change_request, dump_json

Attempt = Callable[[int], tuple[str, str | None]]
_SECONDS = 150.0  # of one attack, so that each has its turn on a slow machine
_SHOWN = 20  # different findings of an attack that are printed; the number of all is in the table


def run_attack(
    name: str, workdir: Path, size: float, seed: int, limit: Limit, only: int | None = None
) -> list[dict[str, object]]:
    """Make all attempts of an attack, or one of them, and return its row."""
    make, inputs = ATTACKS[name]
    (workdir / "outside").mkdir()
    (workdir / "outside" / "secret.txt").write_text(SECRET + "\n", "utf-8")
    attack = make(workdir, seed)
    tries, faults, began = 0, list[str](), time.monotonic()
    shown, own = set[str](), Limit(_SECONDS)
    try:
        for number in [only] if only is not None else range(max(3, int(inputs * size))):
            if (limit.is_over or own.is_over) and tries >= 3:
                break
            what, fault = attack.attempt(number)
            tries += 1
            if fault:
                faults.append(fault)
                alike = re.sub(r"\d+|'[^']*'|\S*/\S*", "#", fault)
                if len(shown) < _SHOWN and alike not in shown:
                    shown.add(alike)
                    say(f"finding: {name} --seed {seed} --only {number}: {what}: {fault}")
            elif only is not None:
                say(f"held: {name} --seed {seed} --only {number}: {what}")
    finally:
        attack.end()
    note = f"{time.monotonic() - began:.0f} s" + (f"; {faults[0][:150]}" if faults else "")
    return [{"attack": f"changed {name.replace('-', ' ')}", "tries": tries, "held": tries - len(faults), "note": note}]


class Attack:
    """What the attacks on commands share: a folder, made runs, and a judgement."""

    def __init__(self, workdir: Path, seed: int) -> None:
        self.workdir, self.seed = workdir, seed
        self.outside, self.runs = workdir / "outside", workdir / "made"
        self.prepare()

    def prepare(self) -> None:
        """Make valid objects."""

    def attempt(self, number: int) -> tuple[str, str | None]:
        """Change one of them and run what reads it."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop what runs."""

    def rng(self, number: int) -> random.Random:
        return random.Random(f"{type(self).__name__} {self.seed} {number}")

    def make(self, *words: str) -> Ended:
        """Run a command that has to succeed."""
        return self.do(words)

    def do(self, work: tuple[str, ...] | Callable[[], object]) -> Ended:
        """Run a command or a function that has to succeed, in a child: this process stays without threads."""
        child = Child(work, self.workdir)
        ended = child.wait(300, 200)
        if ended.code != 0:
            raise RuntimeError(f"{work}: exit {ended.code}: {ended.err[-500:]}")
        child.import_modules()
        return ended

    def train(self, task: str, model: str, *words: str) -> Path:
        """Train a run in a moment and return its folder."""
        before = set(self.runs.glob("*/config.toml"))
        self.make("train", task, "-m", model, "--data", "sample", "--runs", str(self.runs), *words)
        (config,) = set(self.runs.glob("*/config.toml")) - before
        return config.parent

    def judge(self, *words: str, written: tuple[Path, ...] = (), **environment: str) -> tuple[Ended, str | None]:
        """Run a command on changed input; the fault names the command."""
        ended = run_command(words, self.workdir, **environment)
        fault = find_fault(ended, self.outside, written)
        (self.outside / "tripwire").unlink(missing_ok=True)
        shown = " ".join(words).replace(str(self.workdir), "…")
        return ended, f"danseo {shown[:120]}: {fault}" if fault else None


class RunFolders(Attack):
    """A run folder with one changed file beside a good run."""

    def prepare(self) -> None:
        own = write_task(self.workdir, "classification")
        self.kept = [
            self.train("ynat", "majority"),
            self.train("ynat", "linear", "--set", "max_train_samples=64"),
            self.train("ynat", "mini", *_TINY),
            self.train(str(own), "majority"),
        ]
        self.good = shutil.copytree(self.kept[0], self.workdir / "good" / self.kept[0].name.replace("--s42", "--s7"))
        failed = shutil.copytree(self.kept[2], self.runs / "failed")
        (failed / "scores.json").unlink()
        (failed / "error.txt").write_text("RuntimeError: out of memory\n", "utf-8")
        self.kept.append(failed)
        for run in self.kept:
            shutil.rmtree(run / "model", ignore_errors=True)  # the attack on model folders has these
        with serving(answer_of(COMPLETION)) as url:
            self.make("prompt", "ynat", "-m", "server:m", "--url", url, "--data", "sample", "--runs", str(self.runs))
        self.kept += self.runs.glob("ynat--server-*")

    def attempt(self, number: int) -> tuple[str, str | None]:
        rng, root = self.rng(number), self.workdir / "changed"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.good, root / self.good.name)
        kept = rng.choice(self.kept)
        run = shutil.copytree(kept, root / kept.name)
        what = f"{kept.name} {change_folder(run, self.outside, rng)}"
        page, data = self.workdir / "page.html", ("--data", "sample")
        page.unlink(missing_ok=True)
        commands = (
            ("runs", str(root), "--table", rng.choice(("seeds", "sweep", "klue", "ner-systems", "ablation")), *data),
            ("report", str(root), "--out", str(page), *data),
            ("report", str(root), "--out", str(page), *data),
            ("eval", str(run), "--details", "--errors", "3", *data),
            ("compare", str(run), str(root / self.good.name), *data),
            ("ensemble", str(run), str(root / self.good.name), "--runs", str(self.workdir / "ensembles"), *data),
            (
                "export",
                str(run),
                "--to",
                rng.choice(("bundle", "card", "lm-eval")),
                "--out",
                str(self.workdir / "x.zip"),
            ),
            ("sweep", str(_sweep_file(self.workdir)), "--runs", str(root), *data),
        )
        listed, fault = self.judge("runs", str(root), "--json")
        if not fault and self.good.name not in listed.out:
            fault = "danseo runs: the other run is not listed"
        chosen = rng.choice(commands)
        ended, other = self.judge(*chosen, written=(page,))
        if not other and chosen[0] == "report" and ended.code:
            other = f"danseo report: one run breaks the whole report: {ended.err.strip()[-200:]}"
        return what, fault or other


def _sweep_file(workdir: Path) -> Path:
    path = workdir / "s.toml"
    path.write_text("task = 'ynat'\nmodel = 'majority'\n[grid]\nseed = [42]\n", "utf-8")
    return path


_TINY = ("--set", "max_train_samples=16", "--set", "epochs=1", "--set", "evals_per_epoch=1", "--set", "precision=fp32",
         "--set", "max_length=32", "--set", "num_threads=1")  # fmt: skip


class Bundles(Attack):
    """A bundle with one changed value and right hashes, or a changed zip."""

    def prepare(self) -> None:
        run = self.train("ynat", "majority")
        self.bundle = self.workdir / "b.zip"
        self.make("export", str(run), "--to", "bundle", "--out", str(self.bundle))
        self.content = self.bundle.read_bytes()
        self.genuine = json.loads(self.make("score", "--bundle", str(self.bundle), "--data", "sample", "--json").out)

    def attempt(self, number: int) -> tuple[str, str | None]:
        changed, what = change_content("b.zip", self.content, self.rng(number))
        self.bundle.write_bytes(changed)
        ended, fault = self.judge("score", "--bundle", str(self.bundle), "--data", "sample", "--json")
        if fault or ended.code:
            return what, fault
        forged = [
            key
            for key, value in json.loads(ended.out).items()
            if key not in ("bundle", "files", "claimed", "unverified") and value != self.genuine.get(key, "absent")
        ]
        return what, f"forged values are called verified: {', '.join(forged)[:100]}" if forged else None


class Parquet(Attack):
    """A parquet file with one changed column, as KLUE data and as the user's own."""

    def prepare(self) -> None:
        self.do(self.write_files)
        self.own = self.workdir / "classification.toml"
        self.answers = self.workdir / "answers.jsonl"
        self.answers.write_text('{"guid": "x", "prediction": "a"}\n', "utf-8")
        self.files = {path.stem: path.read_bytes() for path in sorted(self.workdir.glob("*.parquet"))}

    def write_files(self) -> None:
        from danseo.data.find import write_sample

        test_fuzz = _tests("test_fuzz")
        write_sample(self.workdir / "data")
        for name in ("ynat", "ner", "dp", "mrc"):
            (self.workdir / f"{name}.parquet").write_bytes(test_fuzz.parquet_bytes(test_fuzz.HUB[name]))
        write_task(self.workdir, "classification", "parquet")

    def attempt(self, number: int) -> tuple[str, str | None]:
        rng = self.rng(number)
        name = rng.choice(list(self.files))
        changed, what = change_content("x.parquet", self.files[name], rng)
        path = self.workdir / ("classify.parquet" if name == "classify" else "x-validation.parquet")
        path.write_bytes(changed)
        own = ("train", str(self.own), "-m", "majority", "--runs", str(self.workdir / "runs"), "--force")
        words = own if name == "classify" else ("score", name, str(path), str(self.answers), "--partial")
        return f"{name} {what}", self.judge(*words)[1]


ROWS: dict[str, list[dict[str, Any]]] = {
    "classification": [{"text": f"문장 {k}", "label": "가나"[k % 2]} for k in range(12)],
    "multilabel": [{"text": f"문장 {k}", "label": ("가", "가,나", "")[k % 3]} for k in range(12)],
    "regression": [{"text": f"문장 {k}", "label": k % 5 + 0.5} for k in range(12)],
    "multiple_choice": [{"text": f"문장 {k}", "a": "하나", "b": "둘", "label": k % 2} for k in range(12)],
    "relation": [
        {"text": f"철수는 영희의 {k}번째 친구", "subject": "철수", "object": "영희", "label": "가나"[k % 2]}
        for k in range(12)
    ],
    "tagging": [{"text": "철수가 서울에", "spans": [{"start": 0, "end": 2, "label": "PS"}]} for _ in range(12)],
    "question_answering": [
        {"text": f"서울에 {k}번 비가 왔다", "question": "어디에?", "answer": "서울", "answer_start": 0}
        for k in range(12)
    ],
}


class TaskFiles(Attack):
    """A task file, or the data that it names, with one changed value."""

    types = tuple(ROWS)

    def prepare(self) -> None:
        self.files = {}
        for type_ in self.types:
            task = write_task(self.workdir, type_)
            paths = (task, *self.workdir.glob(f"{type_}.[cj]s*"))
            self.files[type_] = {path: path.read_bytes() for path in paths}
            self.make("train", str(task), "-m", "majority", "--runs", str(self.workdir / "first"))

    def attempt(self, number: int) -> tuple[str, str | None]:
        rng = self.rng(number)
        type_ = rng.choice(self.types)
        path = rng.choice(list(self.files[type_]))
        content = self.files[type_][path]
        changed, what = change_content(path.name, content, rng)
        path.write_bytes(changed)
        task, runs = str(self.workdir / f"{type_}.toml"), str(self.workdir / "runs")
        commands = (
            ("tasks", task),
            ("data", "check", task),
            ("data", "eda", task, "--out", str(self.workdir / "eda.html")),
            ("data", "describe", str(next(p for p in self.files[type_] if p.suffix != ".toml")), "--out", "new.toml"),
            ("train", task, "-m", "linear", "--set", "max_train_samples=8", "--runs", runs, "--force"),
        )
        try:
            fault = self.judge("train", task, "-m", "majority", "--runs", runs, "--force")[1]
            return f"{path.name} {what}", fault or self.judge(*rng.choice(commands))[1]
        finally:
            path.write_bytes(content)
            (self.workdir / "new.toml").unlink(missing_ok=True)


class ModelFolders(Attack):
    """The model of a run, of an export, or a checkpoint, with one changed file, or with code beside it."""

    def prepare(self) -> None:
        from danseo.data.find import write_sample

        tiny = _tests("tiny")
        write_sample(self.workdir / "data")
        shorten_dev(self.workdir / "data")
        self.do(lambda: tiny.tiny_encoder(self.workdir / "tiny", self.workdir / "data"))
        self.do(lambda: tiny.tiny_decoder(self.workdir / "decoder", self.workdir / "data"))
        encoder = self.train("ynat", str(self.workdir / "tiny"), *_TINY)
        linear = self.train("ynat", "linear", "--set", "max_train_samples=64")
        exported = self.workdir / "exported"
        self.make("export", str(encoder), "--to", "onnx", "--out", str(exported))
        self.lines = self.workdir / "one.txt"
        self.lines.write_text("서울에 비가 왔다.\n", "utf-8")
        self.kept = [encoder, linear, exported, self.workdir / "decoder", self.workdir / "tiny"]

    def attempt(self, number: int) -> tuple[str, str | None]:
        rng, kept = self.rng(number), self.kept[number % len(self.kept)]
        folder = self.workdir / "changed" / kept.name
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(kept, folder)
        model = folder / "model" if (folder / "model").is_dir() else folder
        what = (
            name_code(model, self.outside, rng)
            if rng.random() < 0.15
            else change_folder(model, self.outside, rng, links=0)
        )
        runs = str(self.workdir / "runs")  # links are allowed here: the Hub's cache is made of them
        words: tuple[str, ...] = ("predict", str(folder), str(self.lines), "--device", "cpu")
        if kept.name == "decoder":
            words = ("prompt", "ynat", "-m", f"llm:{folder}", "--data", str(self.workdir / "data"), "--runs", runs)
            words += ("--device", "cpu", "--force")
        elif kept.name == "tiny":
            words = ("train", "ynat", "-m", str(folder), "--data", "sample", "--runs", runs, *_TINY, "--force")
        return f"{kept.name} {what}", self.judge(*words)[1]


def name_code(model: Path, outside: Path, rng: random.Random) -> str:
    """Put Python code into a model folder and name it where libraries look for it; or pickle the weights."""
    from tests.mutations import pickled

    wire = outside / "tripwire"
    code = f"open({str(wire)!r}, 'w').close()\nclass C:\n    pass\n"
    for name in ("code.py", "modeling_code.py", "__init__.py", "numpy.py"):
        (model / name).write_text(code, "utf-8")
    names = ("AutoConfig", "AutoModel", "AutoTokenizer", "AutoModelForCausalLM", "AutoModelForMaskedLM")
    files = [name for name in ("config.json", "tokenizer_config.json", "danseo.json") if (model / name).is_file()]
    how = rng.choice(["auto_map", "auto_map", "attribute_map", "trust", "pickle", "pickle beside"])
    if how.startswith("pickle") or not files:
        for path in model.glob("*.safetensors"):
            if how == "pickle":
                path.unlink()
            (model / "pytorch_model.bin").write_bytes(pickled(wire))
        return how
    path = model / rng.choice(files)
    document = json.loads(path.read_bytes())
    document["model_type"] = rng.choice((document.get("model_type"), "own", None))
    key = "zzz" if how == "attribute_map" else "auto_map"
    document |= {key: dict.fromkeys(names, "code.C"), "trust_remote_code": True}
    if how == "attribute_map":
        document["attribute_map"] = {"zzz": "auto_map"}
    path.write_text(json.dumps(document), "utf-8")
    return f"{path.name}: {how}, model_type {document['model_type']}"


# Servers


class Replies(Attack):
    """Replies of a language model's server: a changed chat completion, or a changed HTTP answer around it."""

    def prepare(self) -> None:
        from danseo.data.find import write_sample

        write_sample(self.workdir / "data")
        shorten_dev(self.workdir / "data")
        self.attempt(-1)  # the good reply, for the imports

    def attempt(self, number: int) -> tuple[str, str | None]:
        runs = self.workdir / "runs"
        plan = change_reply(self.rng(number)) if number >= 0 else (answer_of(COMPLETION), "")
        shutil.rmtree(runs, ignore_errors=True)
        with serving(plan[0]) as url:
            words = ["prompt", "ynat", "-m", "server:m", "--url", url, "--data", str(self.workdir / "data")]
            child = Child(
                [*words, "--runs", str(runs), "--timeout", "3", "--force"], self.workdir, DANSEO_API_KEY=SECRET
            )
            fault = find_fault(child.wait(), self.outside)
        if number < 0:
            child.import_modules()
        stored = [path for path in runs.rglob("*") if path.is_file() and SECRET in path.read_text(errors="replace")]
        return plan[1], fault or (f"the key is stored in {stored[0].name}" if stored else None)


def _tests(name: str) -> Any:
    """Return a module of the tests, which are not typed."""
    return importlib.import_module(f"tests.{name}")


def shorten_dev(data: Path) -> None:
    """Leave a few dev examples of ynat."""
    from danseo.tasks import TASKS

    task = TASKS["ynat"]
    path = data / task.folder / task.file("dev")
    path.write_bytes(_tests("test_fuzz").shorten(task, path))


_LABEL = '{"label":"정치"}'
COMPLETION: dict[str, Any] = {
    "id": "x",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": _LABEL, "reasoning_content": "", "refusal": None},
            "finish_reason": "stop",
            "logprobs": {
                "content": [
                    {"token": part, "logprob": -0.1, "top_logprobs": [{"token": part, "logprob": -0.1}]}
                    for part in ('{"label":"', "정치", '"}')
                ]
            },
        }
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}},
}


def answer_of(document: Any, status: int = 200, **headers: str) -> bytes:
    """Write an HTTP answer."""
    body = document if isinstance(document, bytes) else dump_json(document).encode()
    lines = {"Content-Type": "application/json", "Connection": "close", "Content-Length": str(len(body)), **headers}
    head = f"HTTP/1.1 {status} X\r\n" + "".join(
        f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items()
    )
    return head.encode("latin-1") + b"\r\n" + body


@contextmanager
def serving(answer: bytes | Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """Serve a chat model that gives this answer to each request, and a good one if the request is sent again."""
    seen, good = set[bytes](), answer_of(COMPLETION)
    over = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                length = 0
                while (line := self.rfile.readline()).strip():
                    length = int(line.split(b":")[1]) if line.lower().startswith(b"content-length:") else length
                body = self.rfile.read(length)
                chosen = good if body in seen or b"zq7319" in body else answer  # the latter asks for a schema
                seen.add(body)
                for part in [chosen] if isinstance(chosen, bytes) else chosen():
                    if over.is_set():
                        return
                    self.wfile.write(part)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            over.set()
            server.shutdown()
            thread.join()


def endless(head: bytes, part: bytes, pause: float = 0.0) -> Callable[[], Iterator[bytes]]:
    """Return an answer whose body does not end."""

    def parts() -> Iterator[bytes]:
        yield head
        while True:
            yield part
            time.sleep(pause)

    return parts


def change_reply(rng: random.Random) -> tuple[bytes | Callable[[], Iterator[bytes]], str]:
    """Change a chat completion, or the HTTP answer that carries it."""
    if rng.random() < 0.7:
        document, what = change_document(COMPLETION, rng)
        return answer_of(document), what
    answers = odd_answers()
    what = rng.choice(list(answers))
    return answers[what], what


@cache
def odd_answers() -> dict[str, bytes | Callable[[], Iterator[bytes]]]:
    """Return HTTP answers that hide, replace or never end a chat completion, by name."""
    text, start = dump_json(COMPLETION).encode(), b"HTTP/1.1 200 OK\r\n"
    key, bomb = f"Bearer {SECRET}".encode(), gzip.compress(bytes(1 << 30), 1)
    return {
        "unknown charset": answer_of(text, Content_Type="application/json; charset=nonsense"),
        "charset UTF-16": answer_of(text, Content_Type="application/json; charset=utf-16"),
        "gzip that is none": answer_of(text, Content_Encoding="gzip"),
        "unknown encoding": answer_of(text, Content_Encoding="zzz, gzip"),
        "gzip bomb": answer_of(bomb, Content_Encoding="gzip"),
        "nested gzip bomb": answer_of(gzip.compress(bomb), Content_Encoding="gzip, gzip"),
        "endless body": endless(start + b"\r\n", b"[" * (1 << 16)),
        "endless chunks": endless(start + b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\naaaa\r\n" * 9999),
        "endless headers": endless(start, b"X-A: b\r\n" * 9999),
        "dripped body": endless(start + b"Content-Length: 99999\r\n\r\n", b" ", 0.3),
        "dripped headers": endless(start, b"X-A: b\r\n", 0.3),
        "key in the reply": answer_of(text.replace("정치".encode(), key)),
        "key in a refusal": answer_of(b'{"error": "' + key + b' is wrong"}', 400),
        "key in a failure": answer_of(key, 503, Retry_After="0"),
        "redirect": answer_of(b"", 302, Location="http://127.0.0.1:9/"),
        "empty": answer_of(b""),
        "web page": answer_of(b"<html></html>", Content_Type="text/html"),
        "status 999": answer_of(text, 999),
        "status 100 alone": b"HTTP/1.1 100 Continue\r\n\r\n",
        "retry after nan": answer_of(text, 429, Retry_After="nan"),
        "retry after minus one": answer_of(text, 503, Retry_After="-1"),
        "two documents": answer_of(text + text),
        "shorter than stated": answer_of(text, Content_Length="99999"),
        "control characters in a refusal": answer_of(b"\x1b[2J\0" * 99, 400),
        "no HTTP": bytes(range(256)) * 9,
        "nothing": b"",
        "100,000 choices": answer_of({**COMPLETION, "choices": COMPLETION["choices"] * 100_000}),
    }


class Web(Attack):
    """What the attacks on servers share: a started server, raw requests, and a check that it is still well."""

    targets: tuple[str, ...] = ()
    body = b""

    def start(self, *words: str) -> None:
        """Start a server on a free port."""
        folder = self.workdir / "server"
        folder.mkdir(exist_ok=True)
        self.child = Child((*words, "--port", "0"), folder, DANSEO_API_KEY=SECRET)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(OSError, AttributeError):  # not yet
                said = (folder / ".err").read_text(errors="replace")
                self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", said).group(1))  # type: ignore[union-attr]
                return socket.create_connection(("127.0.0.1", self.port), 60).close()
            time.sleep(0.05)
        raise RuntimeError(f"danseo {words[0]} does not start")

    def end(self) -> None:
        self.child.stop()

    def send(self, content: bytes, seconds: float = 20.0) -> bytes:
        """Send bytes and return what comes back, as far as it comes."""
        received = b""
        with socket.create_connection(("127.0.0.1", self.port), seconds) as connection:
            with suppress(OSError):
                connection.sendall(content)
                if not is_whole(content):
                    connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while part := connection.recv(1 << 16):
                    received += part
        return received

    def get(self, target: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", target)
            reply = connection.getresponse()
            return reply.status, reply.read().decode(errors="replace")
        finally:
            connection.close()

    def fault_of(self, rng: random.Random, method: str, headers: list[tuple[str, str]]) -> tuple[str, str | None]:
        """Send a changed request; the answer is a status below 500, quickly, and then the server is well."""
        target = rng.choice(self.targets)
        host = [("Host", f"127.0.0.1:{self.port}"), ("Connection", "close")]
        request, what = change_request(method, target, [*host, *headers], self.body, rng)
        what, began = f"{method} {target} {what}", computed(self.child.pid)
        try:
            reply = self.send(request)
        except TimeoutError:
            return what, "no answer within 20 s"
        seconds = computed(self.child.pid) - began
        status = int(found.group(1)) if (found := re.match(rb"HTTP/1\.[01] (\d{3})", reply)) else 0
        if not status and is_whole(request):
            return what, "the connection is lost"
        if status >= 500:
            return what, f"status {status}"
        if SECRET.encode() in reply:
            return what, "shows the content of a file outside the folder, or the key"
        if seconds > 5:
            return what, f"takes {seconds:.1f} s of computing"
        return what, self.illness()

    def illness(self) -> str | None:
        """Return what is wrong with the server after a request."""
        raise NotImplementedError

    def complaint(self) -> str | None:
        """Return what the server logged or used that it should not."""
        log = (self.workdir / "server" / ".err").read_text(errors="replace")
        if "Traceback" in log:
            (self.workdir / "server" / ".err").write_text("")
            return f"traceback: {log.strip().splitlines()[-1][:200]}"
        used = resident(self.child.pid) - self.child.before
        return f"uses {used:.0f} MB" if used > MEGABYTES else None


def is_whole(request: bytes) -> bool:
    """Return whether a request holds all that its length states, so that it must be answered."""
    head, _, body = request.partition(b"\r\n\r\n")
    lengths = re.findall(rb"(?im)^content-length: *(\S*)\r?$", head)
    if re.search(rb"(?im)^transfer-encoding:", head):
        return body.endswith(b"0\r\n\r\n")
    return not lengths or (lengths[0].isdigit() and int(lengths[0]) <= len(body))


class Serve(Web):
    """Changed requests to `danseo serve`."""

    targets = ("/predict", "/predict?tags=1&text=1")
    body = '[{"text": "서울에 비가 왔다."}, "부산에도 왔다."]'.encode()

    def prepare(self) -> None:
        self.start("serve", str(self.train("ynat", "linear", "--set", "max_train_samples=64")))

    def attempt(self, number: int) -> tuple[str, str | None]:
        return self.fault_of(self.rng(number), "POST", [("Content-Type", "application/json")])

    def illness(self) -> str | None:
        status, _ = self.get("/health")
        return self.complaint() or (f"/health has status {status} afterwards" if status != 200 else None)


class Board(Web):
    """Changed requests to `danseo board`, and its pages over a changed run folder beside a good run."""

    def prepare(self) -> None:
        self.kept = self.train("ynat", "mini", *_TINY)
        shutil.rmtree(self.kept / "model")
        self.root = self.workdir / "root"
        self.good = shutil.copytree(self.kept, self.root / self.kept.name.replace("--s42", "--s7"))
        pages = ("/", "/runs", "/task/ynat", "/compare", "/live.json", "/index.json", "/runs.json")
        self.targets = (*pages, f"/run/{self.good.name}")
        self.start("board", str(self.root), "--data", "sample")
        self.do(lambda: self.show_pages(self.root))

    def attempt(self, number: int) -> tuple[str, str | None]:
        rng = self.rng(number)
        if rng.random() < 0.5:
            return self.fault_of(rng, "GET", [])
        root = self.workdir / "changed"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.good, root / self.good.name)
        changed = shutil.copytree(self.kept, root / self.kept.name)
        what = change_folder(changed, self.outside, rng)
        if rng.random() < 0.3:
            (changed / "scores.json").unlink(missing_ok=True)
            what += ", without scores"
        ended = Child(lambda: self.show_pages(root), self.workdir).wait()
        fault = find_fault(ended, self.outside)
        return what, fault or (None if self.good.name in ended.out else "the good run is not listed")

    def show_pages(self, root: Path) -> None:
        """Print all pages of a board; a page that fails raises, as it would be a status 500."""
        from danseo.board.app import make_app

        app = make_app(root, "sample")
        chosen = "&".join(f"run=run/{path.name}" for path in sorted(root.iterdir()))
        changed = [f"/run/{path.name}{suffix}" for path in sorted(root.iterdir()) for suffix in ("", ".json")]
        for target in (*self.targets, *changed, f"/compare?task=ynat&{chosen}", "/sweeps", "/pretraining"):
            status, text = asyncio.run(call_app(app, target))
            if status >= 500 or (status != 200 and target in self.targets):
                raise RuntimeError(f"{target}: status {status}")
            print(text)

    def illness(self) -> str | None:
        status, text = self.get("/runs")
        is_listed = status == 200 and self.good.name[-8:] in text
        return self.complaint() or (None if is_listed else f"/runs has status {status} and not the good run")


async def call_app(app: Any, target: str) -> tuple[int, str]:
    """Ask an ASGI application for a page."""
    path, _, query = target.partition("?")
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    scope |= {"headers": [(b"host", b"127.0.0.1")], "http_version": "1.1", "scheme": "http", "root_path": ""}
    await app({**scope, "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1)}, receive, send)
    return messages[0]["status"], b"".join(each.get("body", b"") for each in messages[1:]).decode()


# The user's own tasks


def write_task(workdir: Path, type_: str, suffix: str = "") -> Path:
    """Write a small data file and the task file that describes it."""
    columns: dict[str, Any] = {key: key for key in ROWS[type_][0] if key not in ("a", "b")}
    columns |= {"choices": ["a", "b"]} if type_ == "multiple_choice" else {}
    suffix = suffix or ("jsonl" if type_ in ("tagging", "question_answering") else "csv")
    path = workdir / f"{type_}.{suffix}"
    if suffix == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(ROWS[type_]), path)
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS[type_]), "utf-8")
    else:
        lines = [list(ROWS[type_][0]), *([str(cell) for cell in row.values()] for row in ROWS[type_])]
        path.write_text("".join(",".join(f'"{c}"' if "," in c else c for c in line) + "\n" for line in lines), "utf-8")
    task = workdir / f"{type_}.toml"
    settings = {"type": type_, "train": path.name, "dev": 0.5, **columns}
    task.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()), "utf-8")
    return task


ATTACKS: dict[str, tuple[type[Attack], int]] = {
    "run-folders": (RunFolders, 300),
    "bundles": (Bundles, 600),
    "parquet": (Parquet, 300),
    "task-files": (TaskFiles, 400),
    "model-folders": (ModelFolders, 300),
    "replies": (Replies, 200),
    "serve": (Serve, 1500),
    "board": (Board, 400),
}
"""Name -> the attack and how many inputs it tries at size 1."""
