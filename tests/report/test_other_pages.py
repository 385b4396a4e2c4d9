"""Pages and sections that only some folders have: effects of settings, studies, searches, replies, pre-training."""

import json
import re
import shutil
from pathlib import Path

import pytest

from danseo.plots.figures import Forest
from danseo.plots.svg import draw
from danseo.report.collect import collect
from danseo.report.comparing import compare_task
from danseo.report.html import parts_of
from danseo.report.others import other_links, other_pages
from danseo.report.overview import overview_page
from danseo.report.searches import sweep_states
from danseo.report.task_page import task_page
from tests.showing import EVIL

REPLIES = {
    "asked": 8, "failed": 2, "failed_percent": 25.0, "failed_at_first": 3, "failed_at_first_percent": 37.5,
    "classes": {"malformed": 2}, "replies_with": {},
}  # fmt: skip
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
            (copy / "scores.json").write_text(json.dumps(scores | ({"replies": REPLIES} if cell == "hot" else {})))
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


def test_settings_are_shown_by_what_their_runs_score(folder, sample):
    collection = collect([folder], str(sample))
    (task,) = collection.tasks()
    page = task_page(collection, task, compare_task(collection, task, collection.done(task), 50), 2)
    (block,) = sections(page)["What settings do"]
    assert [row[:3] for row in block.table.rows] == [("learning rate", f"0.{k}", 2) for k in (1, 2, 3)]
    means = [row[3] for row in block.table.rows]
    assert means == sorted(means, reverse=True)
    assert means[0] - means[2] == pytest.approx(10)
    (replies,) = sections(page)["Replies of language models"]
    assert {row[1:5] for row in replies.table.rows} == {(8, 2, 25.0, 37.5)}


def test_studies_searches_and_sweeps_have_a_page(folder, sample):
    page = next(page for page in other_pages([folder], str(sample)) if page.key == "sweeps")
    found = sections(page)
    assert list(found) == ["Study rates", "Search rates", "Runs of sweeps by state"]
    figure, table = found["Study rates"]
    assert [row[0] for row in figure.table.rows] == ["hot", "hotter"]
    assert [row[-1] for row in table.table.rows] == ["2", "2", "2"]
    assert found["Search rates"][0].figure.curves[1].points == [(1.0, 40.0), (2.0, 50.0), (3.0, 50.0)]
    assert found["Runs of sweeps by state"][0].table.rows == [("rates", 1, 1)]
    assert sweep_states(folder / "absent") == {}


def test_a_study_without_its_data_says_so(folder, tmp_path):
    page = other_pages([folder], str(tmp_path))[0]
    assert "no effects" in sections(page)["Study rates"][0].text


def test_pre_training_and_probes_have_a_page(folder):
    page = next(page for page in other_pages([folder]) if page.key == "masked")
    found = sections(page)
    losses, words = found["Training masked"]
    assert {curve.name: curve.points for curve in losses.figure.curves}["held-out loss"] == [(10, 4.5), (20, 3.5)]
    assert {curve.name: curve.points for curve in words.figure.curves} == {
        "held-out words found": [(10, 25.0), (20, 50.0)],
        "strict@1": [(10, 10.0), (20, 20.0)],
    }
    assert found["Probes in probed"][0].figure.curves[0].points == [(10, 10.0), (20, 20.0)]
    assert other_links([folder]) == [("sweeps", "Sweeps"), ("masked", "Pre-training")]
    assert other_links([folder / "search"]) == [("sweeps", "Sweeps")]


def test_a_folder_of_runs_alone_has_no_other_pages(runs, sample):
    assert other_pages([runs], str(sample)) == []
    assert other_links([runs]) == []


def test_the_first_page_says_what_is_best_and_what_beats_nothing(runs, sample):
    page = overview_page(collect([runs], str(sample)), {})
    assert f"Best so far: {EVIL} in TC." in page.lead
    assert "majority" not in page.lead
    assert "nothing is shown to beat the most frequent answer" in page.lead
    figure = sections(page)["Best per task"][0]
    assert [name for name, _ in figure.figure.references] == [
        "most frequent answer",
        "best published model, on the test set",
    ]


def test_numbers_of_the_klue_table_have_their_interval_below(runs, folder, sample):
    (block,) = sections(overview_page(collect([runs], str(sample)), {}))["The KLUE table"]
    own = next(row for part in parts_of(block) for row in part.rows if row[0]["text"] == "linear")
    below = {cell["below"] for cell in own if cell["below"]}
    assert len(below) == 1
    low, high = map(float, below.pop().split("–"))
    assert low < float(own[2]["text"]) < high
    (block,) = sections(overview_page(collect([folder], str(sample)), {}))["The KLUE table"]
    cells = [cell["below"] for part in parts_of(block) for row in part.rows for cell in row if cell["below"]]
    assert cells == ["± 0.7"]


def test_references_are_drawn_beside_the_value():
    drawn = draw(Forest(["a"], [(1, 2, 3)], "x", references=[("floor", [0.5]), ("best", [None])]), "t")
    assert drawn.count('class="diamond"') == 1  # in the line that says what it means
    assert drawn.count('class="bar muted"') == 2
