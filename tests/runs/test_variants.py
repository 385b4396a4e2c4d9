"""Means are over seeds and nothing else; a copy is no second run; different models have different names."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from danseo.config import RunConfig
from danseo.display.formats import compact, formatted_tables
from danseo.display.table import Table, to_markdown
from danseo.ensembling.making import member_models
from danseo.runs.answers import Member
from danseo.runs.directory import Run, fingerprint, run_name, run_path
from danseo.runs.index import find_runs, read_record
from danseo.runs.layouts.choose import Choice, chosen_tables
from danseo.runs.layouts.klue import klue_tables
from danseo.runs.layouts.listing import group_table, run_table
from danseo.runs.layouts.seeds import seed_tables
from danseo.runs.layouts.single import run_tables
from danseo.runs.layouts.sweep import sweep_table
from danseo.runs.layouts.variants import label_variants
from danseo.runs.naming import model_name, told_apart
from danseo.settings.values import with_settings

from .test_tables import finished, ner, rows_of

DATA = {"klue-ner-v1.1_train.tsv": "aa", "klue-ner-v1.1_dev.tsv": "bb"}


def noted(run: Run, **facts: Any) -> Run:
    """The run with more in its environment.json."""
    run.write_json("environment.json", {**run.read_json("environment.json"), **facts})
    return run


def groups(root: Path, *keys: str) -> list[dict[str, Any]]:
    return rows_of(group_table(find_runs(root), keys or ("model", "task")))


def test_groups_never_mix_settings(tmp_path):
    """Once these were one row of 20 runs, 16.95 ± 15.65."""
    variants: list[dict[str, Any]] = [
        {"learning_rate": 5e-5},
        {"learning_rate": 1e-3},
        {"epochs": 1.0},
        {"limit": 100},
        {"model": "other/bert"},
    ]
    for number, settings in enumerate(variants):
        for seed in (1, 2):
            finished(tmp_path, f"{number}-{seed}", "ner", ner(10 * number + seed, 90), seed=seed, **settings)
    rows = groups(tmp_path)
    assert [row["n"] for row in rows] == [2] * 5
    assert [row["std"] for row in rows] == pytest.approx([0.7071068] * 5)
    told = [(row["model"], row["learning rate"], row["epochs"], row["limit"]) for row in rows]
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


def test_a_rate_is_shown_as_it_is_typed(tmp_path):
    for rate in (5e-5, 1e-3):
        finished(tmp_path, str(rate), "ner", ner(80, 90), learning_rate=rate)
    for table in (
        group_table(find_runs(tmp_path), ["learning_rate"]),
        run_table(find_runs(tmp_path)),
        sweep_table(find_runs(tmp_path)),
    ):
        assert "| 5e-05 |" in to_markdown(table)
        assert "| 0.001 |" in to_markdown(table)


def test_a_copied_directory_is_no_second_seed(tmp_path):
    one = finished(tmp_path, "ner--base--s1--0a1b2c3d", "ner", ner(80, 90), seed=1)
    finished(tmp_path, "ner--base--s2--1a1b2c3d", "ner", ner(84, 90), seed=2)
    for name in ("copy", "backup/ner--base--s1--0a1b2c3d"):
        shutil.copytree(one.path, tmp_path / name)
    records = find_runs(tmp_path)
    table = group_table(records, ["model", "task"])
    assert [(row["n"], row["mean"]) for row in rows_of(table)] == [(2, 82.0)]
    assert "copy is ner--base--s1--0a1b2c3d again" in table.note
    seeds, summary = seed_tables(records)
    assert (len(seeds.rows), rows_of(summary)[0]["n"]) == (2, 2)
    assert rows_of(klue_tables(records)[0])[0]["seeds"] == "2"
    assert len(sweep_table(records).rows) == 2
    listed = rows_of(run_table(records, with_paths=True))
    assert [row["status"] for row in listed].count("copy") == 2, "a list has them all"
    assert next(row for row in listed if row["run"].endswith("/copy"))["status"] == "copy"


def test_of_a_floor_no_setting_of_training_counts(tmp_path):
    for epochs in (1.0, 2.0):
        finished(tmp_path, f"f{epochs}", "ner", ner(0, 5), model="majority", epochs=epochs)
    (row,) = groups(tmp_path)
    assert row["n"] == 1
    finished(tmp_path, "trained", "ner", ner(0, 5))
    (first, *_) = rows_of(run_table(find_runs(tmp_path)))
    assert (first["learning rate"], first["epochs"]) == (None, None)


def test_other_data_are_another_group(tmp_path):
    for number, dev in enumerate(("bb", "bb", "cc")):
        run = finished(tmp_path, f"r{number}", "ner", ner(80 + number, 90), seed=number)
        noted(run, data={**DATA, "klue-ner-v1.1_dev.tsv": dev})
    assert sorted(row["n"] for row in groups(tmp_path)) == [1, 2]
    assert len({row["data"] for row in groups(tmp_path)}) == 2
    own = [row for row in rows_of(klue_tables(find_runs(tmp_path))[0]) if row["seeds"]]
    assert [(row["seeds"], row["scored on"]) for row in own] == [
        ("2", "report half of dev bb"),
        ("1", "report half of dev cc"),
    ]


def test_ensembles_of_other_members_or_weights_are_not_averaged(tmp_path):
    def ensemble(name: str, seed: int, variant: str, weights: Any = "equal") -> None:
        options: dict[str, Any] = {"model": "ensemble-prob of a×2", "kind": "ensemble", "members": (seed,)}
        run = finished(tmp_path, name, "ner", ner(80, 90), seed=seed, **options)
        scores = run.read_json("scores.json")
        parts = [{"run": "m", "model": "a", "seed": seed, "variant": variant, "sha256": name}]
        run.write_json("scores.json", scores | {"ensemble": {"weights": weights, "members": parts}})

    ensemble("a1", 1, "aaaa")
    ensemble("a2", 2, "aaaa")
    ensemble("b1", 3, "bbbb")
    ensemble("w1", 4, "aaaa", [0.7, 0.3])
    assert sorted(row["n"] for row in groups(tmp_path)) == [1, 1, 2]


def test_members_are_shown_only_where_nothing_else_tells(tmp_path):
    for name, model in (("one", "ensemble-prob of a + b"), ("two", "ensemble-prob of a + c")):
        options: dict[str, Any] = {"model": model, "kind": "ensemble", "members": (1,)}
        run = finished(tmp_path, name, "ner", ner(80, 90), **options)
        scores = run.read_json("scores.json")
        run.write_json("scores.json", scores | {"ensemble": {"members": [{"variant": name, "seed": 1}]}})
    assert "members" not in run_table(find_runs(tmp_path)).columns


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, ""),
        ({"best_step": 3}, "checkpoint picked on the select half of dev"),
        ({"ensemble": {"members": []}}, "checkpoints of the members picked on the select half of dev"),
    ],
)
def test_a_run_says_what_was_picked_where_and_a_floor_nothing(tmp_path, facts, said):
    run = finished(tmp_path, "a", "ner", ner(80, 90), facts=facts)
    run.write_json("environment.json", {"seconds": 1.0, "device": "cpu", "data": {}})
    (table,) = run_tables(run)
    assert [line for line in table.note.splitlines() if "picked" in line] == ([said] if said else [])


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
def test_models_are_called_by_what_tells_them_apart(model, name):
    assert model_name(model) == name


def test_models_of_the_same_name_get_their_folders_or_their_hash():
    one, two = "0123456789abcdef", "fedcba9876543210"
    paths = {"1": "a/x/model", "2": "b/x/model", "3": "klue/bert", one: "q/z", two: "q/z", "q/y": "q/y"}
    assert told_apart({key: (model_name(path), path) for key, path in paths.items()}) == {
        "1": "a/x",
        "2": "b/x",
        "3": "bert",
        one: "z (012345)",
        two: "z (fedcba)",
        "q/y": "y",
    }


def test_encoders_in_folders_named_model_are_told_apart(tmp_path):
    for name, score in (("pretrain--aa", 80.0), ("pretrain--bb", 70.0)):
        for seed in (1, 2):
            model = tmp_path / "pre" / name / "model"
            finished(tmp_path / "runs", f"{name}-{seed}", "ner", ner(score, 90), model=str(model), seed=seed)
    records = find_runs(tmp_path / "runs")
    assert {(row["model"], row["mean"], row["n"]) for row in groups(tmp_path / "runs")} == {
        ("pretrain--aa", 80.0, 2),
        ("pretrain--bb", 70.0, 2),
    }
    assert [row["model"] for row in rows_of(klue_tables(records)[0])[:2]] == ["pretrain--aa", "pretrain--bb"]
    assert sorted(set(label_variants(records))) == ["pretrain--aa", "pretrain--bb"]
    assert {row["model"] for row in rows_of(sweep_table(records))} == {"pretrain--aa", "pretrain--bb"}


def test_a_folder_that_held_another_model_is_another_model(tmp_path):
    for seed, sha in ((1, "0123456789abcdef"), (2, "0123456789abcdef"), (3, "fedcba9876543210")):
        run = finished(tmp_path, f"r{seed}", "ner", ner(80, 90), model="pre/x/model", seed=seed)
        noted(run, model={"name": "x", "sha256": sha})
    assert {(row["model"], row["n"]) for row in groups(tmp_path)} == {("x (012345)", 2), ("x (fedcba)", 1)}


def from_before(root: Path, seed: int, sha: str, *, is_noted: bool = False) -> Run:
    """A run that was named by what its model held, and noted that or not."""
    settings: dict[str, Any] = {"seed": seed, "epochs": 2.0}
    config = with_settings(RunConfig(task="ner", model="pre/x/model"), settings)
    name = f"ner--x--s{seed}--{fingerprint(config, {**DATA, 'model': sha})}"
    run = finished(root, name, "ner", ner(80, 90), model="pre/x/model", **settings)
    return noted(run, data=DATA, **({"model": {"name": "x", "sha256": sha}} if is_noted else {}))


def test_runs_from_before_hashes_were_noted_are_known_by_their_fingerprint(tmp_path):
    from_before(tmp_path, 1, "0123456789abcdef", is_noted=True)
    from_before(tmp_path, 2, "0123456789abcdef")
    from_before(tmp_path, 3, "fedcba9876543210")
    rows = rows_of(group_table(find_runs(tmp_path), ["model"], with_paths=True))
    assert sorted([path[-12:-10] for path in row["runs"]] for row in rows) == [["s1", "s2"], ["s3"]]


def test_the_copy_of_a_run_from_before_is_a_copy_all_the_same(tmp_path):
    from_before(tmp_path, 1, "0123456789abcdef", is_noted=True)
    run = from_before(tmp_path, 2, "0123456789abcdef")
    shutil.copytree(run.path, tmp_path / "copy")
    (row,) = groups(tmp_path)
    assert (row["model"], row["n"]) == ("x", 2)


def test_an_unfinished_run_does_not_change_the_name_of_its_model(tmp_path):
    run = finished(tmp_path, "a", "ner", ner(80, 90), model="pre/x/model", seed=1)
    noted(run, model={"name": "x", "sha256": "0123456789abcdef"})
    Run(tmp_path / "b").start(RunConfig(task="ner", model="pre/x/model"))
    assert {row["model"] for row in rows_of(run_table(find_runs(tmp_path)))} == {"x"}


def test_a_model_with_nothing_finished_is_a_note_below_the_klue_table(tmp_path):
    finished(tmp_path, "a", "ner", ner(80.0, 90.0), model="one")
    Run(tmp_path / "b").start(RunConfig(task="dp", model="two"))
    (table,) = klue_tables(find_runs(tmp_path))
    assert [row["model"] for row in rows_of(table) if row["seeds"]] == ["one"]
    assert "two is unfinished in DP" in table.note


def test_a_run_is_named_after_the_folder_that_tells_and_found_under_its_old_name(tmp_path):
    model = tmp_path / "pretrain--aa" / "model"
    model.mkdir(parents=True)
    config = RunConfig(task="ner", model=str(model))
    name = run_name(config, DATA)
    assert name == f"ner--pretrain-aa--s42--{fingerprint(config, DATA)}"
    assert run_path(tmp_path / "runs", config, DATA) == tmp_path / "runs" / name
    old = Run(tmp_path / "runs" / f"ner--model--s42--{fingerprint(config, DATA)}")
    old.start(config)
    assert run_path(tmp_path / "runs", config, DATA) == old.path
    Run(tmp_path / "runs" / name).start(config)
    assert run_path(tmp_path / "runs", config, DATA).name == name, "its own name comes first"


# What is shown


@pytest.mark.parametrize("choice", [Choice(), Choice(group="model"), *map(Choice, ("seed000", "sweep", "klue"))])
@pytest.mark.parametrize("style", ["markdown", "csv", "json", "latex"])
def test_every_form_can_show_the_directory(tmp_path, choice, style):
    for seed in (1, 2):
        finished(tmp_path, f"run-{seed}", "ner", ner(80, 90), seed=seed)
    asked = {**vars(choice), "with_paths": True, "for_programs": style in ("csv", "json")}
    text = formatted_tables(chosen_tables(find_runs(tmp_path), Choice(**asked)), style)
    for seed in (1, 2):
        assert f"run-{seed}" in text
    if style == "json":
        assert json.loads(text)


def test_what_all_rows_agree_in_is_said_once(tmp_path):
    for seed in (1, 2):
        finished(tmp_path, f"n{seed}", "ner", ner(80, 90), seed=seed)
    finished(tmp_path, "y", "ynat", {"ynat/macro_f1@official-1": 80.0})
    table = run_table(find_runs(tmp_path))
    small = compact(table)
    assert set(table.columns) - set(small.columns) == {"learning rate", "epochs", "metric", "scored on", "status"}
    for said in ("learning rate 5e-05", "ner/entity_f1@official-1, ynat/macro_f1@official-1", "scored on report half"):
        assert said in small.note
    finished(tmp_path, "z", "ner", ner(80, 90), learning_rate=1e-3)
    assert "learning rate" in compact(run_table(find_runs(tmp_path))).columns


def test_all_settings_are_shown_when_asked_for(tmp_path):
    finished(tmp_path, "a", "ner", ner(80, 90))
    (table,) = chosen_tables(find_runs(tmp_path), Choice(wide=True))
    assert {"warmup", "batch size", "learning rate", "status"} <= set(table.columns)


def test_nobody_wins_where_all_are_the_same(tmp_path):
    for name in ("a", "b"):
        finished(tmp_path, name, "ner", ner(80.0, 90.0), model=name)
    (row, other, *_) = klue_tables(find_runs(tmp_path))[0].rows
    assert [type(value) for value in (*row[2:16], *other[2:16]) if value is not None] == [float] * 4
    assert isinstance(sweep_table(find_runs(tmp_path)), Table)
    assert "**" not in to_markdown(sweep_table(find_runs(tmp_path))).split("\n", 2)[2]


def test_an_ensemble_of_models_of_the_same_name_tells_them_apart(tmp_path):
    runs = [finished(tmp_path, name, "ner", ner(80, 90), model=f"{name}/x/model") for name in ("a", "b")]
    members = [Member(run.path.name, run.path, [], None, "0", read_record(run)) for run in runs]
    assert member_models(members) == "a/x + b/x"
    assert member_models(members[:1]) == "x"


def test_the_same_weights_with_a_head_and_as_a_writer_are_two_models(tmp_path):
    for number, model in enumerate(("/somewhere/gemma", "llm:/somewhere/gemma")):
        run = finished(tmp_path, str(number), "ner", ner(10, 90), model=model)
        noted(run, model={"sha256": "0123456789abcdef"})
    assert [row["model"] for row in groups(tmp_path)] == ["gemma", "llm:gemma"]
