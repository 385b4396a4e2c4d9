"""Sweep files: their configs, and errors."""

from pathlib import Path

import pytest

from danseo.config.base import flatten_config
from danseo.config.recipes import find_configs_folder
from danseo.errors import DanseoError
from danseo.sweeps.sweep_file import Resources, read_sweep

FILES = sorted((find_configs_folder() / "sweeps").glob("*.toml"))


def write_sweep(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return path


def test_every_bundled_sweep_loads():
    counts = {path.stem: len(read_sweep(path).configs()) for path in FILES if not read_sweep(path).search}
    assert counts == {"ner-seeds": 16, "re-models": 30, "re-study": 63}
    (search,) = [read_sweep(path).search for path in FILES if read_sweep(path).search]
    assert search.trials == 30
    assert len(search.space) == 5


def test_a_grid_is_the_product_of_its_lists(tmp_path):
    text = (
        'task = "RE"\nmodel = "m/m"\n[train]\nepochs = 2\n[grid]\nseed = [1, 2]\n"train.learning_rate" = [1e-5, 3e-5]\n'
    )
    configs = read_sweep(write_sweep(tmp_path, text)).configs()
    assert [(c.seed, c.train.learning_rate) for c in configs] == [(1, 1e-5), (1, 3e-5), (2, 1e-5), (2, 3e-5)]
    assert {(c.task, c.model, c.train.epochs, c.train.max_length) for c in configs} == {("re", "m/m", 2.0, 256)}


def test_a_base_table_and_plurals_mean_the_same(tmp_path):
    plain = (
        'task = "re"\nepochs = 2\n[grid]\nmodel = ["m/m", "n/n"]\nseed = [1, 2]\nlearning_rate = [1e-5]\n'
        "epochs = [1, 2]\n"
    )
    wordy = (
        '[base]\ntask = "re"\nepochs = 2\n[grid]\nmodels = ["m/m", "n/n"]\nseeds = [1, 2]\nlearning_rates = [1e-5]\n'
        "epochs = [1, 2]\n"
    )
    configs = [read_sweep(write_sweep(tmp_path, text)).configs() for text in (plain, wordy)]
    assert configs[0] == configs[1]
    assert len(configs[0]) == 8


def test_listed_runs_are_crossed_with_the_grid(tmp_path):
    text = (
        'task = "ner"\n[[runs]]\nmodel = "a/a"\nlearning_rate = 1e-5\n[[runs]]\nmodel = "b/b"\nbatch_size = 8\n'
        "[grid]\nseed = [1, 2]\n[grid.train]\nwarmup_ratio = [0.0]\n"
    )
    configs = read_sweep(write_sweep(tmp_path, text)).configs()
    assert [(c.model, c.seed) for c in configs] == [("a/a", 1), ("a/a", 2), ("b/b", 1), ("b/b", 2)]
    assert [c.train.learning_rate for c in configs] == [1e-5, 1e-5, 5e-5, 5e-5]
    assert {c.train.warmup_ratio for c in configs} == {0.0}


def test_tasks_and_recipes_can_be_choices(tmp_path):
    text = 'model = "majority"\n[grid]\ntask = ["ner", "DP"]\nrecipe = ["default", "official"]\n'
    configs = read_sweep(write_sweep(tmp_path, text)).configs()
    assert [(c.task, c.recipe) for c in configs] == [
        ("ner", "default"), ("ner", "official"), ("dp", "default"), ("dp", "official"),
    ]  # fmt: skip
    assert flatten_config(configs[1])["train.evals_per_epoch"] == 4, "each with the settings of its recipe"


def test_resources(tmp_path):
    text = 'task = "ner"\nmodel = "m/m"\n[grid]\nseed = [1]\n[resources]\ngpus = 0.5\nfiles = "copied"\n'
    assert read_sweep(write_sweep(tmp_path, text)).resources == Resources(gpus=0.5, files="copied")
    for wrong in ("gpus = -1", 'gpus = "one"', "cpus = true", 'files = "sent"'):
        with pytest.raises(DanseoError, match=r"sweep.toml: \[resources\]"):
            read_sweep(write_sweep(tmp_path, text.replace("gpus = 0.5", wrong).replace('files = "copied"', "")))


def test_a_search_on_reported_examples_is_refused(tmp_path):
    text = 'task = "ner"\nmodel = "m/m"\nselect_on = "dev"\n[search]\ntrials = 2\n[search.space]\nseed = [1, 2]\n'
    with pytest.raises(DanseoError, match="would search on the reported examples"):
        read_sweep(write_sweep(tmp_path, text))
    with pytest.raises(DanseoError, match=r"\[search\] goes without \[grid\]"):
        read_sweep(write_sweep(tmp_path, text.replace('select_on = "dev"\n', "") + "[grid]\nseed = [1]\n"))
