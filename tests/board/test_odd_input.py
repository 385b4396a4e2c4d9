"""The board with odd addresses and corrupted files: a page or a line, never a failure."""

import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("starlette", reason="the extra board or serve is not installed")
pytest.importorskip("uvicorn")

from danseo.board.app import make_app
from danseo.board.pages import PageBuilder, make_live_status
from danseo.board.run_cache import RunCache
from danseo.display.escaping import to_json
from danseo.experiment import run_experiment
from danseo.models.registry import configure_run
from danseo.runs.progress_file import ProgressFile
from tests.damage import JSON_DAMAGES, as_device, as_folder, as_pipe, damaged, put_in_place

from .test_board import Served

LOG = "".join(f'{{"step": {k}, "loss": {5 / k}, "score": {k}.5, "best": {k}.5, "seconds": 1.0}}\n' for k in (1, 2, 3))
MASKED_LOG = "".join(
    json.dumps({"step": k, "loss": 5 / k, "held_out_loss": 6 / k, "held_out_accuracy": 0.1 * k,
                "probes": {"strict@1": 0.2}}) + "\n" for k in (1, 2, 3)
)  # fmt: skip
JOURNAL = '{"run": "a", "state": "done", "time": 1.5}\n{"run": "b", "state": "running", "time": 2.5, "where": "cpu"}\n'
PROBED = {"results": [{"checkpoint": "a", "step": k, "strict1": 0.5, "strict1_interval": [0.4, 0.6]} for k in (1, 2)]}
TRIALS = [{"trial": k, "state": "complete", "value": 0.5 + k, "settings": {"train.epochs": k}} for k in (1, 2, 3)]
TUNED = {
    "study": "s", "command": "train", "metric": "m", "best": {"trial": 3, "value": 3.5, "settings": {"a": 1}},
    "running": 0, "report": None, "importance": {"train.epochs": 0.5}, "trials": TRIALS, "config": "best.toml",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(sample, tmp_path_factory) -> Path:
    runs = tmp_path_factory.mktemp("odd") / "runs"
    run = run_experiment(configure_run("ynat", "linear", "default", {}), sample, runs, quiet=True).path
    (run / "log.jsonl").write_text(LOG)
    running = shutil.copytree(run, runs / "ynat--running")
    (running / "scores.json").unlink()
    ProgressFile(running).write(10, 40, 5.0)
    masked = runs / "masked"
    masked.mkdir()
    (masked / "pretrain.toml").write_text("")
    (masked / "log.jsonl").write_text(MASKED_LOG)
    (masked / "result.json").write_text('{"train_tokens_per_second": 5.5}')
    (masked / "probe_summary.json").write_text(json.dumps(PROBED))
    ProgressFile(masked).write(10, 40, 5.0)
    (runs / "a.sweep.jsonl").write_text(JOURNAL)
    (runs / "a.study.json").write_text(json.dumps({"cells": {"base": ["a"], "other": ["b"]}}))
    (runs / "s.tune.json").write_text(json.dumps(TUNED))
    return runs


FILES = (
    *("ynat--running/log.jsonl", "ynat--running/progress.json", "ynat--running/config.toml", "masked/log.jsonl"),
    *("masked/progress.json", "masked/result.json", "masked/probe_summary.json", "a.sweep.jsonl", "a.study.json"),
    *("s.tune.json", "LINEAR/log.jsonl", "LINEAR/predictions/dev.jsonl", "LINEAR/scores.json"),
    *("LINEAR/environment.json", "LINEAR/task.toml"),
)


def look(folder: Path, sample: Path) -> None:
    """Every page, as HTML and as JSON."""
    site = PageBuilder(RunCache(folder, str(sample)))
    snapshot = site.index.snapshot()
    pages = ("overview", "runs", "task/ynat", "compare", "sweeps", "masked")
    for key in (*pages, *snapshot.by_key):
        if found := site.page(key, {}):
            assert site.html(key, {})
            to_json(found.as_dict())
    to_json(make_live_status(snapshot))


def place(folder: Path, name: str) -> Path:
    return folder / name.replace("LINEAR", next(folder.glob("ynat--linear*")).name)


@pytest.mark.parametrize("name", FILES)
def test_corrupted_files_are_no_failure(folder, sample, tmp_path, name):
    runs = shutil.copytree(folder, tmp_path / "runs")
    path = place(runs, name)
    content = path.read_bytes() if path.exists() else b'name = "x"\ntype = "classification"\n'
    for number in range(3):
        path.write_bytes(damaged(content, JSON_DAMAGES, f"board {name}", number)[0])
        look(runs, sample)


@pytest.mark.parametrize("odd", [as_pipe, as_folder, as_device], ids=lambda odd: odd.__name__)
@pytest.mark.parametrize("start", range(3))
def test_odd_things_in_the_place_of_files(folder, sample, tmp_path, start, odd):
    runs = shutil.copytree(folder, tmp_path / "runs")
    for name in FILES[start::3]:
        put_in_place(place(runs, name), odd)
        look(runs, sample)


ODD_JSON = (
    *("null", "true", "-1", "1.5", "-0.0", "1e999", "-1e999", "NaN", "1e308", "9" * 400, "9" * 5000),
    *("[" * 99999 + "]" * 99999, '""', r'"\ud800"', r'"\u0000"', "[]", "{}", "[[1]]", "[null]"),
)


@pytest.mark.parametrize("value", ODD_JSON, ids=range(len(ODD_JSON)))
def test_odd_numbers_in_logs(folder, sample, tmp_path, value):
    runs = shutil.copytree(folder, tmp_path / "runs")
    for name in ("LINEAR/log.jsonl", "ynat--running/log.jsonl", "masked/log.jsonl"):
        lines = [
            f'{{"step": {k}, "{key}": {value}}}\n{{"step": {value}, "{key}": 1}}\n'
            for k in (1, 2)
            for key in ("loss", "score", "best", "held_out_loss", "held_out_accuracy", "probes")
        ]
        place(runs, name).write_text("".join(lines))  # fmt: skip
    for name in ("ynat--running/progress.json", "masked/progress.json"):
        place(runs, name).write_text(f'{{"step": {value}, "total": {value}, "seconds": {value}, "time": {value}}}')
    look(runs, sample)


@pytest.fixture(scope="module")
def board(folder, sample):
    served = Served(make_app(folder, str(sample)))
    yield served
    served.end()


ODD = ("9" * 5000, "-1", "0", "1e9", "٣", "²", "NaN", "\x00", "\udcff", "가" * 3000, "a&b=c", "%", "../..", "1;2")


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("name", ["page", "q", "run"])
def test_odd_queries(board, name, value):
    text = quote(value.encode("utf-8", "surrogateescape"), safe="")
    for page in ("runs", "compare", "runs.json"):
        status, _, _ = board.ask(f"/{page}?{name}={text}&{name}={text}")
        assert status == 200
        assert board.ask(f"/{page}?{text}")[0] == 200


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_addresses(board, value):
    text = quote(value.encode("utf-8", "surrogateescape"), safe="")
    for address in (
        f"/{text}",
        f"/run/{text}",
        f"/run/{text}.json",
        f"/task/{text}",
        f"/{text}/{text}",
        f"/runs/{text}",
    ):
        assert board.ask(address)[0] == 404
