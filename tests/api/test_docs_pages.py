"""The documentation in the package."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ..conftest import ROOT


def test_a_wheel_has_the_documentation_and_its_addresses(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "Project-URL: Documentation" in metadata
    assert "danseo/docs/guides/train.md" in names
    assert sum(name.startswith("danseo/data/sample/") and name.endswith(".gz") for name in names) == 42
    code = "from danseo.api.listings import find_page; print(find_page('train'))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "installed")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.strip() == str(tmp_path / "installed" / "danseo" / "docs" / "guides" / "train.md"), found.stderr
