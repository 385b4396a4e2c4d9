"""Finished runs of the built-in sample, made once: floors, and predictions written by hand in awkward names."""

import shutil
from pathlib import Path

import pytest

from danseo.experiment import run_experiment
from danseo.recipes import configured

TASKS = ("ynat", "sts", "nli", "ner", "re", "dp", "mrc", "wos")
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="package")
def runs(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "runs"
    for task in TASKS:
        run_experiment(configured(task, "majority", "default", {}), sample, folder, quiet=True)
    linear = run_experiment(configured("ynat", "linear", "default", {}), sample, folder, quiet=True).path
    evil = folder / "ynat--<script>alert(1)<"
    shutil.copytree(linear, evil)
    config = evil / "config.toml"
    config.write_text(config.read_text().replace('model = "linear"', f'model = "{EVIL}"'))
    (evil / "environment.json").write_text(
        (evil / "environment.json").read_text().replace('"cpu"', '"<img src=x onerror=alert(1)>"')
    )
    return folder
