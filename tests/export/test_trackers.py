"""Runs tags to trackers, each in its own local mode; skipped where a tracker is not installed."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from danseo.errors import WorkFailed
from danseo.export.base import ExportRequest
from danseo.export.mlflow import escape_name
from danseo.export.registry import FORMATS, export_run
from danseo.export.trackers import make_tracked_run, send_to_tracker
from danseo.extras import is_installed

CURVE = '{"step": 5, "loss": 1.5, "score": 40.0}\n{"step": 10, "loss": 1.0, "score": 50.0, "note": "x"}\n'


@pytest.fixture(scope="module")
def logged(run, tmp_path_factory) -> Path:
    """A run with a learning curve."""
    position = tmp_path_factory.mktemp("logged") / "runs" / run.name
    shutil.copytree(run, position)
    (position / "log.jsonl").write_text(CURVE)
    return position


@pytest.fixture
def tags(logged, tmp_path, request):
    """The same run tags twice: the first and the second answer, and where it is."""
    name = request.param
    if not all(map(is_installed, FORMATS[name].packages)):
        pytest.skip(f"{name} is not installed; pip install 'danseo[{name}]' to test it")
    asked = ExportRequest(str(logged), str(tmp_path / name), options={"project": "klue"})
    return [export_run(name, asked) for _ in range(2)], tmp_path / name


def headline(run: Path) -> float:
    return json.loads((run / "scores.json").read_text())["scores"]["report"][0]["value"]


KEY = "report/ynat/macro_f1@official-1"


@pytest.mark.parametrize("tags", ["mlflow"], indirect=True)
def test_mlflow_has_settings_curves_scores_and_files_once(tags, logged):
    from mlflow.tracking import MlflowClient

    (first, second), folder = tags
    assert (first["state"], second["state"]) == ("written", "was there already")
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("klue")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == logged.name
    assert found.data.params["model"] == "linear"
    assert found.data.metrics[escape_name(KEY)] == pytest.approx(headline(logged))
    assert found.data.metrics[f"{escape_name(KEY)}/low"] < headline(logged)
    curve = client.get_metric_history(found.info.run_id, "train/score")
    assert [(point.step, point.value) for point in curve] == [(5, 40.0), (10, 50.0)]
    kept = {path.name for path in folder.rglob("artifacts/**/*") if path.is_file()}
    assert kept == {"config.toml", "environment.json", "scores.json", "log.jsonl", "dev.jsonl"}


def messages(content: bytes) -> Iterator[bytes]:
    """The records of wandb's file, a log as LevelDB writes it: blocks of 32 KiB with pieces of records."""
    position, message = 7, b""
    while position + 7 <= len(content):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        size, kind = int.from_bytes(content[position + 4 : position + 6], "little"), content[position + 6]
        message += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield message
            message = b""


@pytest.mark.parametrize("tags", ["wandb"], indirect=True)
def test_wandb_has_settings_curves_scores_and_files_once(tags, logged):
    from wandb.proto.wandb_internal_pb2 import Record

    (first, second), folder = tags
    assert (first["state"], second["state"]) == ("written", "was there already")
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    records = [Record.FromString(content) for content in messages(path.read_bytes())]
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.display_name, run.run_id) == ("klue", logged.name, logged.name[-8:])
    assert {item.key: json.loads(item.value_json) for item in run.config.update}["model"] == "linear"
    history = [{i.key or i.nested_key[0]: json.loads(i.value_json) for i in r.history.item} for r in records]
    assert [line["train/score"] for line in history if "train/score" in line] == [40.0, 50.0]
    summary = {i.key or i.nested_key[0]: i.value_json for r in records for i in r.summary.update}
    assert float(summary[KEY]) == pytest.approx(headline(logged))
    (files,) = [record.artifact for record in records if record.WhichOneof("record_type") == "artifact"]
    assert {entry.path for entry in files.manifest.contents} >= {"config.toml", "predictions/dev.jsonl"}


@pytest.mark.parametrize("tags", ["trackio"], indirect=True)
def test_trackio_has_settings_curves_scores_and_files_once(tags, logged):
    import sqlite3

    (first, second), folder = tags
    assert (first["state"], second["state"]) == ("written", "was there already")
    with sqlite3.connect(folder / "klue.db") as database:
        lines = [(step, json.loads(found)) for step, found in database.execute("SELECT step, metrics FROM metrics")]
        configs = [json.loads(text) for (text,) in database.execute("SELECT config FROM configs")]
    assert [(step, line["train/score"]) for step, line in lines if "train/score" in line] == [(5, 40.0), (10, 50.0)]
    assert [line[KEY] for _, line in lines if KEY in line] == [pytest.approx(headline(logged))]
    assert [config["model"] for config in configs] == ["linear"]
    kept = [path.read_bytes() for path in folder.rglob("sha256/*/*")]
    assert all((logged / name).read_bytes() in kept for name in ("config.toml", "scores.json", "predictions/dev.jsonl"))


def test_a_story_has_everything_that_a_tracker_keeps(logged, tmp_path):
    tracked = make_tracked_run(ExportRequest(str(logged), str(tmp_path)), "unused")
    assert tracked.scores[KEY] == headline(logged)
    assert tracked.scores[f"{KEY}/low"] <= headline(logged) <= tracked.scores[f"{KEY}/high"]
    assert tracked.curve == [{"step": 5, "loss": 1.5, "score": 40.0}, {"step": 10, "loss": 1.0, "score": 50.0}]
    assert tracked.settings["seed"] == 42
    assert any(name.startswith("data.") and "dev" in name for name in tracked.settings)
    assert tracked.fingerprint == logged.name[-8:]


def test_a_copy_under_another_name_is_known_by_what_it_holds(logged, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(logged, tmp_path / name / "kept")
    tracked_runs = [
        make_tracked_run(ExportRequest(str(tmp_path / name / "kept"), str(tmp_path / "out")), "") for name in ("a", "b")
    ]
    assert tracked_runs[0].fingerprint == tracked_runs[1].fingerprint


def test_what_a_tracker_complains_about_is_one_line(logged, tmp_path):
    tracked = make_tracked_run(ExportRequest(str(logged), str(tmp_path)), "")
    with pytest.raises(WorkFailed, match=r"absent rejected ynat--linear.*No module named 'danseo\.export\.absent'"):
        send_to_tracker("danseo.export.absent", tracked, {"PYTHONPATH": ":".join(sys.path)})
