"""The house as CONTRIBUTING draws it: every room is in its table, and each line uses only lines above it."""

import re
from pathlib import Path

import pytest

grimp = pytest.importorskip("grimp")

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "danseo"


def drawn() -> dict[str, int]:
    """Room -> its line in the table."""
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| room |")[2].partition("\n\n")[0]
    lines = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name: number for number, line in enumerate(lines) for name in re.findall(r"`([a-z_]+)(?:/|\.py)`", line)}


def test_every_room_is_in_the_table_and_no_other():
    there = {path.stem for path in HOUSE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert drawn().keys() == {name for name in there if not name.startswith("__")}


def test_each_line_uses_only_lines_above_it():
    """But for `config.py`, which gathers the settings that families declare in their rooms."""
    lines, graph = drawn(), grimp.build_graph("danseo", exclude_type_checking_imports=True, cache_dir=None)
    wrong = set()
    for module in graph.modules:
        for used in graph.find_modules_directly_imported_by(module):
            above, below = (f"{name}.".split(".")[1] for name in (used, module))
            if below.startswith("__") or not above or above.startswith("__"):
                continue  # danseo itself: its version
            if lines[above] > lines[below] and not (below == "config" and used.endswith(".settings")):
                wrong.add(f"{module} uses {used}")
    assert not wrong
