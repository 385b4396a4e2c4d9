"""danseo compare with run directories."""

import json
import shutil
from pathlib import Path

import pytest

from danseo.data.dev_split import assign_split
from danseo.errors import DanseoError
from danseo.scoring.tables import ComparisonResult
from danseo.tables.comparison import SeedComparisonResult, compare_runs
from danseo.tasks import TASKS

from ..ensembling.conftest import write_run


@pytest.fixture(scope="module")
def runs(sample, tmp_path_factory) -> list[Path]:
    """Two systems with three seeds each."""
    root = tmp_path_factory.mktemp("runs")
    return [
        write_run(root, sample, TASKS["nli"], seed, learning_rate=rate) for rate in (3e-5, 5e-5) for seed in (1, 2, 3)
    ]


def test_runs_are_compared_on_the_report_half(runs, sample):
    result = compare_runs(runs[:2], str(sample), rounds=200)
    assert isinstance(result, ComparisonResult)
    task = TASKS["nli"]
    examples = task.read(sample / task.folder / task.file("dev"))
    reported = [example for example in examples if assign_split(task, example) == "report"]
    document = result.as_dict()
    assert (document["n"], document["on"], document["partial"]) == (len(reported), "report", False)
    scores = json.loads((runs[0] / "scores.json").read_text())["scores"]["report"]
    assert document["scores"][scores[0]["id"]][runs[0].name] == pytest.approx(scores[0]["value"])
    assert "report split of dev" in result.tables()[0].note
    whole = compare_runs(runs[:2], str(sample), on="dev", rounds=200)
    assert whole.as_dict()["n"] == len(examples)
    assert "SELECTED ON THE REPORTED SET" in whole.tables()[0].note


def test_runs_over_seeds_are_two_systems(runs, sample):
    result = compare_runs(runs, str(sample), over="seeds", rounds=200)
    assert isinstance(result, SeedComparisonResult)
    document = result.as_dict()
    assert {name: len(listed) for name, listed in document["runs"].items()} == {
        "tiny learning_rate=3e-05": 3,
        "tiny learning_rate=5e-05": 3,
    }
    headline = [d for d in document["differences"] if d["metric"] == document["headline"]]
    assert len(headline) == 1
    assert headline[0]["interval"][0] < headline[0]["difference"] < headline[0]["interval"][1]
    assert json.dumps(document, allow_nan=False)
    table = result.tables()[1]
    assert {"seeds needed", "± seeds"} <= set(table.columns)
    assert "p (Holm)" not in table.columns, "one test needs no correction"


def test_runs_that_answer_alike_are_called_identical(runs, sample, tmp_path):
    alike = [shutil.copytree(run, tmp_path / run.name) for run in runs[3:]]
    for copy, run in zip(alike, runs, strict=False):
        shutil.copy(run / "predictions" / "dev.jsonl", copy / "predictions" / "dev.jsonl")
    alone = compare_runs([runs[0], alike[0]], str(sample), rounds=100)
    assert [d.verdict for d in alone.comparison.differences] == ["identical answers"] * len(TASKS["nli"].metrics)
    result = compare_runs([*runs[:3], *alike], str(sample), over="seeds", rounds=100)
    for difference in result.differences:
        assert (difference.value, difference.p, difference.needed) == (0, 1, None)
        assert difference.verdict == "identical answers"
    assert "seeds needed" not in result.tables()[1].columns
    for difference in result.differences:
        assert (difference.low, difference.high) == (0, 0)
    other = compare_runs([*runs[:2], *alike[1:]], str(sample), over="seeds", rounds=100)
    assert not any(difference.identical for difference in other.differences)


def test_refusals(runs, sample, tmp_path):
    for paths, match, options in (
        ([runs[0], runs[0]], "named twice", {}),
        (runs[:1], "at least two", {}),
        (runs[:3], "differ only in their seed", {"over": "seeds"}),
        ([*runs[:2], runs[3]], "has one run", {"over": "seeds"}),
        ([runs[0], tmp_path], "not a run directory", {}),
    ):
        with pytest.raises(DanseoError, match=match):
            compare_runs(paths, str(sample), rounds=100, **options)


def test_the_command(invoke, runs, sample, tmp_path):
    result = invoke("compare", *runs, "--over", "seeds", "--data", sample, "--json", "--resamples", 100)
    assert result.code == 0, result.err
    assert result.json["over"] == "seeds"
    shown = invoke("compare", *runs[:2], "--data", sample, "--resamples", 100)
    assert "report split of dev" in shown.out
    answers = tmp_path / "a.jsonl"
    shutil.copy(runs[0] / "predictions" / "dev.jsonl", answers)
    for arguments, complaint in (
        (("compare", "nli", "dev", answers, answers, "--over", "seeds"), "--over and --on are for run directories"),
        (("compare", *runs[:2], "--partial"), "--partial is for prediction files"),
        (("compare",), "Missing argument 'TASK'"),
        (("compare", "nli", "dev"), "Missing argument 'PREDICTIONS...'"),
        (("compare", tmp_path, runs[0]), "is not a run directory"),
    ):
        result = invoke(*arguments, "--data", sample)
        assert result.code == 2
        assert complaint in result.complaint


def test_ensembles_and_members_can_be_compared(invoke, runs, sample, tmp_path):
    made = invoke("ensemble", *runs[:3], "--data", sample, "--runs", tmp_path, "--json")
    assert made.code == 0, made.err
    result = invoke("compare", made.json["run"], runs[0], "--data", sample, "--json", "--resamples", 100)
    (difference,) = (d for d in result.json["differences"] if d["metric"] == "nli/accuracy@official-1")
    member = next(m for m in made.json["ensemble"]["members"] if m["run"] == runs[0].name)
    assert -difference["difference"] == pytest.approx(member["difference"])
    assert "ensemble-prob" in invoke("runs", tmp_path, "--format", "latex").out
