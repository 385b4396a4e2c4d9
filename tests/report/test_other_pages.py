"""Pages and sections that only some folders have: effects of settings, studies, searches, replies, pre-training."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from danseo.errors import DanseoError
from danseo.report.build import list_other_links, make_other_pages, write_report
from danseo.report.collection import collect_runs
from danseo.report.comparison import TaskComparison, compare_task
from danseo.report.html import split_table
from danseo.report.overview import make_overview_page
from danseo.report.sweeps_page import count_sweep_states
from danseo.report.task_page import find_best_runs, make_task_page
from danseo.runs.lock import RunLocks
from danseo.tables.klue import choose_best_variant
from danseo.tasks import TASKS
from tests.showing import EVIL
from tests.tables.test_tables import finished, ner

EXTRA = {
    "failed_percent": 25.0,
    "extra_tables": [
        {"title": "replies of the model", "columns": ["count", "value"], "rows": [["asked", 8], ["failed", 2]]},
        {"title": "of another length", "columns": ["count", "value"], "rows": [["asked"]]},
    ],
}
TRIALS = {
    "study": "rates", "metric": "ynat/macro_f1@official-1", "config": "best.toml", "importance": {}, "report": None,
    "best": {"trial": 2, "value": 50.0, "settings": {"train.learning_rate": 0.1}},
    "trials": [
        {"trial": k, "state": "complete", "value": v, "seconds": 1.0, "train.learning_rate": r, "error": None}
        for k, v, r in ((1, 40.0, 0.2), (2, 50.0, 0.1), (3, 45.0, 0.3))
    ],
}  # fmt: skip
PRETRAINING = [
    {"step": 10, "loss": 5.0, "held_out_loss": 4.5, "held_out_accuracy": 0.25, "probes": {"strict@1": 0.1}},
    {"step": 20, "loss": 4.0, "held_out_loss": 3.5, "held_out_accuracy": 0.5, "probes": {"strict@1": 0.2}},
]
PROBES = {"results": [{"checkpoint": f"a/checkpoint-{s}", "step": s, "strict1": s / 100} for s in (10, 20)]}


@pytest.fixture(scope="module")
def folder(runs, tmp_path_factory) -> Path:
    """Six runs of one encoder, two seeds each of three rates, as copies of one run; and what lies beside runs."""
    position = tmp_path_factory.mktemp("others") / "runs"
    source = next(runs.glob("ynat--linear*"))
    cells: dict[str, list[str]] = {"base": [], "hot": [], "hotter": []}
    for number, (cell, names) in enumerate(cells.items()):
        for seed in (1, 2):
            names.append(f"ynat--enc--s{seed}--0000000{number}")
            copy = shutil.copytree(source, position / names[-1], ignore=shutil.ignore_patterns("model"))
            config = (copy / "config.toml").read_text().replace('model = "linear"', 'model = "enc"')
            rate = f"\nlearning_rate = 0.{number + 1}\n"
            config = re.sub(r"\nlearning_rate = .*\n", rate, config.replace("seed = 42", f"seed = {seed}"))
            (copy / "config.toml").write_text(config)
            facts = json.loads((copy / "environment.json").read_text()) | {"family": "encoder"}
            (copy / "environment.json").write_text(json.dumps(facts))
            scores = json.loads((copy / "scores.json").read_text())
            scores["scores"]["report"][0]["value"] -= 5 * number + seed
            (copy / "scores.json").write_text(json.dumps(scores | (EXTRA if cell == "hot" else {})))
    (position / "rates.study.json").write_text(json.dumps({"study": "rates", "cells": cells}))
    (position / "rates.sweep.jsonl").write_text('{"run": "a", "state": "done"}\n{"run": "b", "state": "failed"}\n{"ru')
    (position / "search").mkdir()
    (position / "search" / "result.json").write_text(json.dumps(TRIALS))
    (position / "masked" / "probed").mkdir(parents=True)
    (position / "masked" / "pretrain.toml").write_text("")
    (position / "masked" / "log.jsonl").write_text("\n".join(map(json.dumps, PRETRAINING)) + '\n{"step": 30, "lo')
    (position / "masked" / "probed" / "probe_summary.json").write_text(json.dumps(PROBES))
    return position


def sections(page) -> dict:
    return {section.title: section.blocks for section in page.sections}


def test_settings_are_ranked_by_the_scores_of_their_runs(folder, sample):
    collection = collect_runs([folder], str(sample))
    (task,) = collection.tasks()
    page = make_task_page(collection, task, compare_task(collection, task, collection.done(task), 50), 2)
    (block,) = sections(page)["What settings do"]
    assert [row[:3] for row in block.table.rows] == [("learning rate", f"0.{k}", 2) for k in (1, 2, 3)]
    means = [row[3] for row in block.table.rows]
    assert means == sorted(means, reverse=True)
    assert means[0] - means[2] == pytest.approx(10)
    (replies,) = sections(page)["Replies of the model"]
    assert {row[1:] for row in replies.table.rows} == {(8, 2)}


def test_studies_searches_and_sweeps_have_a_page(folder, sample):
    page = next(page for page in make_other_pages([folder], str(sample)) if page.key == "sweeps")
    found = sections(page)
    assert list(found) == ["Study rates", "Search rates", "Runs of sweeps by state", "Sweep rates"]
    figure, table = found["Study rates"]
    assert [row[0] for row in figure.table.rows] == ["hot", "hotter"]
    assert [row[-1] for row in table.table.rows] == ["2", "2", "2"]
    assert found["Search rates"][0].figure.curves[1].points == [(1.0, 40.0), (2.0, 50.0), (3.0, 50.0)]
    assert found["Runs of sweeps by state"][0].table.rows == [("rates", 1, 1)]
    assert count_sweep_states(folder / "absent") == {}


def test_a_study_without_its_data_has_a_note(folder, tmp_path):
    page = make_other_pages([folder], str(tmp_path))[0]
    assert "no effects" in sections(page)["Study rates"][0].text


def test_pre_training_and_probes_have_a_page(folder):
    page = next(page for page in make_other_pages([folder]) if page.key == "masked")
    found = sections(page)
    losses, words = found["Training masked"]
    assert {curve.name: curve.points for curve in losses.figure.curves}["held-out loss"] == [(10, 4.5), (20, 3.5)]
    assert {curve.name: curve.points for curve in words.figure.curves} == {
        "held-out words found": [(10, 25.0), (20, 50.0)],
        "strict@1": [(10, 10.0), (20, 20.0)],
    }
    assert found["Probes in masked/probed"][0].figure.curves[0].points == [(10, 10.0), (20, 20.0)]
    assert list_other_links([folder]) == [("sweeps", "Sweeps"), ("masked", "Masked LMs")]
    assert list_other_links([folder / "search"]) == [("sweeps", "Sweeps")]


def test_a_fold_is_no_variant_beside_complete_runs(folder, sample):
    records = collect_runs([folder], str(sample)).records[:2]
    scored = {"select_score": 99.0}  # on examples of train
    fold = replace(records[0], settings={**records[0].settings, "n_folds": 5}, scores={**records[0].scores, **scored})
    assert choose_best_variant([fold, records[1]]) == [records[1]]
    assert choose_best_variant([fold]) == [fold]


def test_folds_and_parts_of_dev_are_never_the_best(folder, sample):
    records = collect_runs([folder], str(sample)).records[:3]
    complete = min(records, key=lambda record: record.rank_value())
    fold, part = (
        replace(r, settings={**r.settings, **more})
        for r, more in zip(
            [record for record in records if record is not complete],
            ({"n_folds": 5}, {"prompt.max_eval_samples": 9}),
            strict=True,
        )
    )
    assert find_best_runs([fold, part, complete]) == [complete]
    assert find_best_runs([part]) == [part]


def test_a_run_on_all_of_dev_is_not_compared_with_one_on_the_report_split(folder, sample):
    record = collect_runs([folder], str(sample)).records[0]
    whole = replace(record, scores={**record.scores, "reported_on": "dev", "selected_on": "dev"})
    assert len(find_best_runs([record, whole])) == 2


def test_a_folder_without_runs_has_a_report_of_its_other_files(folder, tmp_path):
    shutil.copytree(folder / "masked", tmp_path / "masked")
    (tmp_path / "masked" / "result.json").write_text('{"steps": 20}')
    assert list_other_links([tmp_path]) == [("masked", "Masked LMs")]  # the result of a training is no search
    told = write_report([tmp_path], tmp_path / "r.html")
    assert told["runs"] == 0
    assert "Overview" not in (tmp_path / "r.html").read_text()
    shutil.rmtree(tmp_path / "masked")
    with pytest.raises(DanseoError, match="no runs"):
        write_report([tmp_path], tmp_path / "r.html")


def test_a_sweep_shows_its_queue_and_whom_a_kill_stopped(folder, sample, tmp_path):
    runs = shutil.copytree(folder, tmp_path / "runs")
    names = sorted(path.name for path in runs.glob("ynat--enc*"))
    lock = RunLocks(runs).acquire(names[2])
    states = {names[0]: "done", names[1]: "failed", names[2]: "running", "gone": "running", "../x": "running"}
    lines = [{"run": name, "state": "queued"} for name in (*states, "waits")]
    lines += [
        {"run": name, "state": state, "time": 5.0, "error": "why" * (state == "failed")}
        for name, state in states.items()
    ]
    log = runs / "rates.sweep.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert count_sweep_states(log) == {"done": 1, "failed": 1, "running": 1, "stopped": 2, "queued": 1}
    assert count_sweep_states(log, now=20.0)["running"] == 3  # they may not have got their locks yet
    lock.release()
    assert count_sweep_states(log)["stopped"] == 3
    assert count_sweep_states(log, now=20.0)["running"] == 2  # one had its lock, and is gone
    collection = collect_runs([runs], str(sample))
    (page,) = (page for page in make_other_pages([runs], str(sample), collection) if page.key == "sweeps")
    (block,) = sections(page)["Sweep rates"]
    rows = [dict(zip(block.table.columns, row, strict=True)) for row in block.table.rows]
    assert [row["state"] for row in rows[-2:]] == ["done", "failed"]
    assert rows[-2]["score"] is not None
    assert rows[-1]["why"] == "why"
    assert block.row_links[-2] == {rows[-2]["run"]: collection.keys[str(runs / names[0])]}


def test_scores_on_the_sample_are_not_drawn_beside_published_ones(runs, sample):
    page = make_overview_page(collect_runs([runs], str(sample)), {})
    assert "not KLUE scores" in page.lead
    assert [name for name, _ in sections(page)["Best per task"][0].figure.references] == ["most frequent answer"]


def test_the_overview_names_the_best_runs_and_those_below_the_baseline(runs, sample, monkeypatch):
    monkeypatch.setattr("danseo.report.overview.is_of_sample", lambda record: False)
    page = make_overview_page(collect_runs([runs], str(sample)), {})
    assert f"Best so far: {EVIL} (sample) in TC." in page.lead
    assert "majority" not in page.lead
    assert "no run is significantly better than the most frequent answer" in page.lead
    figure = sections(page)["Best per task"][0]
    assert [name for name, _ in figure.figure.references] == ["most frequent answer", "best published model, on dev"]


def test_a_task_page_has_published_scores_of_the_same_metric_and_apart_from_them_others(runs, sample, monkeypatch):
    collection, task = collect_runs([runs], str(sample)), TASKS["ynat"]
    assert "Published scores" not in sections(make_task_page(collection, task, TaskComparison(), 1)), "the sample"
    monkeypatch.setattr("danseo.report.task_page.is_of_sample", lambda record: False)
    same, others = sections(make_task_page(collection, task, TaskComparison(), 1))["Published scores"]
    assert ("KLUE-RoBERTa-base", 86.19) in {row[:2] for row in same.table.rows}
    assert "no run here answered all" in same.table.note
    assert others.folded
    assert "ynat/macro_f1@official-1, test" in {row[0] for row in others.table.rows}


def test_numbers_of_the_klue_table_have_their_interval_below(runs, folder, sample):
    (block,) = sections(make_overview_page(collect_runs([runs], str(sample)), {}))["The KLUE table"]
    own = next(row for part in split_table(block, "en") for row in part.rows if row[0]["text"] == "linear")
    below = {cell["below"] for cell in own if cell["below"]}
    assert len(below) == 1
    low, high = map(float, below.pop().split("–"))
    assert low < float(own[2]["text"]) < high
    (block,) = sections(make_overview_page(collect_runs([folder], str(sample)), {}))["The KLUE table"]
    cells = [cell["below"] for part in split_table(block, "en") for row in part.rows for cell in row if cell["below"]]
    assert cells == ["± 0.7"]


def test_a_fold_is_never_the_best_run_of_a_task(tmp_path):
    for name, value, settings in (("plain", 80.0, {}), ("fold", 95.0, {"n_folds": 5, "fold": 2})):
        finished(tmp_path, name, "ner", ner(value, value), model=f"m/{name}", **settings)
    page = make_overview_page(collect_runs([tmp_path], None), {})
    assert "plain" in page.lead
    assert "fold" not in page.lead
