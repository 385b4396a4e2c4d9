"""Download Ko-LAMBADA from a stub of the Hub on 127.0.0.1, gated as the real one is."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROWS = [
    {"index": n, "text": f"토끼 {n}마리가 뛰었다. 그래서 토끼는 지쳤다.", "answer": "토끼", "candidate": "거북"}
    for n in range(3)
]
BODY = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
FILE = "data/validation.jsonl"
FETCH = """
from danseo.mlm.probing.build import fetch_lambada
print([(row.text("answer"), row.values["split"]) for row in fetch_lambada()])
"""


class Gated(BaseHTTPRequestHandler):
    """List one file, and send it with the right token."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        if self.headers.get("Authorization") != "Bearer hf_good":
            self.reply(401, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        elif "/resolve/" in self.path:
            self.reply(200, BODY, {"ETag": '"abc"', "X-Repo-Commit": "f" * 40}, body)
        elif "/tree/" in self.path:
            self.reply(200, json.dumps([{"type": "file", "path": FILE, "size": len(BODY), "oid": "abc"}]).encode())
        else:
            listed = {"id": "x", "sha": "f" * 40, "siblings": [{"rfilename": FILE}]}
            self.reply(200, json.dumps(listed).encode())

    def reply(self, status: int, content: bytes, headers: dict[str, str] | None = None, body: bool = True) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body and self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gated)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run_python(endpoint: str, folder: Path, code: str = FETCH, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE"))}
    own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], env={**clean, **own, **environment}, capture_output=True, text=True, timeout=60
    )


def test_token_of_the_environment_is_used(endpoint, tmp_path):
    done = run_python(endpoint, tmp_path, HF_TOKEN="hf_good")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([("토끼", "dev")] * 3)


def test_gated_dataset_without_token_gives_one_line(endpoint, tmp_path):
    code = "from danseo.cli import main; main(['data', 'probes', '--lambada', 'hub', '--out', 'never'])"
    done = run_python(endpoint, tmp_path, code)
    assert done.returncode == 2
    assert "gated" in done.stderr
    assert done.stderr.count("\n") == 1
