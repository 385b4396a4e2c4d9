"""Ensembles as runs: the same directory for the same members, honest fitting, and one line for what cannot be."""

import json
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from danseo.data.dev_split import assign_split
from danseo.data.prediction_file import read_predictions
from danseo.ensembling.ensemble import (
    EnsembleOptions,
    WeightScorer,
    fit_weights,
    make_ensemble,
    make_ensemble_tables,
    parse_weights,
    select_greedily,
)
from danseo.errors import DanseoError, WorkFailed
from danseo.inference.evaluation import evaluate_run
from danseo.runs.index import read_record
from danseo.runs.lock import lock_folder
from danseo.runs.predictions import open_members
from danseo.runs.store import Run
from danseo.tasks import TASKS


def make_run_of(paths, sample, runs, **options) -> Run:
    return make_ensemble(paths, str(sample), runs, EnsembleOptions(**options))


@pytest.mark.parametrize("task", TASKS)
def test_an_ensemble_is_an_ordinary_run(three, sample, tmp_path, task):
    run = make_run_of(three[task], sample, tmp_path)
    scores = run.read_json("scores.json")
    method = "vote" if task == "wos" else "prob"
    assert run.path.name.startswith(f"{task}--ensemble-{method}--s1+2+3--")
    assert {"config.toml", "environment.json", "members.json", "scores.json"} <= {p.name for p in run.path.iterdir()}
    assert (run.path / "predictions" / "dev.npz").is_file() is (task in ("ner", "dp", "mrc"))
    record = read_record(run)
    assert (record.status, record.seeds, record.is_made_of_runs) == ("done", (1, 2, 3), True)
    assert scores["ensemble"]["fitted_on"] == ("select" if task == "mrc" else None)
    assert (scores["ensemble"]["threshold"] is not None) == (task == "mrc")
    assert [member["weight"] for member in scores["ensemble"]["members"]] == pytest.approx([1 / 3] * 3)
    again = evaluate_run(run.path, "dev", None, str(sample)).as_dict()["scores"]
    assert [s["value"] for s in again] == [s["value"] for s in scores["scores"]["dev"]]


def test_the_same_members_and_options_give_the_same_directory(three, sample, tmp_path):
    paths = three["nli"]
    run = make_run_of(paths, sample, tmp_path)
    stamp = (run.path / "scores.json").stat().st_mtime_ns
    for order in (paths, paths[::-1]):
        assert make_run_of(order, sample, tmp_path).path == run.path
    assert (run.path / "scores.json").stat().st_mtime_ns == stamp, "a finished one is returned"
    weighted = make_run_of(paths, sample, tmp_path, weights="1,2,3")
    assert weighted.path == make_run_of(paths[::-1], sample, tmp_path, weights="3,2,1").path
    assert weighted.path == make_run_of(paths, sample, tmp_path, weights="2,4,6").path
    others = {
        make_run_of(paths, sample, tmp_path, **o).path
        for o in ({"method": "vote"}, {"select": "greedy"}, {"weights": "fit"})
    }
    assert len({run.path, weighted.path, *others}) == 5


def test_table_of_members_names_the_split(three, make_run, sample, tmp_path):
    titles = [make_ensemble_tables(make_run_of(three["nli"], sample, tmp_path))[0].title]
    peeked = make_run(tmp_path, "nli", 9, select_on="dev")
    titles.append(make_ensemble_tables(make_run_of([three["nli"][0], peeked], sample, tmp_path))[0].title)
    assert titles == [
        "nli/accuracy@official-1 on the report split of dev",
        "nli/accuracy@official-1 on the whole dev set (SELECTED ON THE REPORTED SET)",
    ]


