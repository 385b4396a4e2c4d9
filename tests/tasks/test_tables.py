"""Users' files in CP949, UTF-16 and UTF-8, with the separators and quotes that spreadsheets write."""

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import danseo as python
from danseo.cli import cli
from danseo.encodings import detect_encoding, find_undecodable_line
from danseo.tasks import get_task

pytest.importorskip("sklearn")

TEXTS = [(f'좋은 영화; "{k}" 참 좋다', "긍정") if k % 2 else (f"나쁜 영화, {k} 뷁", "부정") for k in range(30)]


def as_table(separator: str, quoting: int = csv.QUOTE_MINIMAL) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator, quoting=quoting, lineterminator="\r\n")
    writer.writerows([("document", "label"), *TEXTS])
    return buffer.getvalue()


def run(*arguments: str) -> str:
    found = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def described(path: Path, name: str, content: bytes) -> Path:
    (path / name).write_bytes(content)
    run("data", "describe", str(path / name), "--out", str(path / "own.toml"))
    return path / "own.toml"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp949", "utf-16", "utf-16-le"])
@pytest.mark.parametrize(
    ("name", "separator", "quoting"),
    [("a.csv", ",", csv.QUOTE_MINIMAL), ("a.csv", ";", csv.QUOTE_ALL), ("a.csv", ";", csv.QUOTE_MINIMAL)],
)
def test_a_table_is_read_in_every_encoding(tmp_path, encoding, name, separator, quoting):
    content = as_table(separator, quoting).encode(encoding)
    if encoding == "utf-16-le":
        content = b"\xff\xfe" + content
    task = get_task(str(described(tmp_path, name, content)))
    assert [(e.text, e.gold) for e in task.read(tmp_path / name)] == TEXTS


def test_files_of_a_task_may_have_different_encodings(tmp_path):
    (tmp_path / "dev.csv").write_bytes(as_table(",").encode("utf-16"))
    task = described(tmp_path, "a.csv", as_table(",").encode("cp949"))
    assert 'encoding = "cp949"' in task.read_text("utf-8")
    assert len(get_task(str(task)).read(tmp_path / "dev.csv")) == len(TEXTS)
    task.write_text(task.read_text("utf-8").replace('encoding = "cp949"', 'encoding = "latin-1"'), "utf-8")
    (tmp_path / "latin.csv").write_bytes("document,label\ncafé,긍정\n".replace("긍정", "A").encode("latin-1"))
    text = task.read_text("utf-8") + 'labels = ["A", "B"]\n'
    task.write_text(text, "utf-8")
    assert get_task(str(task)).read(tmp_path / "latin.csv")[0].text == "café"


def test_a_run_reads_the_file_that_it_was_trained_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = described(tmp_path, "a.csv", as_table(";").encode("cp949"))
    run("train", str(task), "-m", "linear")
    trained = str(next(Path("runs").glob("*--*")))
    run("predict", trained, "a.csv", "-o", "answers.csv")
    rows = list(csv.DictReader(io.StringIO(Path("answers.csv").read_text("utf-8-sig"))))
    assert [row["document"] for row in rows] == [text for text, _ in TEXTS]
    run("predict", trained, "a.csv", "-o", "answers.jsonl")
    found = json.loads(run("score", str(task), "a.csv", "answers.jsonl", "--json", "--resamples", "0"))
    assert found["n"] == len(TEXTS)
    Path("a.txt").write_bytes(b"document\tlabel\n" + "\n".join(f"{t}\t{x}" for t, x in TEXTS).encode("cp949"))
    lines = run("predict", trained, "a.txt", "--text").splitlines()
    assert [json.loads(line)["text"] for line in lines] == [text for text, _ in TEXTS], "the header is known"


def test_odd_lines_are_found_beyond_the_first_block():
    lines = [f"문장 {number},A\n".encode() for number in range(20_000)]
    lines[15_000] = "문장,A\n".encode("cp949")
    stream = io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(b"".join(lines)))))  # type: ignore[arg-type]
    assert (find_undecodable_line(stream, "utf-8"), detect_encoding(stream)) == (15_001, None)


def test_python_reads_them_too(tmp_path):
    task = described(tmp_path, "a.csv", as_table(",").encode("utf-16"))
    assert len(python.load(str(task), "train")) > 0
