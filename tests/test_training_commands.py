"""danseo train, eval, predict and runs from the command line, with models that take seconds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from danseo.config.run import RunConfig
from danseo.data.input_reader import BadLine, read_line
from danseo.experiment import run_experiment
from danseo.tasks import TASKS


@pytest.fixture
def linear(invoke: Callable, sample: Path, tmp_path: Path) -> Path:
    result = invoke("train", "nli", "-m", "linear", "--data", sample, "--runs", tmp_path / "runs", "--json")
    assert result.code == 0, result.err
    assert result.json["reported_on"] == "report"
    return Path(result.json["run"])


def test_a_run_is_scored_again_and_listed(invoke, linear, sample, tmp_path):
    again = invoke("eval", linear, "--data", sample, "--json").json
    first = json.loads((linear / "scores.json").read_text())["scores"]["dev"]
    assert again["scores"] == first
    train = invoke("eval", linear, "--split", "train", "--data", sample, "--json").json
    assert train["n"] == 560
    assert train["scores"][0]["value"] > first[0]["value"], "it knows what it was trained on"
    listed = invoke("runs", tmp_path / "runs", "--json").json
    assert [row["status"] for row in listed] == ["done"]
    grouped = invoke("runs", tmp_path / "runs", "--group", "model,task", "--format", "csv").out.splitlines()
    assert grouped[0].startswith("model,task,metric,mean,std,n")
    assert grouped[1].startswith("linear,nli,nli/accuracy@official-1,")


def test_bad_lines_are_named_and_the_others_predicted(invoke, linear, tmp_path):
    lines = tmp_path / "lines.txt"
    third = '{"premise": "문이 열렸다.", "hypothesis": "문이 닫혔다.", "guid": "x"}'
    lines.write_text(f'비가 온다.\t날씨가 흐리다.\n{{"premise": "가"}}\n\n{third}\n')
    result = invoke("predict", linear, lines)
    assert result.code == 3
    records = [json.loads(line) for line in result.out.splitlines()]
    assert [(record["guid"], record["line"]) for record in records] == [("1", 1), ("x", 4)]
    assert all(record["answer"] in TASKS["nli"].labels and 0 < record["confidence"] <= 1 for record in records)
    assert "line 2: field 'hypothesis' is missing" in result.err
    assert "1 of 3 lines" in result.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["eval", "nowhere"], "not a run directory: nowhere"),
        (["runs", "nowhere"], "nowhere is not a folder of runs"),
        (["train", "ner", "-m", "linear", "--data", "sample"], "the linear model supports"),
        (["train", "ynat", "-m", "./nowhere", "--data", "sample"], "model ./nowhere: no such folder"),
        (["train", "ynat", "-m", "majority", "--recipe", "best", "--data", "sample"], "no recipe 'best'"),
    ],
)
def test_wrong_usage_is_one_line(invoke, arguments, complaint):
    result = invoke(*arguments)
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


def test_a_run_has_its_baselines(invoke, linear, sample, tmp_path):
    document = invoke("train", "nli", "-m", "linear", "--data", sample, "--runs", tmp_path / "runs", "--json").json
    again = invoke("eval", linear, "--data", sample, "--json").json
    for baseline in ("majority", "random"):
        assert document["baselines"]["dev"][baseline] == again["baselines"][baseline]
    assert document["warnings"] == []
    assert "linear" not in document["baselines"]["dev"]
    majority = invoke("train", "nli", "-m", "majority", "--data", sample, "--runs", tmp_path / "runs")
    header = next(line for line in majority.out.splitlines() if line.split()[:2] == ["metric", "score"])
    assert header.split()[-3:] == ["majority", "random", "linear"]
    assert "WARNING" not in majority.out
    other = invoke(
        "train", "nli", "-m", "majority", "--limit", 9, "--data", sample, "--runs", tmp_path / "runs", "--json"
    )
    assert "linear" not in other.json["baselines"]["dev"]


def test_a_run_that_is_no_better_than_its_baseline_has_a_warning(sample, tmp_path):
    from danseo.ensembling.ensemble import EnsembleOptions, make_ensemble, make_ensemble_tables
    from danseo.tables.run_summary import make_run_document, make_run_tables

    runs = []
    for seed in (1, 2):
        run = run_experiment(RunConfig(task="nli", model="majority", seed=seed), sample, tmp_path)
        config = run.path / "config.toml"
        config.write_text(config.read_text().replace('"majority"', '"an-encoder"'))
        runs.append(run)
    expected = "WARNING: nli/accuracy@official-1 on the report split of dev is 32.22"
    assert expected in make_run_tables(runs[0])[-1].note
    assert expected in make_run_document(runs[0])["warnings"][0]
    ensemble = make_ensemble([run.path for run in runs], str(sample), tmp_path, EnsembleOptions("vote"))
    assert expected in make_ensemble_tables(ensemble)[-1].note
    assert "majority" in make_ensemble_tables(ensemble)[-1].columns
