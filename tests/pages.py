"""The pages of the documentation, and their code blocks."""

import re
from pathlib import Path

from .conftest import ROOT

DOCS = ROOT / "docs"
ENGLISH = [ROOT / "README.md", *(path for path in sorted(DOCS.rglob("*.md")) if not path.stem.endswith(".ko"))]
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)


def name_of(path: Path) -> str:
    """Return the name of a page in the repository."""
    return path.relative_to(ROOT).as_posix()


def find_blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return note, language and code of each block; a note is `not run: REASON`, `file: NAME` or `with: PAGE`."""
    return _BLOCK.findall(page.read_text("utf-8"))
