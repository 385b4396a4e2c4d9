"""Runs that danseo 0.1.0 wrote: they list, load, resume, ensemble and compare, and their commands return them.

The archive holds small data, a tiny encoder, finished runs of floors and encoders, an ensemble, a soup, an unfinished
run with its checkpoint, a sweep with a pruned run, and a pre-training. It is never made anew: that is its point.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, Result

QUICK = ("precision=fp32", "attention=eager", "threads=1", "batch_size=8", "learning_rate=1e-3")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ROOT / "tests" / "fixtures" / "runs-0.1.0.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def danseo(old: Path) -> Callable[..., Result]:
    """The command line in the folder where the old runs were made."""

    def run(*arguments: object) -> Result:
        variables = {**os.environ, "DANSEO_CACHE": str(old / "cache"), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-m", "danseo", *map(str, arguments)]
        found = Result(subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, cwd=old))
        assert found.code == 0, found.err
        return found

    return run


def settings(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


def train(danseo: Callable[..., Result], task: str, *arguments: object) -> Path:
    """The run that a command makes or finds."""
    return Path(danseo("train", task, "--data", "data", "--json", *arguments).json["run"])


def test_they_are_listed_with_their_states(danseo):
    runs = danseo("runs", "--json").json
    assert {Path(row["run"]).name: row["status"] for row in runs} == {
        "mrc--encoder--s1--47b857cf": "done",
        "ner--encoder--s1--b5b714fe": "done",
        "ner--encoder--s2--02c866b3": "done",
        "ner--ensemble-prob--s1+2--47191ced": "done",
        "ner--soup--s1+2--be428034": "done",
        "nli--encoder--s7--ef60934b": "unfinished",
        "nli--linear--s42--6444caf9": "done",
        "nli--majority--s42--9d50d8bc": "done",
        "re--encoder--s1--6932fbac": "done",
    }
    swept = danseo("runs", "sweep-runs", "--json").json
    assert sorted(row["status"].split(":")[0] for row in swept) == ["done"] * 4 + ["pruned"]


def test_the_same_commands_return_them(danseo, old):
    before = (old / "runs" / "ner--encoder--s1--b5b714fe" / "scores.json").stat().st_mtime_ns
    assert train(danseo, "nli", "-m", "majority").name == "nli--majority--s42--9d50d8bc"
    assert train(danseo, "nli", "-m", "linear").name == "nli--linear--s42--6444caf9"
    found = train(danseo, "ner", "-m", "encoder", "--seed", 1, *settings(*QUICK, "epochs=2"))
    assert found.name == "ner--encoder--s1--b5b714fe"
    assert (old / "runs" / found.name / "scores.json").stat().st_mtime_ns == before
    found = train(danseo, "re", "-m", "encoder", "--seed", 1, *settings(*QUICK, "epochs=2", "swa_start=1"))
    assert found.name == "re--encoder--s1--6932fbac"


def test_an_unfinished_one_goes_on_from_its_checkpoint(danseo, old):
    folder = old / "runs" / "nli--encoder--s7--ef60934b"
    logged = (folder / "log.jsonl").read_text().splitlines()
    assert train(danseo, "nli", "-m", "encoder", "--seed", 7, *settings(*QUICK, "epochs=3")).name == folder.name
    assert (folder / "scores.json").is_file()
    assert (folder / "log.jsonl").read_text().splitlines()[: len(logged)] == logged
    answers = [
        (path / "nli--encoder--s7--ef60934b" / "predictions" / "dev.jsonl").read_text().count('"answer"')
        for path in (old / "runs", old / "finished")
    ]
    assert answers[0] == answers[1]


def test_they_answer_and_are_scored_again(danseo, old):
    (old / "lines.txt").write_text("서울에서 김민수가 말했다.\n", "utf-8")
    for name in ("ner--encoder--s1--b5b714fe", "ner--soup--s1+2--be428034"):
        assert danseo("predict", f"runs/{name}", "lines.txt").out.strip()
        again = danseo("eval", f"runs/{name}", "--data", "data", "--json").json
        assert again


def test_they_are_combined_and_compared(danseo):
    members = ("runs/ner--encoder--s1--b5b714fe", "runs/ner--encoder--s2--02c866b3")
    made = danseo("ensemble", *members, "--data", "data", "--json").json
    assert Path(made["run"]).name == "ner--ensemble-prob--s1+2--47191ced"
    assert danseo("compare", *members, "--data", "data", "--json").json
    assert danseo("sweep", "sweep.toml", "--data", "data", "--runs", "sweep-runs", "--json").json["done"] == 4


def test_an_old_checkpoint_of_pretraining_is_an_encoder(danseo):
    found = train(danseo, "nli", "-m", "pretrained/model", *settings(*QUICK, "epochs=1"))
    assert found.name.startswith("nli--pretrained--"), "not --model--, as every run has a model/"
