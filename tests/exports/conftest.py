"""A finished run of the built-in sample, made once."""

from pathlib import Path

import pytest

from danseo.experiment import run_experiment
from danseo.recipes import configured


@pytest.fixture(scope="package")
def run(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    return run_experiment(configured("ynat", "linear", "default", {}), sample, runs, quiet=True).path
