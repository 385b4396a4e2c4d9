"""danseo from Python: the guide runs as it stands, and results are plain, typed and shown."""

import json
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import danseo
from danseo.errors import DanseoError
from danseo.records import Prediction
from tests.conftest import ROOT

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/guides/python.md").read_text("utf-8"), re.M | re.S)
NAMES = ("compare", "load", "open", "runs", "score", "train")


def test_the_guide_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    scope: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "docs/guides/python.md", "exec"), scope)
    assert scope["run"].score > scope["baseline"].score
    again = danseo.train("ynat", "linear", data="sample", runs="my-runs", seed=7)
    assert (again.path, again.to_dict()) == (scope["run"].path, scope["run"].to_dict())
    text = "\n".join(BLOCKS)
    assert all(f"danseo.{name}(" in text for name in NAMES), "every function is shown"


def test_a_single_text_is_one_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    run = danseo.train("ynat", "majority", data="sample", runs=tmp_path / "runs")
    (example,) = danseo.load("ynat", data="sample")[:1]
    for given in ("문자열 하나", {"text": "문자열 하나"}, example):
        assert len(run.predict(given)) == len(run.predict([given])) == 1
    assert len(run.predict(("둘", "셋"))) == 2


def test_importing_loads_nothing_heavy() -> None:
    script = (
        "import danseo, sys; danseo.load; danseo.runs; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert ended.stdout == "[]\n", ended.stderr


@pytest.fixture(scope="module")
def examples(sample: Path) -> list[Any]:
    return danseo.load("nli", "dev", data=sample)


def test_scores_are_those_of_the_command(examples: list[Any], sample: Path, tmp_path: Path) -> None:
    from danseo.data.prediction_file import write_predictions

    write_predictions(tmp_path / "p.jsonl", [Prediction(example.guid, "neutral") for example in examples])
    of_files = danseo.score("nli", "dev", tmp_path / "p.jsonl", data=sample, resamples=50)
    of_lists = danseo.score("NLI", examples, ["neutral"] * len(examples), resamples=50)
    assert of_files.to_dict()["scores"] == of_lists.to_dict()["scores"]
    assert of_lists.interval[0] < of_lists.value < of_lists.interval[1]
    assert json.loads(json.dumps(of_lists.to_dict()))["task"] == "nli"


def test_results_are_shown_as_text_in_rich_and_as_html(examples: list[Any]) -> None:
    found = danseo.score("nli", examples, ["neutral"] * len(examples), resamples=20)
    assert "nli/accuracy@official-1" in str(found)
    console = Console(width=90, record=True, file=StringIO())
    console.print(found)
    shown = console.export_text()
    assert "nli/accuracy@official-1" in shown
    assert max(map(len, shown.splitlines())) <= 90
    assert found._repr_html_().count("<tr>") == 1 + len(found.scores)
    odd = danseo.compare(
        ["neutral"] * len(examples), examples_of(examples), task="nli", gold=examples, names=["<b>", "B"]
    )
    assert "&lt;b&gt;" in odd._repr_html_()
    assert "<b>" not in odd._repr_html_()


def examples_of(examples: list[Any]) -> list[str]:
    return [example.gold for example in examples]


@pytest.mark.parametrize(
    ("predictions", "complaint"),
    [
        (["neutral"], "1 answers"),
        ([{"guid": "nobody", "answer": "neutral"}], "prediction 1: guid 'nobody' is not in the gold"),
        ([{"guid": 1, "answer": "neutral"}], "prediction 1: should be"),
        ([Prediction("x", "neutral"), "neutral"], "2 answers"),
    ],
)
def test_predictions_that_do_not_fit_are_named(predictions: list[Any], complaint: str, examples: list[Any]) -> None:
    with pytest.raises(DanseoError, match=complaint):
        danseo.score("nli", examples, predictions)
    with pytest.raises(DanseoError, match=r"prediction 2 \(guid '.*'\): .*maybe"):
        danseo.score("nli", examples, ["neutral", "maybe"] + ["neutral"] * (len(examples) - 2))


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(DanseoError, match="not a run directory"):
        danseo.open(tmp_path)
    with pytest.raises(DanseoError, match="no finished run of ynat"):
        danseo.runs(tmp_path).best("TC")
    with pytest.raises(DanseoError, match=r"unknown setting 'epoch'; did you mean train.epochs"):
        danseo.train("ynat", "majority", epoch=3)
