"""Means are over seeds and nothing else; a copy is no second run; different models have different names."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from danseo.config.run import RunConfig
from danseo.display.table import Best, Table, compact, format_tables, to_markdown
from danseo.runs.index import find_runs
from danseo.runs.naming import make_names_unique, shorten_model
from danseo.runs.store import Run, compute_fingerprint, find_run_path, make_run_name
from danseo.tables.choose import TableChoice, choose_tables
from danseo.tables.klue import make_klue_tables
from danseo.tables.run_summary import make_run_tables
from danseo.tables.runs import make_group_table, make_run_table
from danseo.tables.seeds import make_seed_tables, make_sweep_table
from danseo.tables.variants import label_variants

from .test_tables import finished, ner, rows_of

DATA = {"klue-ner-v1.1_train.tsv": "aa", "klue-ner-v1.1_dev.tsv": "bb"}


def noted(run: Run, **facts: Any) -> Run:
    """The run with more in its environment.json."""
    run.write_json("environment.json", {**run.read_json("environment.json"), **facts})
    return run


def groups(root: Path, *keys: str) -> list[dict[str, Any]]:
    return rows_of(make_group_table(find_runs(root), keys or ("model", "task")))


def test_groups_never_mix_settings(tmp_path):
    """Once these were one row of 20 runs, 16.95 ± 15.65."""
    variants: list[dict[str, Any]] = [
        {"learning_rate": 5e-5},
        {"learning_rate": 1e-3},
        {"epochs": 1.0},
        {"max_train_samples": 100},
        {"model": "other/bert"},
    ]
    for number, settings in enumerate(variants):
        for seed in (1, 2):
            finished(tmp_path, f"{number}-{seed}", "ner", ner(10 * number + seed, 90), seed=seed, **settings)
    rows = groups(tmp_path)
    assert [row["n"] for row in rows] == [2] * 5
    assert [row["std"] for row in rows] == pytest.approx([0.7071068] * 5)
    told = [(row["model"], row["learning rate"], row["epochs"], row["max train samples"]) for row in rows]
    assert sorted(told) == sorted(
        [
            ("roberta-base", 5e-5, 3.0, 0),
            ("roberta-base", 1e-3, 3.0, 0),
            ("roberta-base", 5e-5, 1.0, 0),
            ("roberta-base", 5e-5, 3.0, 100),
            ("bert", 5e-5, 3.0, 0),
        ]
    )
    assert "batch size" not in rows[0], "only settings that differ are shown"
    by_rate = groups(tmp_path, "learning_rate")
    assert {row["model"] for row in by_rate} == {"roberta-base", "bert"}, "what was not asked for is split all the same"


def test_a_learning_rate_is_printed_as_typed(tmp_path):
    for rate in (5e-5, 1e-3):
        finished(tmp_path, str(rate), "ner", ner(80, 90), learning_rate=rate)
    for table in (
        make_group_table(find_runs(tmp_path), ["learning_rate"]),
        make_run_table(find_runs(tmp_path)),
        make_sweep_table(find_runs(tmp_path)),
    ):
        assert "| 5e-05 |" in to_markdown(table)
        assert "| 0.001 |" in to_markdown(table)


def test_a_copied_directory_is_no_second_seed(tmp_path):
    one = finished(tmp_path, "ner--base--s1--0a1b2c3d", "ner", ner(80, 90), seed=1)
    finished(tmp_path, "ner--base--s2--1a1b2c3d", "ner", ner(84, 90), seed=2)
    for name in ("copy", "backup/ner--base--s1--0a1b2c3d"):
        shutil.copytree(one.path, tmp_path / name)
    records = find_runs(tmp_path)
    table = make_group_table(records, ["model", "task"])
    assert [(row["n"], row["mean"]) for row in rows_of(table)] == [(2, 82.0)]
    assert "copy is ner--base--s1--0a1b2c3d again" in table.note
    seeds, summary = make_seed_tables(records)
    assert (len(seeds.rows), rows_of(summary)[0]["n"]) == (2, 2)
    assert rows_of(make_klue_tables(records)[0])[0]["seeds"] == "2"
    assert len(make_sweep_table(records).rows) == 2
    listed = rows_of(make_run_table(records, with_paths=True))
    assert [row["status"] for row in listed].count("copy") == 2, "a list has them all"
    assert next(row for row in listed if row["run"].endswith("/copy"))["status"] == "copy"


def test_of_a_baseline_no_setting_of_training_counts(tmp_path):
    for epochs in (1.0, 2.0):
        finished(tmp_path, f"f{epochs}", "ner", ner(0, 5), model="majority", epochs=epochs)
    (row,) = groups(tmp_path)
    assert row["n"] == 1
    finished(tmp_path, "trained", "ner", ner(0, 5))
    (first, *_) = rows_of(make_run_table(find_runs(tmp_path)))
    assert (first["learning rate"], first["epochs"]) == (None, None)


def test_other_data_are_another_group(tmp_path):
    for number, dev in enumerate(("bb", "bb", "cc")):
        run = finished(tmp_path, f"r{number}", "ner", ner(80 + number, 90), seed=number)
        noted(run, data={**DATA, "klue-ner-v1.1_dev.tsv": dev})
    assert sorted(row["n"] for row in groups(tmp_path)) == [1, 2]
    assert len({row["data"] for row in groups(tmp_path)}) == 2
    own = [row for row in rows_of(make_klue_tables(find_runs(tmp_path))[0]) if row["seeds"]]
    assert [(row["seeds"], row["scored on"]) for row in own] == [
        ("2", "report split, dev set 1"),
        ("1", "report split, dev set 2"),
    ]


def test_ensembles_of_other_members_or_weights_are_not_averaged(tmp_path):
    def ensemble(name: str, seed: int, variant: str, weights: Any = "equal") -> None:
        options: dict[str, Any] = {"model": "ensemble-prob of a×2", "run_type": "ensemble", "members": (seed,)}
        run = finished(tmp_path, name, "ner", ner(80, 90), seed=seed, **options)
        scores = run.read_json("scores.json")
        parts = [{"run": "m", "model": "a", "seed": seed, "variant": variant, "sha256": name}]
        run.write_json("scores.json", scores | {"ensemble": {"weights": weights, "members": parts}})

    ensemble("a1", 1, "aaaa")
    ensemble("a2", 2, "aaaa")
    ensemble("b1", 3, "bbbb")
    ensemble("w1", 4, "aaaa", [0.7, 0.3])
    assert sorted(row["n"] for row in groups(tmp_path)) == [1, 1, 2]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, ""),
        ({"best_step": 3}, "checkpoint selected on the select split of dev"),
        ({"ensemble": {"members": []}}, "checkpoints of the members selected on the select split of dev"),
    ],
)
def test_a_run_names_the_examples_of_selection_and_a_baseline_none(tmp_path, facts, said):
    run = finished(tmp_path, "a", "ner", ner(80, 90), facts=facts)
    run.write_json("environment.json", {"seconds": 1.0, "device": "cpu", "data": {}})
    (table,) = make_run_tables(run)
    assert [line for line in table.note.splitlines() if "selected" in line] == ([said] if said else [])


# Names


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("klue/roberta-base", "roberta-base"),
        ("klue/roberta-base@refs/pr/1", "roberta-base@refs/pr/1"),
        ("runs/pretrain--1a2b/model", "pretrain--1a2b"),
        ("/a/b@c/model/", "b@c"),
        ("pre/checkpoint-100", "pre/checkpoint-100"),
        ("pre/best", "pre/best"),
        ("model", "model"),
        ("majority", "majority"),
    ],
)
def test_short_names_of_models(model, name):
    assert shorten_model(model) == name


def test_models_of_the_same_name_get_their_folders_or_their_hash():
    one, two = "0123456789abcdef", "fedcba9876543210"
    paths = {"1": "a/x/model", "2": "b/x/model", "3": "klue/bert", one: "q/z", two: "q/z", "q/y": "q/y"}
    assert make_names_unique({key: (shorten_model(path), path) for key, path in paths.items()}) == {
        "1": "a/x",
        "2": "b/x",
        "3": "bert",
        one: "z (012345)",
        two: "z (fedcba)",
        "q/y": "y",
    }


def test_a_folder_that_held_another_model_is_another_model(tmp_path):
    for seed, sha in ((1, "0123456789abcdef"), (2, "0123456789abcdef"), (3, "fedcba9876543210")):
        run = finished(tmp_path, f"r{seed}", "ner", ner(80, 90), model="pre/x/model", seed=seed)
        noted(run, model={"name": "x", "sha256": sha})
    assert {(row["model"], row["n"]) for row in groups(tmp_path)} == {("x (012345)", 2), ("x (fedcba)", 1)}


def test_a_model_with_nothing_finished_is_a_note_below_the_klue_table(tmp_path):
    finished(tmp_path, "a", "ner", ner(80.0, 90.0), model="one")
    Run(tmp_path / "b").start(RunConfig(task="dp", model="two"))
    (table,) = make_klue_tables(find_runs(tmp_path))
    assert [row["model"] for row in rows_of(table) if row["seeds"]] == ["one"]
    assert "two is unfinished in DP" in table.note


def test_a_run_is_found_by_its_fingerprint_if_the_model_folder_was_renamed(tmp_path):
    model = tmp_path / "pretrain--aa" / "model"
    model.mkdir(parents=True)
    config = RunConfig(task="ner", model=str(model))
    name = make_run_name(config, DATA)
    assert name == f"ner--pretrain-aa--s42--{compute_fingerprint(config, DATA)}"
    assert find_run_path(tmp_path / "runs", config, DATA) == tmp_path / "runs" / name
    old = Run(tmp_path / "runs" / f"ner--model--s42--{compute_fingerprint(config, DATA)}")
    old.start(config)
    assert find_run_path(tmp_path / "runs", config, DATA) == old.path
    Run(tmp_path / "runs" / name).start(config)
    assert find_run_path(tmp_path / "runs", config, DATA).name == name, "its own name comes first"


# What is shown


@pytest.mark.parametrize(
    "choice", [TableChoice(), TableChoice(group="model"), *map(TableChoice, ("seeds", "sweep", "klue"))]
)
@pytest.mark.parametrize("style", ["markdown", "csv", "json", "latex"])
def test_every_form_can_show_the_directory(tmp_path, choice, style):
    for seed in (1, 2):
        finished(tmp_path, f"run-{seed}", "ner", ner(80, 90), seed=seed)
    asked = {**vars(choice), "with_paths": True, "for_programs": style in ("csv", "json")}
    text = format_tables(choose_tables(find_runs(tmp_path), TableChoice(**asked)), style)
    for seed in (1, 2):
        assert f"run-{seed}" in text
    if style == "json":
        assert json.loads(text)


def test_values_that_all_rows_share_are_in_the_note(tmp_path):
    for seed in (1, 2):
        finished(tmp_path, f"n{seed}", "ner", ner(80, 90), seed=seed)
    finished(tmp_path, "y", "ynat", {"ynat/macro_f1@official-1": 80.0})
    table = make_run_table(find_runs(tmp_path))
    small = compact(table)
    assert set(table.columns) - set(small.columns) == {"learning rate", "epochs", "metric", "scored on", "status"}
    for said in ("learning rate 5e-05", "ner/entity_f1@official-1, ynat/macro_f1@official-1", "scored on report split"):
        assert said in small.note
    finished(tmp_path, "z", "ner", ner(80, 90), learning_rate=1e-3)
    assert "learning rate" in compact(make_run_table(find_runs(tmp_path))).columns


def test_equal_scores_have_no_best(tmp_path):
    for name in ("a", "b"):
        finished(tmp_path, name, "ner", ner(80.0, 90.0), model=name)
    (row, other, *_) = make_klue_tables(find_runs(tmp_path))[0].rows
    assert [type(value) for value in (*row[2:4], *other[2:4])] == [float] * 4
    assert isinstance(make_sweep_table(find_runs(tmp_path)), Table)
    assert "**" not in to_markdown(make_sweep_table(find_runs(tmp_path))).split("\n", 2)[2]


def test_the_same_weights_with_a_head_and_as_a_writer_are_two_models(tmp_path):
    for number, model in enumerate(("/somewhere/gemma", "llm:/somewhere/gemma")):
        run = finished(tmp_path, str(number), "ner", ner(10, 90), model=model)
        noted(run, model={"sha256": "0123456789abcdef"})
    assert [row["model"] for row in groups(tmp_path)] == ["gemma", "llm:gemma"]


def answered(run: Run, guid: str) -> Run:
    """Write one prediction, so that the data set of the run is known."""
    (run.path / "predictions").mkdir(exist_ok=True)
    (run.path / "predictions" / "dev.jsonl").write_text(json.dumps({"guid": guid, "answer": ["O"]}) + "\n")
    return run


def test_best_marks_stay_within_one_dev_set(tmp_path):
    """A sample run with 99 beside two KLUE runs: the star goes to the better KLUE run, and to no sample run."""
    for name, value, dev in (("low", 80.0, "bb"), ("high", 84.0, "bb"), ("made", 99.0, "cc")):
        run = finished(tmp_path, name, "ner", ner(value, 90 + value / 100), model=f"m/{name}")
        noted(run, data={**DATA, "klue-ner-v1.1_dev.tsv": dev})
        answered(run, "klue-ner-sample_dev_0" if dev == "cc" else "klue-ner-v1_dev_00000")
    noted(
        finished(tmp_path, "fold", "ner", ner(95, 95), model="m/fold", n_folds=5, fold=2, max_train_samples=500),
        data=DATA,
    )
    rows = [row for row in rows_of(make_klue_tables(find_runs(tmp_path))[0]) if row["seeds"]]
    starred = [row["model"] for row in rows if isinstance(row["NER ent"], Best)]
    assert starred == ["high"]
    assert {row["scored on"] for row in rows} == {
        "report split, sample",
        "report split",
        "report split, fold 2 of 5, limit 500",
    }
    table = make_sweep_table(find_runs(tmp_path))
    marked = [row["model"] for row in rows_of(table) if isinstance(row["entity F1 (official)"], Best)]
    assert marked == ["high"]
    (high, *_) = (row for row in rows_of(make_run_table(find_runs(tmp_path))) if row["model"] == "fold")
    assert high["scored on"] == "report split, fold 2 of 5, limit 500"


def test_runs_on_a_part_of_the_data_are_named_after_it(tmp_path):
    """Names and tables say sample, fold and limit in words, and never show a hash of the data."""
    kinds: dict[str, dict[str, Any]] = {
        "whole": {},
        "fold": {"n_folds": 5, "fold": 2},
        "few": {"max_train_samples": 500},
        "part": {"prompt.max_eval_samples": 40},
        "made": {},
    }
    devs = {"part": "dd", "made": "cc"}
    for name, settings in kinds.items():
        run = finished(tmp_path, name, "ner", ner(80, 90), **settings)
        noted(run, data={**DATA, "klue-ner-v1.1_dev.tsv": devs.get(name, "bb")})
        answered(run, "klue-ner-sample_dev_0" if name == "made" else "klue-ner-v1_dev_00000")
    records = find_runs(tmp_path)
    labels = dict(zip((record.run.path.name for record in records), label_variants(records, brief=True), strict=True))
    assert labels == {
        "whole": "roberta-base",
        "fold": "roberta-base (fold 2 of 5)",
        "few": "roberta-base (limit 500)",
        "part": "roberta-base (40 dev examples)",
        "made": "roberta-base (sample)",
    }
    assert "report split" in {row["scored on"] for row in rows_of(make_klue_tables(records)[0])}, "only one dev set"
    (made,) = (row for row in rows_of(make_run_table(records)) if "sample" in row["scored on"])
    assert made["data"] == "sample"
