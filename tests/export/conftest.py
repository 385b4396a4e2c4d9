"""A finished run of the bundled sample, made once; and one as if it had answered KLUE."""

import shutil
from pathlib import Path

import pytest

from danseo.experiment import run_experiment
from danseo.models.registry import configure_run


@pytest.fixture(scope="package")
def run(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    return run_experiment(configure_run("ynat", "linear", "default", {}), sample, runs, quiet=True).path


@pytest.fixture(scope="package")
def real(run: Path) -> Path:
    """The same run under the names that KLUE's examples have."""
    copy = shutil.copytree(run, run.parent.parent / "real" / run.name)
    for path in (copy / "predictions").glob("*.jsonl"):
        path.write_text(path.read_text("utf-8").replace("-sample_", "-v1_"), "utf-8")
    return copy
