"""CONTRIBUTING names every package and module of danseo; import-linter checks their order."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_table_names_every_package():
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| package |")[2].partition("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = {name for cell in first_cells for name in re.findall(r"`([a-z_]+)(?:/|\.py)`", cell)}
    paths = (ROOT / "src" / "danseo").iterdir()
    assert named == {path.stem for path in paths if path.is_dir() or path.suffix == ".py"} - {
        "__init__",
        "__main__",
        "__pycache__",
    }
