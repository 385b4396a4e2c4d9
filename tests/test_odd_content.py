"""Odd content of one file is one line, or is left out, and other runs are shown as ever."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from danseo.errors import DataError
from danseo.experiment import run_experiment
from danseo.export.base import ExportRequest
from danseo.export.trackers import make_tracked_run
from danseo.models.registry import configure_run
from danseo.rows import read_parquet
from danseo.runs.index import find_runs
from danseo.runs.store import Run

GOOD = {"step": 2, "epoch": 1.0, "loss": 0.5, "rate": 1e-5, "score": 50.0, "best": 50.0}
VALUES = ['"a"', "[]", "{}", "true", "NaN", "Infinity", "-1e400", "1" + "0" * 400, '"=1+1"', "null"]
TYPED = [f'{{"step": {value}, "loss": 1, "score": 2, "best": 3}}' for value in VALUES]
TYPED += [f'{{"step": 1, "loss": {value}, "score": {value}, "best": {value}, "epoch": {value}}}' for value in VALUES]
LINES = ["", "[]", "1", "null", "{", "[" * 100_000, "1" * 5000, '{"step": 3', "\\ud800", '{"other": "a"}']
LOGS = {"majority-1": [], "majority-2": TYPED, "linear-1": TYPED + LINES}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, sample) -> Path:
    """Three runs with logs: as written, with values of other types, and with lines that are no objects."""
    folder = tmp_path_factory.mktemp("runs")
    for name, lines in LOGS.items():
        model, seed = name.split("-")
        run = run_experiment(configure_run("ynat", model, "default", {"seed": int(seed)}), sample, folder, quiet=True)
        good = [json.dumps({**GOOD, "step": step}) for step in (1, 2)]
        (run.path / "log.jsonl").write_text("\n".join(lines + good) + "\n", "utf-8")
    return folder


def test_a_log_has_only_numbers(runs):
    log = Run(next(runs.glob("*linear*"))).read_log()
    assert log[-1] == GOOD
    numbers = [line[key] for line in log for key in GOOD if line.get(key) is not None]
    assert all(type(value) in (int, float) and abs(value) < 1e9 for value in numbers)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00", b"\x1f\x8b"])
def test_a_log_of_other_bytes_is_none_or_one_line(runs, tmp_path, content):
    run = Run(shutil.copytree(next(runs.glob("*linear*")), tmp_path / "run"))
    (run.path / "log.jsonl").write_bytes(content)
    with suppress(DataError):
        assert run.read_log() == []


COMMANDS = {
    "report": ["report", "{runs}", "--out", "report.html"],
    "runs": ["runs", "{runs}"],
    "klue": ["runs", "{runs}", "--table", "klue"],
    "sweep": ["runs", "{runs}", "--table", "sweep"],
    "group": ["runs", "{runs}", "--group", "model"],
    "csv": ["runs", "{runs}", "--format", "csv"],
    "compare": ["compare", "{linear}", "{majority}", "--resamples", "100"],
    "card": ["export", "{linear}", "--to", "card", "--out", "card"],
    "lm-eval": ["export", "{linear}", "--to", "lm-eval", "--out", "results"],
    "bundle": ["export", "{linear}", "--to", "bundle", "--out", "bundle.zip"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_with_an_odd_log_is_shown_beside_the_others(name, runs, sample, invoke, tmp_path):
    places = {"runs": runs, **{model: next(runs.glob(f"*{model}*")) for model in ("linear", "majority")}}
    command = [argument.format(**places) for argument in COMMANDS[name]]
    data = ["--data", str(sample)] if name in ("report", "compare") else []
    result = invoke(*command, *data)
    assert result.code == 0, result.err
    assert "Traceback" not in result.err
    if name == "report":
        page = (tmp_path / "report.html").read_text("utf-8")
        assert "linear" in page
        assert "majority" in page


def test_trackers_get_only_numbers(runs):
    tracked = make_tracked_run(ExportRequest(str(next(runs.glob("*linear*")))), "trackers")
    json.dumps(tracked.as_dict(), allow_nan=False)


def test_scores_of_null_are_a_corrupted_run(runs, tmp_path):
    copy = shutil.copytree(runs, tmp_path / "runs")
    (next(copy.glob("*linear*")) / "scores.json").write_text("null")
    assert {(record.model, record.status) for record in find_runs(copy)} == {
        ("majority", "done"),
        ("linear", "corrupted"),
    }


# Parquet


@pytest.mark.parametrize("kind", ["date64", "timestamp", "nanoseconds", "zone", "duration", "date32"])
def test_dates_out_of_range_are_one_line(kind, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    types = {
        "date64": pa.date64(),
        "timestamp": pa.timestamp("ms"),
        "nanoseconds": pa.timestamp("ns"),
        "zone": pa.timestamp("ms", tz="Nowhere/Town"),
        "duration": pa.duration("s"),
        "date32": pa.date32(),
    }
    largest = 2**31 - 1 if kind == "date32" else 86_400_000 * 10**10 if kind == "date64" else 2**62
    column = pa.array([largest], pa.int32() if kind == "date32" else pa.int64()).view(types[kind])
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"text": ["가"], "label": ["a"], "when": column}), path)
    with suppress(DataError):  # one line, where Python has no such date
        read_parquet(path)


# Names


TASK = {"type": "classification", "train": "train.csv", "dev": "dev.csv", "text": "text", "label": "label"}
LONG = {"file": "a" * 300, "path": "a/" * 3000, "Korean": "가" * 90}


@pytest.mark.parametrize("key", ["train", "dev", "folder", "name"])
@pytest.mark.parametrize("name", ["a\0b", *LONG.values()], ids=["NUL", *LONG])
def test_a_name_that_no_file_can_have_is_one_line(key, name, invoke, tmp_path):
    lines = [f"{field} = {json.dumps(value)}" for field, value in {**TASK, key: name}.items()]
    (tmp_path / "own.toml").write_text("\n".join(lines), "utf-8")
    (tmp_path / "train.csv").write_text("text,label\n가,a\n나,b\n", "utf-8")
    (tmp_path / "dev.csv").write_text("text,label\n다,a\n라,b\n", "utf-8")
    result = invoke("train", "own.toml", "-m", "majority", "--data", tmp_path)
    assert result.code == 2
    assert key in result.complaint
    assert len(result.complaint) < 300


@pytest.mark.parametrize("name", ["../other", "a/b", "..", " "])
def test_a_task_is_not_named_like_a_path(name, invoke, tmp_path):
    (tmp_path / "own.toml").write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in {**TASK, "name": name}.items()))
    assert "name" in invoke("train", "own.toml", "-m", "majority").complaint


@pytest.mark.parametrize("where", ["task", "data", "runs"])
def test_a_long_path_on_the_command_line_is_one_line(where, sample, invoke):
    long = "a" * 300
    task, data, runs = "ynat", sample, "runs"
    task, data, runs = {"task": (f"{long}.toml", data, runs), "data": (task, long, runs), "runs": (task, data, long)}[
        where
    ]
    result = invoke("train", task, "-m", "majority", "--data", data, "--runs", runs)
    assert result.code == 2
    assert "too long" in result.complaint
