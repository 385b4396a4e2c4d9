"""Tables of runs and of groups of seeds."""

import csv
import io
import json
from pathlib import Path

import pytest

from danseo.config.run import RunConfig
from danseo.display.table import format_table
from danseo.runs.index import find_runs
from danseo.runs.store import Run
from danseo.tables.runs import compute_t_interval, make_group_table, make_run_table

from .test_tables import finished, ner, rows_of

SEEDS = {1: 84.0, 2: 85.0, 2024: 87.0}
SELECTED_ON_DEV = "dev (SELECTED ON THE REPORTED SET)"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed, score in SEEDS.items():
        finished(tmp_path, f"base-{seed}", "ner", ner(score, 90.0), seed=seed)
    return tmp_path


def finish_on_dev(root: Path, **settings) -> None:
    run = finished(root, "dev", "ner", ner(99.0, 90.0), **settings)
    scores = run.read_json("scores.json")
    listed = scores["scores"]["report"]
    listed[0]["interval"] = [98.0, 100.0]
    run.write_json("scores.json", scores | {"selected_on": "dev", "reported_on": "dev", "scores": {"dev": listed}})


def test_a_row_has_score_interval_and_split(root):
    finish_on_dev(root)
    first, *_, last = rows_of(make_run_table(find_runs(root)))
    assert (first["task"], first["model"], first["seed"], first["score"]) == ("ner", "roberta-base", 1, 84.0)
    assert (first["scored on"], first["seconds"]) == ("report split", 1.0)
    assert (last["scored on"], last["95 % interval"]) == (SELECTED_ON_DEV, "98.00 – 100.00")
    assert {row["score"] for row in rows_of(make_run_table(find_runs(root), "ner/char_f1@official-1"))} == {90.0}
    assert "| 2024 |" in format_table(make_run_table(find_runs(root)), "markdown"), "a seed has no separators"


def test_groups_have_mean_sample_deviation_and_t_interval(root):
    """84, 85, 87: mean 256/3, squares of deviations 42/9, so std = sqrt(7/3); t(0.975, 2) = 4.302653."""
    table = make_group_table(find_runs(root), ["model", "task"])
    (row,) = rows_of(table)
    assert (row["model"], row["task"], row["n"], row["scored on"]) == ("roberta-base", "ner", 3, "report split")
    assert (row["mean"], row["std"]) == pytest.approx((85.3333333, 1.5275252))
    assert row["95 % t-interval"] == "81.54 – 89.13"  # 85.3333 ± 4.302653 * 1.5275252 / sqrt(3) = 3.794583
    assert compute_t_interval([1.0, 3.0]) == pytest.approx((2 - 12.706205, 2 + 12.706205), abs=1e-5)
    (from_json,) = json.loads(format_table(table, "json"))
    (from_csv,) = csv.DictReader(io.StringIO(format_table(table, "csv")))
    assert (from_json["mean"], float(from_csv["std"])) == pytest.approx((85.3333333, 1.5275252))
    assert list(from_csv) == list(table.columns)


def test_means_hold_only_scores_of_the_same_split(root):
    finish_on_dev(root, seed=4)
    Run(root / "unfinished").start(RunConfig(task="ner", model="klue/roberta-base"))
    finished(root, "undefined", "ner", {"ner/entity_f1@official-1": None}, seed=9)
    rows = rows_of(make_group_table(find_runs(root), ["task"]))
    assert [(row["n"], row["scored on"]) for row in rows] == [(3, "report split"), (1, SELECTED_ON_DEV)]
    assert len(rows_of(make_run_table(find_runs(root)))) == 6


@pytest.mark.parametrize("style", ["markdown", "csv", "json"])
def test_a_table_of_no_runs_can_be_printed(tmp_path, style):
    for table in (make_run_table(find_runs(tmp_path)), make_group_table(find_runs(tmp_path), ["task"])):
        assert isinstance(format_table(table, style), str)
