"""The notebooks: up to date, the same in both languages, and their code runs on the sample."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "notebooks"
ENGLISH = sorted(path for path in FOLDER.glob("*.ipynb") if not path.name.endswith(".ko.ipynb"))
RUN = """
import json, subprocess, sys

def run_command(line):
    subprocess.run([sys.executable, "-m", *line.split()], check=True)

names = {"__name__": "__main__", "run_command": run_command}
try:
    for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            code = "\\n".join(f"run_command({line[1:]!r})" if line.startswith("!") else line for line in lines)
            exec(compile(code, cell["id"], "exec"), names)
finally:
    if "server" in names:
        names["server"].kill()
"""


def read_cells(path: Path, cell_type: str) -> list[Any]:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cell["source"] for cell in cells if cell["cell_type"] == cell_type]


def test_the_notebooks_are_up_to_date() -> None:
    script = "import sys; sys.path.insert(0, 'tools'); import json, notebooks; "
    script += "print(json.dumps({path.name: text for path, text in notebooks.make_notebooks()}))"
    made = json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, cwd=ROOT).stdout)
    assert len(made) == 6
    assert {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.ipynb")} == made, "python tools/notebooks.py"


@pytest.mark.parametrize("path", ENGLISH, ids=lambda path: path.stem)
def test_both_languages_agree(path: Path) -> None:
    korean = path.with_suffix(".ko.ipynb")
    assert read_cells(path, "code") == read_cells(korean, "code")
    for one, other in zip(read_cells(path, "markdown"), read_cells(korean, "markdown"), strict=True):
        assert one[0].split()[0] == other[0].split()[0] or not one[0].startswith("#")
        assert any("가" <= letter <= "힣" for letter in "".join(other))


@pytest.mark.lengthy
@pytest.mark.parametrize("path", ENGLISH, ids=lambda path: path.stem)
def test_the_code_runs(path: Path, tmp_path: Path) -> None:
    """All cells in one process; a line with `!` is a command of danseo."""
    variables = {k: v for k, v in os.environ.items() if k != "DANSEO_DATA"}
    variables |= {"MPLBACKEND": "agg", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path, env=variables)
    assert ended.returncode == 0, ended.stderr[-3000:]
