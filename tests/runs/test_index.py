import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from danseo.config import RunConfig
from danseo.display.formats import formatted
from danseo.errors import DanseoError
from danseo.runs.directory import Run
from danseo.runs.index import find_runs
from danseo.runs.layouts.listing import group_table, run_table, t_interval
from danseo.settings.values import with_settings

HEADLINE, OTHER = "ner/entity_f1@official-1", "ner/char_f1@official-1"
SEEDS = {1: 84.0, 2: 85.0, 3: 87.0}


def finished(root: Path, name: str, score: float | None, selected_on: str = "select", **settings) -> Run:
    run = Run(root / name)
    run.start(with_settings(RunConfig(task="ner", model="klue/roberta-base"), settings))
    reported = "dev" if selected_on == "dev" else "report"
    listed = [
        {"id": HEADLINE, "value": score, "interval": None if score is None else [score - 1, score + 1], "n": 100},
        {"id": OTHER, "value": 90.0, "interval": None, "n": 100},
    ]
    scores = {"headline": HEADLINE, "selected_on": selected_on, "reported_on": reported, "scores": {reported: listed}}
    run.write_json("environment.json", {"seconds": 12.5})
    run.write_json("scores.json", scores)
    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed, score in SEEDS.items():
        finished(tmp_path, f"base-{seed}", score, seed=seed)
    return tmp_path


def rows_of(table) -> list[dict]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_runs_are_found_by_name(root):
    Run(root / "deep" / "er").start(RunConfig(task="dp", model="majority"))
    records = find_runs(root)
    assert [record.run.path.name for record in records] == ["base-1", "base-2", "base-3", "er"]
    assert [record.status for record in records] == ["done", "done", "done", "unfinished"]


def test_seeds_come_in_the_order_of_numbers(tmp_path):
    for seed in (10, 2, 1):
        finished(tmp_path, f"ner--base--s{seed}--0a1b", 80.0, seed=seed)
    assert [record.seed for record in find_runs(tmp_path)] == [1, 2, 10]


def test_programs_are_told_the_directory(root):
    (first, *_) = rows_of(run_table(find_runs(root), with_paths=True))
    assert first["run"] == str(root / "base-1")
    assert "run" not in run_table(find_runs(root)).columns, "on a terminal there is no room for it"


@pytest.mark.parametrize(
    ("seeds", "shown"), [((7,), 7), ((1, 2, 3), "1–3"), ((1, 2, 10), "1+2+10"), ((1, 3, 5, 7, 9), "5 seeds")]
)
def test_no_seed_is_claimed_that_was_not_there(root, seeds, shown):
    members = {"ensemble": {"members": [{"run": f"m{seed}", "seed": seed} for seed in seeds]}}
    assert replace(find_runs(root)[0], scores=members).seed == shown


def test_a_seed_is_a_name_and_not_a_quantity(tmp_path):
    finished(tmp_path, "year", 80.0, seed=2024)
    assert "2024" in formatted(run_table(find_runs(tmp_path)), "markdown")


def test_no_folder_is_one_line(tmp_path):
    with pytest.raises(DanseoError, match="not a folder of runs"):
        find_runs(tmp_path / "nowhere")


def test_a_row_says_what_was_scored_where(root):
    finished(root, "peeked", 99.0, selected_on="dev")
    first, *_, peeked = rows_of(run_table(find_runs(root)))
    assert (first["task"], first["model"], first["seed"], first["score"]) == ("ner", "roberta-base", 1, 84.0)
    assert (first["95 % interval"], first["scored on"], first["seconds"]) == ("83.00 – 85.00", "report half", 12.5)
    assert peeked["scored on"] == "dev (SELECTED ON THE REPORTED SET)"
    assert {row["score"] for row in rows_of(run_table(find_runs(root), OTHER))} == {90.0}


def test_groups_have_mean_sample_deviation_and_t_interval(root):
    """84, 85, 87: mean 256/3, squares of deviations 42/9, so std = sqrt(7/3); t(0.975, 2) = 4.302653."""
    (row,) = rows_of(group_table(find_runs(root), ["model", "task"]))
    assert (row["model"], row["task"], row["metric"], row["n"]) == ("roberta-base", "ner", HEADLINE, 3)
    assert row["mean"] == pytest.approx(85.3333333)
    assert row["std"] == pytest.approx(1.5275252)
    assert row["95 % t-interval"] == "81.54 – 89.13"  # 85.3333 ± 4.302653 * 1.5275252 / sqrt(3) = 3.794583
    assert row["scored on"] == "report half"


