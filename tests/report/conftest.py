"""Finished runs of the bundled sample, made once."""

from pathlib import Path

import pytest

from tests.showing import make_runs


@pytest.fixture(scope="package")
def runs(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(sample, tmp_path_factory.mktemp("report") / "runs")
