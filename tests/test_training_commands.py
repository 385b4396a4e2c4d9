"""danseo train, eval, predict and runs from the command line, with models that take seconds."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from danseo.config import RunConfig
from danseo.data.lines import BadLine, read_line
from danseo.experiment import run_experiment
from danseo.tasks import TASKS


@pytest.fixture
def linear(danseo: Callable, sample: Path, tmp_path: Path) -> Path:
    result = danseo("train", "nli", "-m", "linear", "--data", sample, "--runs", tmp_path / "runs", "--json")
    assert result.code == 0, result.err
    assert result.json["reported_on"] == "report"
    return Path(result.json["run"])


def test_a_run_is_scored_again_listed_and_asked(danseo, linear, sample, tmp_path):
    again = danseo("eval", linear, "--data", sample, "--json").json
    first = json.loads((linear / "scores.json").read_text())["scores"]["dev"]
    assert again["scores"] == first
    train = danseo("eval", linear, "--split", "train", "--data", sample, "--json").json
    assert train["n"] == 560
    assert train["scores"][0]["value"] > first[0]["value"], "it knows what it was trained on"
    listed = danseo("runs", tmp_path / "runs", "--json").json
    assert [row["status"] for row in listed] == ["done"]
    grouped = danseo("runs", tmp_path / "runs", "--group", "model,task", "--format", "csv").out.splitlines()
    assert grouped[0].startswith("model,task,metric,mean,std,n")
    assert grouped[1].startswith("linear,nli,nli/accuracy@official-1,")


def test_bad_lines_are_named_and_the_others_answered(linear, tmp_path):
    lines = tmp_path / "lines.txt"
    third = '{"premise": "문이 열렸다.", "hypothesis": "문이 닫혔다.", "guid": "x"}'
    lines.write_text(f'비가 온다.\t날씨가 흐리다.\n{{"premise": "가"}}\n\n{third}\n')
    command = [sys.executable, "-m", "danseo", "predict", str(linear), str(lines)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert process.returncode == 3
    records = [json.loads(line) for line in process.stdout.splitlines()]
    assert [(record["guid"], record["line"]) for record in records] == [("1", 1), ("x", 4)]
    assert all(record["answer"] in TASKS["nli"].labels and 0 < record["confidence"] <= 1 for record in records)
    assert "line 2: field 'hypothesis' is missing" in process.stderr
    assert process.stderr.strip().endswith("1 of 3 lines could not be read; the other 2 are answered")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["eval", "nowhere"], "nowhere is not a run directory"),
        (["runs", "nowhere"], "nowhere is not a folder of runs"),
        (["train", "ner", "-m", "linear", "--data", "sample"], "the linear model knows"),
        (
            ["train", "ynat", "-m", "majority", "--data", "sample", "--set", "lerning_rate=1"],
            "did you mean train.learning_rate",
        ),
        (["train", "ynat", "-m", "./nowhere", "--data", "sample"], "model ./nowhere: no such folder"),
        (
            ["train", "ynat", "-m", "majority", "--recipe", "best", "--data", "sample"],
            "no recipe 'best'; known: default, llm, official",
        ),
    ],
)
def test_wrong_usage_is_one_line(danseo, arguments, complaint):
    result = danseo(*arguments)
    assert result.code == 2
    assert complaint in result.complaint


GOOD = {
    "ynat": "새 공장 착공",
    "sts": '{"sentence1": "가", "sentence2": "나"}',
    "nli": "가\t나",
    "ner": '{"text": "김철수는 서울에 산다."}',
    "re": '{"sentence": "한빛의 대표 김철수", "subject_entity": {"start_idx": 0, "end_idx": 1, "type": "ORG"}, '
    '"object_entity": {"word": "김철수", "start_idx": 7, "end_idx": 9, "type": "PER"}}',
    "dp": '{"words": ["나는", "간다."]}',
    "mrc": '{"context": "회사는 1998년에 생겼다.", "question": "언제?"}',
    "wos": '{"dialogue": [{"role": "user", "text": "안녕하세요"}]}',
}


@pytest.mark.parametrize("name", TASKS)
def test_every_task_reads_lines(name):
    lines = [GOOD[name], "{}", '{"text": 1, "sentence": 2}']
    found = [read_line(line.encode(), number, TASKS[name]) for number, line in enumerate(lines, 1)]
    assert not isinstance(found[0], BadLine)
    assert all(isinstance(bad, BadLine) and bad.reason.startswith(f"line {bad.number}") for bad in found[1:])


def test_settings_are_listed(danseo):
    rows = danseo("settings", "--json").json["rows"]
    assert ["train.clip", "1.0", "Longest gradient; 0 never clips."] in rows
    assert all(meaning for _, _, meaning in rows)


# Floors


def test_a_run_stands_beside_its_floors(danseo, linear, sample, tmp_path):
    document = danseo("train", "nli", "-m", "linear", "--data", sample, "--runs", tmp_path / "runs", "--json").json
    again = danseo("eval", linear, "--data", sample, "--json").json
    for floor in ("majority", "random"):
        assert document["floors"]["dev"][floor] == again["baselines"][floor]
    assert document["warnings"] == []
    assert "linear" not in document["floors"]["dev"], "a run is no floor of its own"
    majority = danseo("train", "nli", "-m", "majority", "--data", sample, "--runs", tmp_path / "runs")
    header = next(line for line in majority.out.splitlines() if line.split()[:2] == ["metric", "score"])
    assert header.split()[-3:] == ["majority", "random", "linear"]
    assert "WARNING" not in majority.out, "the floor itself is not warned of"
    other = danseo(
        "train", "nli", "-m", "majority", "--limit", 9, "--data", sample, "--runs", tmp_path / "runs", "--json"
    )
    assert "linear" not in other.json["floors"]["dev"], "it learned from other examples"


def test_a_run_that_is_no_better_than_its_floor_is_warned_of(sample, tmp_path):
    from danseo.ensembling.making import Options, make_ensemble
    from danseo.ensembling.tables import ensemble_tables
    from danseo.runs.layouts.single import run_document, run_tables

    runs = []
    for seed in (1, 2):
        run = run_experiment(RunConfig(task="nli", model="majority", seed=seed), sample, tmp_path)
        config = run.path / "config.toml"
        config.write_text(config.read_text().replace('"majority"', '"an-encoder"'))
        runs.append(run)
    expected = "WARNING: nli/accuracy@official-1 on the report half of dev is 33.80, not better than the most frequent"
    assert expected in run_tables(runs[0])[-1].note
    assert expected in run_document(runs[0])["warnings"][0]
    ensemble = make_ensemble([run.path for run in runs], str(sample), tmp_path, Options("vote"))
    assert expected in ensemble_tables(ensemble)[-1].note
    assert "majority" in ensemble_tables(ensemble)[-1].columns
    scores = runs[0].read_json("scores.json")
    del scores["floors"]  # as older versions wrote it
    runs[0].write_json("scores.json", scores)
    assert "WARNING" not in run_tables(runs[0])[-1].note
