"""What danseo predict writes, field by field, for every task; the schema that is shipped describes it."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.config.run import RunConfig
from danseo.experiment import run_experiment
from danseo.inference.output import RESERVED_FIELDS, read_record_schema
from danseo.records import Prediction, TextExample
from danseo.tasks import TASKS
from tests.conftest import ROOT
from tests.tiny import read_split

ENTITY = {"word": "김", "start_idx": 0, "end_idx": 0, "type": "PER"}
INPUTS = {
    "ynat": {"title": "새 공장 착공"},
    "sts": {"sentence1": "비가 온다.", "sentence2": "눈이 온다."},
    "nli": {"premise": "비가 온다.", "hypothesis": "날이 흐리다."},
    "ner": {"text": "서울에 비가 왔다."},
    "re": {"sentence": "김 씨는 서울에 산다.", "subject_entity": ENTITY, "object_entity": ENTITY},
    "dp": {"text": "나는 간다."},
    "mrc": {"context": "비가 왔다.", "question": "무엇이 왔나?"},
    "wos": {"dialogue": [{"role": "user", "text": "식당을 찾아요."}]},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("runs")
    return lambda task: run_experiment(RunConfig(task=task, model="majority"), sample, folder).path


@pytest.fixture
def predict(tmp_path: Path) -> Callable[..., str]:
    """What danseo predict writes for lines."""

    def run(path: Path, *options: object, lines: str = "") -> str:
        (tmp_path / "lines.txt").write_text(lines, encoding="utf-8")
        source = [] if lines == "" else [str(tmp_path / "lines.txt")]
        result = CliRunner().invoke(cli, ["predict", str(path), *source, *map(str, options)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.mark.parametrize("task", INPUTS)
def test_records_match_the_schema_and_keep_fields_of_the_user(task: str, runs, predict) -> None:
    line = {**INPUTS[task], "id": 12, "source": "신문", "answer": "mine", "nested": {"a": [1]}}
    record = json.loads(predict(runs(task), "--text", "--tags", lines=json.dumps(line)))
    jsonschema.validate(record, read_record_schema())
    assert (record["guid"], record["line"], record["id"]) == ("12", 1, 12)
    assert (record["source"], record["input_answer"], record["nested"]) == ("신문", "mine", {"a": [1]})
    assert not set(INPUTS[task]) & set(record) - {"text", "question"}, "what the task read is there only as text"
    assert ("text" in record) == (task != "wos")
    assert ("tags" in record) == (task == "ner")
    short = json.loads(predict(runs(task), lines=json.dumps(line)))
    assert not {"text", "pair", "turns", "tags", "question"} & set(short)


def test_the_schema_names_every_field_and_so_does_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    assert set(read_record_schema()["properties"]) == RESERVED_FIELDS
    for name in RESERVED_FIELDS:
        assert f"`{name}`" in page


def test_spans_have_offsets_and_the_lowest_probability() -> None:
    task, example = TASKS["ner"], TextExample("1", "김 서울", None)
    tags, table = ("B-PS", "O", "B-LC", "I-LC"), np.zeros((4, len(TASKS["ner"].labels)))
    for position, tag, chance in ((0, "B-PS", 0.5), (2, "B-LC", 0.9), (3, "I-LC", 0.75)):
        table[position, task.labels.index(tag)] = chance
    record = task.type.to_row(task, example, Prediction("1", tags), table, with_tags=True)
    assert record["spans"] == [
        {"start": 0, "end": 1, "type": "PS", "text": "김", "confidence": 0.5},
        {"start": 2, "end": 4, "type": "LC", "text": "서울", "confidence": 0.75},
    ]
    assert record["tags"][1] == {"character": " ", "tag": "O", "confidence": None}
    assert record["tags"][3] == {"character": "울", "tag": "I-LC", "confidence": 0.75}


def test_csv_goes_in_and_out(runs, predict, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes('\ufeffid,title,note\r\n7,"새 공장, ""착공""\n둘째 줄",=1+1\r\nx,비,\r\n'.encode())
    out = tmp_path / "out.csv"
    predict(runs("ynat"), source, "-o", out, "--text")
    assert out.read_bytes().startswith(b"\xef\xbb\xbf"), "for Excel"
    first, second = csv.DictReader(out.open(encoding="utf-8-sig"))
    assert list(first) == ["guid", "line", "id", "note", "text", "answer", "confidence"]
    assert (first["guid"], first["line"]) == ("7", "2")
    assert "둘째 줄" in first["text"]
    assert first["note"] == "'=1+1", "no formula of somebody's text runs in a spreadsheet"
    assert (second["guid"], second["line"], second["text"]) == ("x", "4", "비")
    assert first["answer"] in TASKS["ynat"].labels


def test_bad_rows_are_named(runs, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text('title,a\n비,1\n눈\n안개,2\n"열린 것,3\n')
    result = CliRunner().invoke(cli, ["predict", str(runs("ynat")), str(source)])
    assert [json.loads(line)["line"] for line in result.stdout.splitlines()] == [2, 4]
    assert "danseo: line 3: 1 cells under 2 columns" in result.stderr
    assert "danseo: line 5: a quotation mark is never closed" in result.stderr


def test_conll_is_what_the_task_reads(runs, predict, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    predict(runs("ner"), "--format", "conll", "-o", out, lines="서울에 비\n부산\n")
    assert [(example.guid, example.text) for example in TASKS["ner"].read(out)] == [("1", "서울에 비"), ("2", "부산")]
    words = predict(runs("dp"), "--format", "conll", lines="나는 간다.\n").splitlines()
    assert words[:2] == ["# sent_id = 1", "# text = 나는 간다."]
    assert [len(line.split("\t")) for line in words[2:4]] == [10, 10]
    refused = CliRunner().invoke(cli, ["predict", str(runs("ynat")), str(out), "--format", "conll"])
    assert "conll is for tags and parses, not for ynat" in str(refused.exception)


def test_the_output_is_a_file_of_predictions(runs, predict, sample: Path, tmp_path: Path, invoke) -> None:
    examples = read_split(sample, "ner", "dev")
    lines = "".join(json.dumps({"guid": e.guid, "text": e.text}, ensure_ascii=False) + "\n" for e in examples)
    (tmp_path / "answers.jsonl").write_text(predict(runs("ner"), lines=lines))
    task = TASKS["ner"]
    gold = sample / task.folder / task.file("dev")
    assert invoke("score", "ner", gold, tmp_path / "answers.jsonl", "--json").code == 0