def test_t_intervals_by_hand():
    assert t_interval([84.0, 85.0, 87.0]) == pytest.approx((81.538750, 89.127916), abs=1e-5)
    assert t_interval([1.0, 3.0]) == pytest.approx((2 - 12.706205, 2 + 12.706205), abs=1e-5)
    assert t_interval([5.0]) == (None, None)


def test_one_seed_has_no_spread(root):
    rows = rows_of(group_table(find_runs(root), ["seed"]))
    assert [(row["seed"], row["mean"], row["std"], row["n"], row["95 % t-interval"]) for row in rows] == [
        (seed, score, None, 1, None) for seed, score in SEEDS.items()
    ]


def test_what_was_scored_differently_is_never_averaged(root):
    finished(root, "peeked", 99.0, selected_on="dev", seed=4)
    rows = rows_of(group_table(find_runs(root), ["task"]))
    assert [(row["n"], row["scored on"]) for row in rows] == [
        (3, "report half"),
        (1, "dev (SELECTED ON THE REPORTED SET)"),
    ]


def test_unfinished_and_undefined_runs_are_left_out_of_means(root):
    Run(root / "unfinished").start(RunConfig(task="ner", model="klue/roberta-base"))
    finished(root, "undefined", None, seed=9)
    (row,) = rows_of(group_table(find_runs(root), ["task"]))
    assert row["n"] == 3
    assert len(rows_of(run_table(find_runs(root)))) == 5


def test_short_and_full_names_of_settings_group_alike(root):
    records = find_runs(root)
    for key in ("learning_rate", "train.learning_rate"):
        assert [row[key] for row in rows_of(group_table(records, [key]))] == [5e-5]
    with pytest.raises(DanseoError, match="--group rate: no such setting"):
        group_table(records, ["rate"])


def test_formats_hold_the_same_numbers(root):
    table = group_table(find_runs(root), ["model", "task"])
    (from_json,) = json.loads(formatted(table, "json"))
    assert from_json["mean"] == pytest.approx(85.3333333)
    (from_csv,) = csv.DictReader(io.StringIO(formatted(table, "csv")))
    assert float(from_csv["std"]) == pytest.approx(1.5275252)
    assert list(from_csv) == list(table.columns)
    assert "| roberta-base | ner |" in formatted(table, "markdown")
    assert "85.33" in formatted(table, "markdown")


@pytest.mark.parametrize("style", ["markdown", "csv", "json"])
def test_a_table_of_no_runs_can_be_printed(tmp_path, style):
    for table in (run_table(find_runs(tmp_path)), group_table(find_runs(tmp_path), ["task"])):
        assert isinstance(formatted(table, style), str)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.toml", b"task = "),
        ("config.toml", b'task = "ner"'),
        ("config.toml", b'task = "ner"\nmodel = "x"\n[train]\nlearning_rat = 1.0'),
        ("config.toml", b"\xff\xfe"),
        ("scores.json", b'{"scores": {'),
        ("scores.json", b"[1, 2]"),
        ("scores.json", b'{"headline": "x"}'),
        ("environment.json", b"[]"),
        ("environment.json", b"\xff"),
    ],
)
def test_a_damaged_run_is_listed_and_harms_no_other(root, file, content):
    (root / "base-2" / file).write_bytes(content)
    records = find_runs(root)
    assert [record.status for record in records] == ["done", "damaged", "done"]
    assert records[1].note
    assert "damaged: " in formatted(run_table(records), "markdown")
    assert rows_of(group_table(records, ["task"]))[0]["n"] == 2


def test_a_failed_run_says_why(root):
    run = Run(root / "failed")
    run.start(RunConfig(task="ner", model="x"))
    run.fail("the loss is nan at step 3")
    assert rows_of(run_table(find_runs(root)))[-1]["status"] == "failed: the loss is nan at step 3"
    (run.path / "error.txt").write_bytes(b"\xff\xfe")
    assert find_runs(root)[-1].status == "damaged"
