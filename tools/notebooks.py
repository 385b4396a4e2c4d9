"""Write notebooks/*.ipynb from notebooks/cells.toml: `python tools/notebooks.py`.

Every notebook exists in English (name.ipynb) and Korean (name.ko.ipynb), with the same code.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "notebooks"
INSTALL = """\
# Installs danseo where it is missing, as on Colab. Once it is released, "danseo[{extras}]" is enough.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("danseo") is None:
    source = "danseo[{extras}] @ git+https://github.com/danseo/danseo"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", source], check=True)
"""


def make_notebooks() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of every notebook."""
    for name, cells in tomllib.loads((FOLDER / "cells.toml").read_text("utf-8")).items():
        for language, ending in (("en", ".ipynb"), ("ko", ".ko.ipynb")):
            yield (
                FOLDER / f"{name}{ending}",
                json.dumps(make_notebook(cells, language), ensure_ascii=False, indent=1) + "\n",
            )


def make_notebook(cells: Sequence[Mapping[str, str]], language: str) -> dict[str, Any]:
    """Return a notebook without outputs."""
    return {
        "cells": [make_cell(cell, language, number) for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def make_cell(cell: Mapping[str, str], language: str, number: int) -> dict[str, Any]:
    """Return a cell: code, the installation of danseo with some extras, or text in a language."""
    code = INSTALL.format(extras=cell["extras"]) if "extras" in cell else cell.get("code")
    lines = (cell[language] if code is None else code).strip().splitlines(keepends=True)
    made = {"id": f"cell-{number}", "metadata": {}, "source": lines}
    if code is None:
        return {"cell_type": "markdown", **made}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **made}


if __name__ == "__main__":
    for path, text in make_notebooks():
        path.write_text(text, "utf-8")