def test_double_counts_are_noted(three, sample, tmp_path):
    paths, notes = three["nli"], []
    first = make_run_of(paths[:2], sample, tmp_path)
    make_ensemble([first.path, paths[2]], str(sample), tmp_path, EnsembleOptions(), on_note=notes.append)
    assert notes == []
    make_ensemble([first.path, *paths[1:]], str(sample), tmp_path, EnsembleOptions(), on_note=notes.append)
    assert notes == [f"note: {paths[1].name} counts twice, for itself and in {first.path.name}"]
    copy = Path(shutil.copytree(paths[0], tmp_path / "copy"))
    notes.clear()
    make_ensemble([*paths[:2], copy], str(sample), tmp_path, EnsembleOptions(), on_note=notes.append)
    (note,) = notes
    assert "is a copy of" in note
    assert {"copy", paths[0].name} < set(note.split())


# Fitting


def test_fitting_uses_the_select_split_only(three, sample, tmp_path, monkeypatch):
    """Wrong answers on the report split change the scores, but no weight."""
    task, paths = TASKS["nli"], []
    for path in three["nli"]:
        paths.append(Path(shutil.copytree(path, tmp_path / path.name)))
    options = {"weights": "fit", "select": "greedy"}
    before = make_run_of(paths, sample, tmp_path / "runs", **options).read_json("scores.json")
    examples = task.read(sample / task.folder / task.file("dev"))
    reported = {example.guid for example in examples if assign_split(task, example) == "report"}
    sure = {"answer": "neutral", "probabilities": {"neutral": 1.0, "entailment": 0.0, "contradiction": 0.0}}
    for answers in (path / "predictions" / "dev.jsonl" for path in paths):
        lines = [json.loads(line) for line in answers.read_text().splitlines()]
        changed = [line | sure if line["guid"] in reported else line for line in lines]
        answers.write_text("".join(json.dumps(line) + "\n" for line in changed))
    after = make_run_of(paths, sample, tmp_path / "runs", **options).read_json("scores.json")
    weights = [[m["weight"] for m in scores["ensemble"]["members"]] for scores in (before, after)]
    assert weights[0] == weights[1]
    assert before["select_score"] == after["select_score"]
    assert before["scores"]["report"] != after["scores"]["report"]
    assert before["ensemble"]["fitted_on"] == "select"


def test_a_useless_member_gets_no_weight(make_run, sample, tmp_path):
    good = [make_run(tmp_path, "nli", seed) for seed in (1, 2)]
    bad = make_run(tmp_path, "nli", 3)
    answers = bad / "predictions" / "dev.jsonl"
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    turn = {"neutral": "entailment", "entailment": "contradiction", "contradiction": "neutral"}
    for line in lines:
        line["answer"] = turn[line["answer"]]
        line["probabilities"] = {turn[label]: p for label, p in line["probabilities"].items()}
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    members = open_members([*good, bad], str(sample))
    scorer = WeightScorer(members, "prob")
    assert select_greedily(scorer, np.ones(3))[2] == 0
    fitted = fit_weights(scorer, np.ones(3))
    assert fitted[2] < 0.2
    assert scorer(fitted) >= scorer(np.ones(3))
    assert fitted.sum() == pytest.approx(1)


@pytest.mark.parametrize("text", ["1", "1,2,3", "a,b", "0,0", "-1,2", "nan,1", "inf,1", ""])
def test_bad_weights(text):
    with pytest.raises(DanseoError, match="--weights"):
        parse_weights(text, 2)


# What cannot be


@pytest.fixture
def fail(sample, tmp_path):
    def fails(paths, match, data=None, **options):
        with pytest.raises(DanseoError, match=match):
            make_ensemble(paths, str(data or sample), tmp_path / "runs", EnsembleOptions(**options))
        assert not (tmp_path / "runs").exists(), "nothing is written before everything is checked"

    return fails


