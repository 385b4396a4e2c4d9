"""The wheel: what it contains, and that its commands work in an empty environment."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata

from danseo import __version__
from danseo.tasks import TASKS
from tests.conftest import ROOT
from tests.pages import find_blocks
from tests.test_docs_commands import write_files
from tests.test_extras import make_environment

MAX_BYTES = 20_000_000
pytestmark = pytest.mark.lengthy


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    [path] = folder.glob("*.whl")
    return path


def test_the_wheel_is_small_and_has_no_klue_data(wheel: Path) -> None:
    assert wheel.stat().st_size < MAX_BYTES
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"danseo/py.typed", "danseo/__init__.pyi", "danseo/docs/guides/train.md"} <= {*names}
    assert sum(name.startswith("danseo/data/sample/") and name.endswith(".gz") for name in names) == 42
    official = {task.file(split) for task in TASKS.values() for split in ("train", "dev")}
    assert not [name for name in names if Path(name).name.removesuffix(".gz") in official]
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "bench/"))]


def test_the_metadata_is_complete(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        raw = archive.read(f"danseo-{__version__}.dist-info/METADATA")
    metadata = Metadata.from_email(raw, validate=True)
    assert str(metadata.version) == __version__
    assert message_from_bytes(raw)["Description-Content-Type"] == "text/markdown"
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= {*(metadata.project_urls or ())}
    assert "Typing :: Typed" in (metadata.classifiers or [])


def test_twine_accepts_the_wheel(wheel: Path) -> None:
    pytest.importorskip("twine", reason="twine is not installed; the release workflow runs it")
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout


def install_wheel(wheel: Path, folder: Path, *extras: str) -> Callable[[str], str]:
    """Install the wheel into an empty environment; return a function that runs a command there."""
    python = make_environment(folder / "venv", *extras, source=False)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=300)
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "DANSEO_DATA")}
    variables |= {"DANSEO_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    variables["PATH"] = f"{python.parent}{os.pathsep}{variables['PATH']}"

    def run(code: str) -> str:
        command = ["bash", "-ec", code]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables, cwd=folder)
        assert ended.returncode == 0, f"{code}\n{ended.stderr}"
        return ended.stdout

    return run


def test_commands_of_the_wheel_work_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run = install_wheel(wheel, tmp_path)
    assert run("danseo --version").split()[-1] == __version__
    assert all(name in run("danseo tasks") for name in TASKS)
    document = json.loads(run("danseo tasks nli --data sample --json"))
    gold = Path(document["files"]["dev"])
    assert gold.is_relative_to(tmp_path / "venv"), gold
    run("danseo train nli -m majority --data sample --runs runs")
    scores = json.loads(run("danseo score nli dev runs/*/predictions/dev.jsonl --data sample --json"))
    assert scores["scores"][0]["id"] == "nli/accuracy@official-1"
    assert "report.html" in run("danseo report runs --data sample --out report.html")
    assert run("danseo docs train") == (ROOT / "docs" / "guides" / "train.md").read_text("utf-8")


def list_recipes() -> list[str]:
    """Return the blocks of the README that run, as typed; those with make set up a checkout."""
    blocks = find_blocks(ROOT / "README.md")
    return [code for note, _, code in blocks if not note.startswith("not run") and "make " not in code]


def test_the_first_recipe_of_the_readme_needs_no_extra(wheel: Path, tmp_path: Path) -> None:
    out = install_wheel(wheel, tmp_path)(list_recipes()[0])
    assert "ner/entity_f1@official-1" in out


def test_the_recipes_of_the_readme_work_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run = install_wheel(wheel, tmp_path, "train")
    write_files(ROOT / "docs" / "guides" / "own-data.md", tmp_path)  # reviews.csv
    recipes = list_recipes()
    assert len(recipes) == 4  # the fifth needs a server with a language model
    for recipe in recipes:
        assert run(recipe)
    assert (tmp_path / "report.html").exists()
