"""Ablation studies and folds as sweeps of baselines."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from danseo.ensembling.ensemble import EnsembleOptions as Blending
from danseo.ensembling.ensemble import make_ensemble
from danseo.errors import DanseoError
from danseo.runs.store import Run
from danseo.sweeps.preparation import SweepOptions
from danseo.sweeps.sweep import run_sweep
from danseo.sweeps.sweep_file import read_sweep
from danseo.tables.ablation import make_ablation_tables, measure_study, read_studies
from tests.tiny import read_split

pytestmark = pytest.mark.lengthy


def write_sweep(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text, "utf-8")
    return path


STUDY = """
task = "re"
model = "linear"
[study]
seeds = [1, 2]
[study.changes]
"no sentence" = {model = "linear:entities"}
"few examples" = {max_train_samples = 60}
"""


@pytest.fixture(scope="module")
def studied(sample: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    run_sweep(write_sweep(folder, STUDY), SweepOptions(sample, folder / "runs", quiet=True))
    return folder / "runs"


def test_every_cell_has_the_same_seeds(studied):
    (study,) = read_studies(studied)
    assert list(study.cells) == ["base", "no sentence", "few examples"]
    seeds = {cell: sorted(Run(studied / name).config.seed for name in runs) for cell, runs in study.cells.items()}
    assert set(map(tuple, seeds.values())) == {(1, 2)}
    assert {Run(studied / name).config.max_train_samples for name in study.cells["few examples"]} == {60}


def test_the_table_has_effects_with_intervals(studied, sample):
    (table,) = make_ablation_tables(studied, str(sample), rounds=200)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["base"]["effect"] is None
    for cell in ("no sentence", "few examples"):
        row = rows[cell]
        assert row["effect"] == pytest.approx(row["mean"] - rows["base"]["mean"])
        assert row["95 % interval"]
        assert row["p (Holm)"]
        assert row["runs"] == "2"


def test_studies_compare_on_report_or_the_whole_dev_set(studied, sample):
    (study,) = read_studies(studied)
    half, whole = (measure_study(studied, study, str(sample), on=on, rounds=50) for on in ("report", "dev"))
    assert half.n < whole.n == len(read_split(sample, "re", "dev"))
    assert "whole dev set" in whole.table().note


def test_a_missing_run_leaves_an_effect_without_interval(studied, sample, tmp_path):
    shutil.copytree(studied, tmp_path / "runs")
    (study,) = read_studies(studied)
    shutil.rmtree(tmp_path / "runs" / study.cells["no sentence"][0])
    (table,) = make_ablation_tables(tmp_path / "runs", str(sample), rounds=200)
    row = next(row for row in table.rows if row[0] == "no sentence")
    assert row[2] is None
    assert "no interval" in row[5]
    assert row[6] == "1 of 2"
    with pytest.raises(DanseoError, match="no study in"):
        make_ablation_tables(tmp_path, str(sample))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[study]\nseeds = [1]\n[study.changes]\na = {max_train_samples = 5}", "needs seeds, two at least"),
        ("[study]\nseeds = [1, 2]", r"\[study.changes\] needs tables"),
        ("[study]\nseeds = [1, 2]\n[study.changes]\na = {seed = 3}", "seed cannot be a change"),
        ("[study]\nseeds = [1, 2]\n[study.changes]\na = {model = 'linear'}", "changes nothing"),
        ("fold = 1\n[study]\nseeds = [1, 2]\n[study.changes]\na = {max_train_samples = 5}", "leave fold out"),
        ("[study]\nseeds = [1, 2]\n[study.changes]\na = {n_folds = 3, fold = 1}", "fold cannot be a change"),
        ("[study]\nseeds = [1, 2]\n[study.changes]\na = {epochs = 5}\n[grid]\nepochs = [1]", "goes alone"),
    ],
)
def test_a_wrong_study_is_one_line(tmp_path, text, words):
    with pytest.raises(DanseoError, match=words):
        read_sweep(write_sweep(tmp_path, f'task = "re"\nmodel = "linear"\n{text}'))


def test_a_change_that_the_recipe_has_is_refused(tmp_path):
    changes = "[study]\nseeds = [1, 2]\n[study.changes]\na = {max_train_samples = 0}"
    with pytest.raises(DanseoError, match="a changes nothing"):
        read_sweep(write_sweep(tmp_path, f'task = "re"\nmodel = "linear"\n{changes}')).configs()


def test_folds_are_runs_that_an_ensemble_averages(sample, tmp_path):
    path = write_sweep(tmp_path, 'task = "re"\nmodel = "linear"\nn_folds = 3\n')
    outcome = run_sweep(path, SweepOptions(sample, tmp_path / "runs", quiet=True))
    runs = [record.run for record in outcome.records]
    assert sorted(run.config.fold for run in runs) == [0, 1, 2]
    for run in runs:
        scores = run.read_json("scores.json")
        assert (scores["selected_on"], scores["reported_on"]) == ("fold", "report")
        assert run.predictions_path("fold").is_file()
    lines = [line for run in runs for line in run.predictions_path("fold").read_text("utf-8").splitlines()]
    assert len(lines) == len(set(lines)) == len(read_split(sample, "re", "train"))
    ensemble = make_ensemble([run.path for run in runs], str(sample), tmp_path / "runs", Blending())
    assert len(ensemble.read_json("scores.json")["ensemble"]["members"]) == 3


FOLDED = """
task = "re"
model = "linear:entities"
max_train_samples = 80
[study]
seeds = [1, 2]
[study.changes]
"two folds" = {n_folds = 2}
"""


@pytest.mark.nightly
def test_the_folds_of_a_study_are_an_ensemble_per_seed(invoke, sample, tmp_path):
    runs = tmp_path / "runs"
    assert invoke("sweep", write_sweep(tmp_path, FOLDED), "--data", sample, "--json").code == 0
    (study,) = read_studies(runs)
    joined = [Run(runs / name) for name in study.cells["two folds"]]
    assert [run.config.run_type for run in joined] == ["ensemble", "ensemble"]
    for run, seed in zip(joined, (1, 2), strict=True):
        members = [Run(runs / member["run"]).config for member in run.read_json("members.json")["members"]]
        assert sorted((config.seed, config.n_folds, config.fold) for config in members) == [(seed, 2, 0), (seed, 2, 1)]
    base, folded = invoke("runs", runs, "--table", "ablation", "--data", sample, "--json").json
    assert folded["effect"] == pytest.approx(folded["mean"] - base["mean"], abs=0.01)
    assert folded["95 % interval"]
    assert folded["runs"] == "2"


def test_too_many_folds_are_refused(sample, tmp_path):
    path = write_sweep(tmp_path, 'task = "re"\nmodel = "linear"\nn_folds = 100000\n')
    with pytest.raises(DanseoError, match="n_folds = 100000: should be from 2 to"):
        run_sweep(path, SweepOptions(sample, tmp_path / "runs", quiet=True))
    assert not (tmp_path / "runs").exists()