def test_refusals(three, make_run, sample, tmp_path, fail):
    ner, other = three["ner"], three["dp"][0]
    fail(ner[:1], "at least two")
    fail([ner[0], other], r"different task \('ner' and 'dp'\)")
    fail([ner[0], tmp_path / "nowhere"], "not a run directory")
    bare = make_run(tmp_path, "ner", 9, kept=False)
    fail([ner[0], bare], "dev.npz: no character probabilities, which --method prob needs; use --method vote")
    fail(three["wos"], "keep only their answers", method="prob")
    fail(ner, "2 numbers for 3 runs", weights="1,2")
    unfinished = make_run(tmp_path, "ner", 8)
    (unfinished / "scores.json").unlink()
    fail([ner[0], unfinished], "is unfinished: all members must be finished")
    Run(unfinished).fail("the loss is nan")
    fail([ner[0], unfinished], r"is failed \(the loss is nan\)")


def test_members_have_to_answer_the_same_examples(three, make_run, sample, tmp_path, fail):
    moved = make_run(tmp_path, "nli", 7)
    environment = json.loads((moved / "environment.json").read_text())
    environment["data"] = dict.fromkeys(environment["data"], "0" * 64)
    (moved / "environment.json").write_text(json.dumps(environment))
    fail([three["nli"][0], moved], "different dev file")
    fail([moved, moved], "is not the dev file that the runs were scored on")
    short = make_run(tmp_path, "nli", 6)
    answers = short / "predictions" / "dev.jsonl"
    answers.write_text("".join(answers.read_text().splitlines(keepends=True)[1:]))
    fail([three["nli"][0], short], "1 of .* examples have no prediction")


def test_side_files_are_checked(make_run, three, tmp_path, fail):
    for name, content in (("dp", b"PK\x03\x04 not a zip"), ("mrc", b"\x93NUMPY")):
        run = make_run(tmp_path, name, 5)
        (run / "predictions" / "dev.npz").write_bytes(content)
        fail([three[name][0], run], "not a readable npz file")
    run = make_run(tmp_path, "ner", 5)
    shutil.copy(three["dp"][0] / "predictions" / "dev.npz", run / "predictions" / "dev.npz")
    fail([three["ner"][0], run], "does not fit ner")


def test_foreign_files_vote(three, sample, tmp_path):
    foreign = tmp_path / "theirs.jsonl"
    records = [json.loads(line) for line in (three["re"][1] / "predictions" / "dev.jsonl").read_text().splitlines()]
    foreign.write_text("".join(json.dumps({"guid": r["guid"], "answer": r["answer"]}) + "\n" for r in records))
    with pytest.raises(DanseoError, match="not all predictions have probabilities"):
        make_run_of([three["re"][0], foreign], sample, tmp_path / "runs")
    run = make_run_of([three["re"][0], foreign, three["re"][2]], sample, tmp_path / "runs", method="vote")
    ids = [s["id"] for s in run.read_json("scores.json")["scores"]["dev"]]
    assert "re/auprc@official-1" in ids, "shares of votes rank"
    with pytest.raises(DanseoError, match="at least one run directory"):
        make_run_of([foreign, foreign], sample, tmp_path / "runs")


def test_better_member_wins_tied_votes(three, sample, tmp_path):
    """Two members: where they differ, the one that is better on the select split is followed."""
    pairs = [open_members(pair, str(sample)) for pair in combinations(three["nli"], 2)]
    members = next(pair for pair in pairs if len({member.select_score for member in pair.members}) == 2)
    better = max(members.members, key=lambda member: member.select_score)
    run = make_run_of([member.path for member in members.members], sample, tmp_path, method="vote")
    answers = read_predictions(run.predictions_path("dev"), members.task, members.examples)
    assert [p.answer for p in answers] == [p.answer for p in better.predictions]


def test_an_ensemble_that_another_process_makes_is_left_to_it(three, sample, tmp_path):
    run = make_run_of(three["ynat"], sample, tmp_path / "first")
    folder = tmp_path / "second" / run.path.name
    with lock_folder(folder), pytest.raises(WorkFailed, match="is being written by another process"):
        make_ensemble(three["ynat"], str(sample), folder.parent, EnsembleOptions(), wait=False)
    assert not folder.exists()
