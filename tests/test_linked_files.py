"""Links in run folders: none that leads out is read, by any command, whatever file it stands for."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from danseo.board.pages import PageBuilder, make_live_status
from danseo.board.run_cache import RunCache
from danseo.cli import main
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.export.registry import FORMATS
from danseo.files import check_links, read_json_lines
from danseo.runs.index import find_runs, read_record
from danseo.runs.progress_file import ProgressFile
from danseo.runs.store import CHECKPOINT, FAILED, OWN_TASK, PROGRESS, Run

SECRET = "not for anybody here"
LINKED = (
    *("config.toml", "scores.json", "environment.json", "model/majority.json", "predictions/dev.jsonl"),
    *("model", "predictions", CHECKPOINT, FAILED, PROGRESS, OWN_TASK, "log.jsonl", "predictions/dev.npz"),
    *(f"{CHECKPOINT}/state.json", "model/model.safetensors", "anything/at/all"),
)
"""What a run holds, also one of another family or before its end."""


@pytest.fixture(scope="module")
def made(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two good runs."""
    folder = tmp_path_factory.mktemp("linked") / "runs"
    for model in ("majority", "linear"):
        run_experiment(RunConfig(task="ynat", model=model), sample, folder, quiet=True)
    return folder


@pytest.fixture
def hostile(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    """The same folder with a third run, one file of which is a link to a secret."""

    def make(name: str, *, target: str | None = None) -> Path:
        runs = shutil.copytree(made, tmp_path / "runs", symlinks=True)
        bad = shutil.copytree(next(runs.glob("*majority*")), runs / "ynat--bad--s1--00000000")
        secret = tmp_path / "secret"
        if (bad / name).is_dir() or name == CHECKPOINT:
            secret.mkdir()
            (secret / "state.json").write_text(SECRET)
            shutil.rmtree(bad / name, ignore_errors=True)
        else:
            secret.write_text(SECRET)
            (bad / name).parent.mkdir(parents=True, exist_ok=True)
            (bad / name).unlink(missing_ok=True)
        (bad / name).symlink_to(target or secret)
        if name in (FAILED, PROGRESS):
            (bad / "scores.json").unlink()
        return bad

    return make


def ended(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """How a command ends, and what it prints."""
    with pytest.raises(SystemExit) as ending:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return int(ending.value.code or 0), printed.out + printed.err


@pytest.mark.parametrize("name", LINKED)
def test_no_command_reads_what_a_link_leads_to(hostile, sample, tmp_path, capsys, monkeypatch, name):
    bad = hostile(name)
    runs, good = bad.parent, next(bad.parent.glob("*linear*"))
    monkeypatch.chdir(tmp_path)
    lines = tmp_path / "lines.txt"
    lines.write_text("서울에 비가 왔다.\n")
    folders = [("runs", runs, "--json")]
    if name in ("scores.json", "predictions", "log.jsonl"):  # a report takes its time
        folders.append(("report", runs, "--data", sample, "--out", tmp_path / "page.html"))
    for command in folders:
        code, text = ended(capsys, *command)
        assert code == 0, text
        assert SECRET not in text
    single = [
        ("predict", bad, lines),
        ("eval", bad, "--data", sample),
        ("compare", good, bad, "--data", sample),
        ("ensemble", good, bad, "--data", sample, "--runs", tmp_path / "more"),
        ("serve", bad, "--port", "0"),
        *(("export", bad, "--to", each, "--data", sample, "--out", tmp_path / f"out-{each}") for each in FORMATS),
    ]
    for command in single:
        code, text = ended(capsys, *command)
        assert code in (1, 2), (command, text)  # 1: a format whose package or network is missing
        assert SECRET not in text
        assert text.count("\n") == 1, text
    found = [path for path in tmp_path.rglob("*") if path.is_file() and path != tmp_path / "secret" / "state.json"]
    kept = [path for path in found if not path.is_symlink() and path != tmp_path / "secret"]
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
    record = next(each for each in find_runs(runs) if each.run.path == bad)
    assert record.status == "corrupted"
    assert "link" in record.note


@pytest.mark.parametrize("name", [*LINKED[:3], *LINKED[4:7], *LINKED[8:12]])
def test_no_page_of_the_board_shows_what_a_link_leads_to(hostile, sample, name):
    bad = hostile(name)
    others = [path for path in bad.parent.iterdir() if path != bad]
    kept, linked = bad.rename(bad.parent.parent / "kept"), bad
    site = PageBuilder(RunCache(bad.parent, str(sample)))
    assert not site.index.snapshot().by_key.keys() - {f"run/{path.name}" for path in others}
    kept.rename(linked)
    for fresh in (PageBuilder(RunCache(bad.parent, str(sample))), site):
        snapshot = fresh.index.snapshot()
        for key in ("overview", "runs", "task/ynat", "compare", "sweeps", "masked", *snapshot.by_key):
            assert SECRET not in (fresh.html(key, {}) or "")
        assert SECRET not in json.dumps(make_live_status(snapshot))


def test_a_link_that_comes_later_is_not_followed_either(hostile, sample):
    """What was read before is remembered; what is read now is looked at."""
    bad = hostile("log.jsonl")
    (bad / "log.jsonl").unlink()
    site = PageBuilder(RunCache(bad.parent, str(sample)))
    assert site.index.snapshot().by_key[f"run/{bad.name}"].status == "done"
    (bad / "log.jsonl").symlink_to(bad.parent.parent / "secret")
    text = site.html(f"run/{bad.name}", {}) or ""
    assert SECRET not in text
    assert site.html("task/ynat", {})


def test_links_beside_runs_are_not_followed(made, sample, tmp_path):
    runs = shutil.copytree(made, tmp_path / "runs")
    (tmp_path / "out.jsonl").write_text(json.dumps({"run": SECRET, "state": "done"}) + "\n")
    (tmp_path / "out.json").write_text(json.dumps({"study": SECRET, "cells": {"base": [SECRET], SECRET: []}}))
    (runs / "a.sweep.jsonl").symlink_to(tmp_path / "out.jsonl")
    (runs / "a.study.json").symlink_to(tmp_path / "out.json")
    (runs / "a.tune.json").symlink_to(tmp_path / "out.json")
    os.mkfifo(runs / "b.sweep.jsonl")
    training = runs / "masked"
    training.mkdir()
    (training / "pretrain.toml").write_text("")
    ProgressFile(training).write(1, 2, 3.0)
    (tmp_path / "out.log").write_text(json.dumps({"step": 4321, "loss": 43.21, "held_out_loss": 43.21}) + "\n")
    (training / "log.jsonl").symlink_to(tmp_path / "out.log")
    site = PageBuilder(RunCache(runs, str(sample)))
    for key in ("overview", "runs", "sweeps", "masked"):
        text = site.html(key, {}) or ""
        assert SECRET not in text
        assert "43.21" not in text
    assert SECRET not in json.dumps(make_live_status(site.index.snapshot()))
    assert "43.21" not in json.dumps(make_live_status(site.index.snapshot()))


def test_a_study_names_runs_beside_it_alone(made, sample, tmp_path):
    runs = shutil.copytree(made, tmp_path / "runs")
    cells = {"base": [f"../../{made.parent.name}/runs/{path.name}" for path in made.iterdir()], "other": []}
    (runs / "a.study.json").write_text(json.dumps({"cells": cells}))
    assert "other" not in (PageBuilder(RunCache(runs, str(sample))).html("sweeps", {}) or "")


def test_links_that_stay_inside_are_followed(made, tmp_path):
    run = shutil.copytree(next(made.glob("*majority*")), tmp_path / "run")
    (run / "predictions" / "dev.jsonl").rename(run / "kept.jsonl")
    (run / "predictions" / "dev.jsonl").symlink_to("../kept.jsonl")
    assert read_record(Run(run)).status == "done"
    (run / "kept").symlink_to(run)
    assert read_record(Run(run)).status == "done"


def test_a_folder_of_runs_may_be_reached_through_a_link(made, sample, tmp_path, capsys):
    (tmp_path / "runs").symlink_to(made)
    (tmp_path / "one").symlink_to(next(made.glob("*majority*")))
    assert [record.status for record in find_runs(tmp_path / "runs")] == ["done", "done"]
    assert read_record(Run(tmp_path / "one")).status == "done"
    assert ended(capsys, "eval", tmp_path / "one", "--data", sample)[0] == 0
    assert len(RunCache(tmp_path / "runs").snapshot().by_key) == 2


def test_a_model_in_the_layout_of_the_hub_is_taken(sample, tmp_path):
    """Snapshots are links to blobs; they are no run folders."""
    pytest.importorskip("torch")
    from .tiny import quick_config, tiny_encoder

    blobs = tiny_encoder(tmp_path / "blobs", sample, layers=1)
    snapshot = tmp_path / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    run = run_experiment(quick_config("ynat", snapshot, max_train_samples=16), sample, tmp_path / "runs", quiet=True)
    assert read_record(run).status == "done"


def test_a_training_does_not_resume_in_a_folder_with_links_out(sample, tmp_path):
    config = RunConfig(task="ynat", model="majority")
    run = run_experiment(config, sample, tmp_path / "runs", quiet=True)
    (run.path / "scores.json").unlink()
    (tmp_path / "mine").write_text(SECRET)
    (run.path / "log.jsonl").symlink_to(tmp_path / "mine")
    with pytest.raises(DanseoError, match="link"):
        run_experiment(config, sample, tmp_path / "runs", quiet=True)
    assert (tmp_path / "mine").read_text() == SECRET


def test_a_log_is_read_as_far_as_it_can_be(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n[1]\n{"step"\n\xff\xfe\n' + b"[" * 99999 + b"\n7\n\n" + b'{"step": 2}\n{"st')
    assert read_json_lines(path) == [{"step": 1}, {"step": 2}]
    assert read_json_lines(tmp_path / "absent") == []
    check_links(tmp_path / "absent")
