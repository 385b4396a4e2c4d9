"""Studies and folds: ordinary sweeps of floors, which take no time."""

from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from danseo.ensembling.making import Options as Blending
from danseo.ensembling.making import make_ensemble
from danseo.errors import DanseoError
from danseo.runs.directory import Run
from danseo.runs.layouts.ablation import ablation_tables, measure_study, read_studies
from danseo.sweeps.preparing import Options
from danseo.sweeps.space import read_sweep
from danseo.sweeps.sweep import run_sweep
from tests.tiny import read_split

pytestmark = pytest.mark.lengthy


def written(folder: Path, text: str) -> Path:
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
"few examples" = {limit = 60}
"""


@pytest.fixture(scope="module")
def studied(sample: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    run_sweep(written(folder, STUDY), Options(sample, folder / "runs", quiet=True))
    return folder / "runs"


def test_every_cell_has_the_same_seeds(studied):
    (study,) = read_studies(studied)
    assert list(study.cells) == ["base", "no sentence", "few examples"]
    seeds = {cell: sorted(Run(studied / name).config.seed for name in runs) for cell, runs in study.cells.items()}
    assert set(map(tuple, seeds.values())) == {(1, 2)}
    assert {Run(studied / name).config.limit for name in study.cells["few examples"]} == {60}


def test_the_table_has_effects_with_intervals(studied, sample):
    (table,) = ablation_tables(studied, str(sample), rounds=200)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["base"]["effect"] is None
    for cell in ("no sentence", "few examples"):
        row = rows[cell]
        assert row["effect"] == pytest.approx(row["mean"] - rows["base"]["mean"])
        assert row["95 % interval"]
        assert row["p (Holm)"]
        assert row["runs"] == "2"


def test_runs_that_picked_nothing_are_compared_on_all_of_dev(studied, sample):
    (study,) = read_studies(studied)
    half, whole = (measure_study(studied, study, str(sample), on=on, rounds=50) for on in ("report", "dev"))
    assert half.n < whole.n == len(read_split(sample, "re", "dev"))
    assert "all of dev" in whole.table().note


def test_an_effect_without_an_interval_is_refused(studied, sample, tmp_path):
    import shutil

    shutil.copytree(studied, tmp_path / "runs")
    (study,) = read_studies(studied)
    shutil.rmtree(tmp_path / "runs" / study.cells["no sentence"][0])
    (table,) = ablation_tables(tmp_path / "runs", str(sample), rounds=200)
    row = next(row for row in table.rows if row[0] == "no sentence")
    assert row[2] is None
    assert "no interval" in row[5]
    assert row[6] == "1 of 2"
    with pytest.raises(DanseoError, match="no study in"):
        ablation_tables(tmp_path, str(sample))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[study]\nseeds = [1]\n[study.changes]\na = {limit = 5}", "needs seeds, two at least"),
        ("[study]\nseeds = [1, 2]", r"\[study.changes\] needs tables"),
        ("[study]\nseeds = [1, 2]\n[study.changes]\na = {seed = 3}", "seed cannot be a change"),
        ("[study]\nseeds = [1, 2]\n[study.changes]\na = {model = 'linear'}", "changes nothing"),
        ("fold = 1\n[study]\nseeds = [1, 2]\n[study.changes]\na = {limit = 5}", "leave fold out"),
        ("[study]\nseeds = [1, 2]\n[study.changes]\na = {folds = 3, fold = 1}", "fold cannot be a change"),
        ("[study]\nseeds = [1, 2]\n[study.changes]\na = {limit = 5}\n[grid]\nlimit = [1]", "goes alone"),
    ],
)
def test_a_wrong_study_is_one_line(tmp_path, text, words):
    with pytest.raises(DanseoError, match=words):
        read_sweep(written(tmp_path, f'task = "re"\nmodel = "linear"\n{text}'))


def test_a_change_that_the_recipe_has_already_is_refused(tmp_path):
    path = written(tmp_path, 'task = "re"\nmodel = "linear"\n[study]\nseeds = [1, 2]\n[study.changes]\na = {limit = 0}')
    with pytest.raises(DanseoError, match="a changes nothing: the base's recipe has the same"):
        read_sweep(path).configs()


# Folds


def test_folds_are_runs_that_an_ensemble_averages(sample, tmp_path):
    path = written(tmp_path, 'task = "re"\nmodel = "linear"\nfolds = 3\n')
    outcome = run_sweep(path, Options(sample, tmp_path / "runs", quiet=True))
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
limit = 80
[study]
seeds = [1, 2]
[study.changes]
"two folds" = {folds = 2}
"""


def test_the_folds_of_a_study_are_an_ensemble_per_seed(sample, tmp_path):
    """Through the command line, as it is used: the sweep, then the table."""
    import json

    from click.testing import CliRunner

    from danseo.cli import cli

    def said(*arguments: object) -> str:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    runs = tmp_path / "runs"
    said("sweep", written(tmp_path, FOLDED), "--data", sample, "--runs", runs, "--json")
    (study,) = read_studies(runs)
    joined = [Run(runs / name) for name in study.cells["two folds"]]
    assert [run.kind for run in joined] == ["ensemble", "ensemble"]
    for run, seed in zip(joined, (1, 2), strict=True):
        members = [Run(runs / member["run"]).config for member in run.read_json("members.json")["members"]]
        assert sorted((config.seed, config.folds, config.fold) for config in members) == [(seed, 2, 0), (seed, 2, 1)]
    base, folded = json.loads(said("runs", runs, "--table", "ablation", "--data", sample, "--json"))
    assert folded["effect"] == pytest.approx(folded["mean"] - base["mean"], abs=0.01)
    assert folded["95 % interval"]
    assert folded["runs"] == "2"


def test_too_many_folds_end_before_anything_starts(sample, tmp_path):
    path = written(tmp_path, 'task = "re"\nmodel = "linear"\nfolds = 100000\n')
    with pytest.raises(DanseoError, match="folds = 100000: should be from 2 to"):
        run_sweep(path, Options(sample, tmp_path / "runs", quiet=True))
    assert not (tmp_path / "runs").exists()
