"""Custom tasks with data on a stub Hub: fetched once and cached; what is missing is one line."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.data.schema_inference import describe_files
from danseo.errors import DanseoError
from danseo.tasks import get_task
from tests.loopback import serve, set_endpoint

NAMES = {"label": {"names": ["나쁨", "좋음"], "_type": "ClassLabel"}}


def table(rows, features=None):
    note = {"huggingface": json.dumps({"info": {"features": features or {}}})}
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(note), buffer)
    return buffer.getvalue()


def reviews(first, count):
    return table([{"text": f"리뷰 {k}", "label": k % 2} for k in range(first, first + count)], NAMES)


CSV = "문장,분류\n" + "".join(f"글 {k},{'가나'[k % 2]}\n" for k in range(20))
TAGGED = table([{"tokens": ["서울", "에", str(k)], "ner_tags": ["B-LOC", "O", "O"]} for k in range(9)])
ANSWERS = {"text": ["서울"], "answer_start": [6]}
QUESTIONS = table([{"context": f"{k}번 집은 서울", "question": "어디?", "answers": ANSWERS} for k in range(9)])
DATASETS = {
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
    "owner/questions": {"main": {"train.parquet": QUESTIONS}},
}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The paths that are requested from a stub Hub."""
    requests = []

    def respond(path, headers):
        requests.append(path)
        content = find_content(path.replace("%2F", "/"))
        return (404, {}, b"") if content is None else (200, {}, content)

    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with serve(respond) as url:
        set_endpoint(monkeypatch, url)
        yield requests


def find_content(path):
    for name, revisions in DATASETS.items():
        for revision, files in revisions.items():
            if path == f"/api/datasets/{name}/revision/{revision}":
                return json.dumps({"siblings": [{"rfilename": file} for file in files]}).encode()
            for file, content in files.items():
                if path == f"/datasets/{name}/resolve/{revision}/{file}":
                    return content
    return None


def write_task(train, dev, **more):
    lines = {"type": "classification", "train": train, "dev": dev, "text": "text", "label": "label", **more}
    Path("own.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()), "utf-8")
    return "own.toml"


def test_dataset_is_fetched_once_and_cached(hub, monkeypatch):
    task = write_task("owner/reviews", "owner/reviews")
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
    assert len(get_task(write_task("owner/reviews:data/train", "owner/reviews:data/test")).labels) == 2
    task = get_task(write_task("owner/parts:a", "owner/parts:a/test.csv", text="문장", label="분류"))
    assert task.labels == ("가", "나")
    assert get_task(write_task("owner/script", 0.5)).labels == ("나쁨", "좋음")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("owner/parts", "configs a, b; name one"),
        ("owner/parts:c", "no config 'c' has train"),
        ("owner/reviews:data/other", "no file of other"),
        ("owner/nothing", "status 404, there is no such file"),
        ("owner/reviews:none.csv", "status 404, there is no such file"),
        ("owner/none.csv", "owner/none.csv is not in"),
    ],
)
def test_missing_datasets_and_files(hub, tmp_path, train, message):
    with pytest.raises(DanseoError) as caught:
        get_task(write_task(train, 0.5))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_offline(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DanseoError, match="HF_HUB_OFFLINE is set"):
        get_task(write_task("owner/reviews", "owner/reviews"))
    assert hub == []


@pytest.mark.parametrize(
    ("name", "type_"),
    [("owner/tagged", "tagging"), ("owner/questions", "question_answering"), ("owner/reviews", "classification")],
)
def test_datasets_are_described(hub, tmp_path, name, type_):
    text = describe_files([Path(name)], tmp_path / "own.toml")
    assert f'type = "{type_}"' in text
    assert f'train = "{name}"' in text
    (tmp_path / "own.toml").write_text(text, "utf-8")
    task = get_task("own.toml")
    (example, *_) = task.read(next((tmp_path / "cache" / "hub").glob("*/*")))
    assert {
        "tagging": ("B-LOC", "I-LOC", "O", "O", "O", "O"),
        "question_answering": ("서울",),
        "classification": "나쁨",
    }[type_] == example.gold
