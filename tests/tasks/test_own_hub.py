"""Users' own tasks whose data is on the Hub: named, fetched once, kept; what is not there is one line.

A stub on 127.0.0.1 stands for the Hub; nothing else is ever contacted.
"""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.data.guessing import describe_files
from danseo.errors import DanseoError
from danseo.tasks import get_task

NAMES = {"label": {"names": ["나쁨", "좋음"], "_type": "ClassLabel"}}


def table(rows: list[dict], features: dict | None = None) -> bytes:
    note = {"huggingface": json.dumps({"info": {"features": features or {}}})}
    whole = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(note), whole)
    return whole.getvalue()


def reviews(first: int, count: int) -> bytes:
    return table([{"text": f"리뷰 {k}", "label": k % 2} for k in range(first, first + count)], NAMES)


CSV = "문장,분류\n" + "".join(f"글 {k},{'가나'[k % 2]}\n" for k in range(20))
TAGGED = table([{"tokens": ["서울", "에", str(k)], "ner_tags": ["B-LOC", "O", "O"]} for k in range(9)])
ASKED = table(
    [
        {"context": f"{k}번 집은 서울", "question": "어디?", "answers": {"text": ["서울"], "answer_start": [6]}}
        for k in range(9)
    ]
)
SETS = {
    "owner/reviews": {
        "main": {
            "README.md": b"#",
            "data/train-00000-of-00002.parquet": reviews(0, 10),
            "data/train-00001-of-00002.parquet": reviews(10, 10),
            "data/validation-00000-of-00001.parquet": reviews(20, 6),
            "data/test-00000-of-00001.parquet": reviews(30, 4),
        }
    },
    "owner/parts": {
        "main": {
            "a/train.csv": CSV.encode(),
            "b/train.csv": CSV.encode(),
            "a/test.csv": CSV.encode() + "끝,가\n".encode(),
        }
    },
    "owner/script": {"main": {"script.py": b""}, "refs/convert/parquet": {"default/train/0000.parquet": reviews(0, 8)}},
    "owner/tagged": {"main": {"train.parquet": TAGGED}},
    "owner/asked": {"main": {"train.parquet": ASKED}},
}


class Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        content = self.found(self.path.replace("%2F", "/"))
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def found(self, path: str) -> bytes | None:
        for name, revisions in SETS.items():
            for revision, files in revisions.items():
                if path == f"/api/datasets/{name}/revision/{revision}":
                    return json.dumps({"siblings": [{"rfilename": file} for file in files]}).encode()
                for file, content in files.items():
                    if path == f"/datasets/{name}/resolve/{revision}/{file}":
                        return content
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Handler, "asked", [])
    yield Handler.asked
    server.shutdown()
    server.server_close()
    thread.join()


def task_of(train: str, dev: str, **more: str) -> str:
    lines = {"kind": "classify", "train": train, "dev": dev, "text": "text", "label": "label", **more}
    Path("own.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()), "utf-8")
    return "own.toml"


def test_a_dataset_is_fetched_once_and_kept(hub, monkeypatch):
    task = task_of("owner/reviews", "owner/reviews")
    found = CliRunner().invoke(cli, ["data", "check", task], catch_exceptions=False)
    assert "20 examples" in found.output, found.output
    assert "6 examples" in found.output
    assert get_task(task).labels == ("나쁨", "좋음")
    count = sum("owner" in path for path in hub)
    assert count == 5, "the list of files for each split, two parts of train, one of dev"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    made = CliRunner().invoke(cli, ["train", task, "-m", "majority", "--json"], catch_exceptions=False)
    assert json.loads(made.output)["run"]
    assert CliRunner().invoke(cli, ["data", "get", task]).output.endswith("2 files\n")
    assert sum("owner" in path for path in hub) == count


def test_parts_are_named(hub):
    assert len(get_task(task_of("owner/reviews:data/train", "owner/reviews:data/test")).labels) == 2
    task = get_task(task_of("owner/parts:a", "owner/parts:a/test.csv", text="문장", label="분류"))
    assert task.labels == ("가", "나")
    assert get_task(task_of("owner/script", 0.5)).labels == ("나쁨", "좋음")


@pytest.mark.parametrize(
    ("train", "complaint"),
    [
        ("owner/parts", "owner/parts has the configs a, b; name one: owner/parts:a"),
        ("owner/parts:c", "no config 'c' has train; there is a, b"),
        ("owner/reviews:data/other", "the Hub has no file of other in it"),
        ("owner/nothing", "status 404, there is no such file"),
        ("owner/reviews:none.csv", "status 404, there is no such file"),
        ("owner/none.csv", "own: owner/none.csv is not in"),
    ],
)
def test_what_is_not_there_is_one_line(hub, tmp_path, train, complaint):
    with pytest.raises(DanseoError) as caught:
        get_task(task_of(train, 0.5))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_offline_says_so(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DanseoError, match="owner/reviews: HF_HUB_OFFLINE is set, so nothing is fetched"):
        get_task(task_of("owner/reviews", "owner/reviews"))
    assert hub == []


@pytest.mark.parametrize(
    ("name", "kind"), [("owner/tagged", "tag"), ("owner/asked", "answer"), ("owner/reviews", "classify")]
)
def test_datasets_are_described(hub, tmp_path, name, kind):
    text = describe_files([Path(name)], tmp_path / "own.toml")
    assert f'kind = "{kind}"' in text
    assert f'train = "{name}"' in text
    (tmp_path / "own.toml").write_text(text, "utf-8")
    task = get_task("own.toml")
    (example, *_) = task.read(next((tmp_path / "cache" / "hub").glob("*/*")))
    assert {"tag": ("B-LOC", "I-LOC", "O", "O", "O", "O"), "answer": ("서울",), "classify": "나쁨"}[
        kind
    ] == example.gold
