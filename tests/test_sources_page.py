"""The rows of the page on the sources name tests that exist and commands that can be parsed, in both languages."""

import re
import shlex
from itertools import pairwise

import click
import pytest

from danseo.config.base import full_name
from danseo.config.run import RunConfig

from .conftest import ROOT
from .pages import DOCS
from .test_docs_commands import found

ROW = re.compile(r"^\|.*\| `([^`]+)` \| `(tests/[^`]+)` \|$", re.M)
ROWS = ROW.findall((DOCS / "sources.md").read_text("utf-8"))


def test_both_languages_name_the_same_commands_and_tests() -> None:
    korean = (DOCS / "sources.ko.md").read_text("utf-8")
    assert len(ROWS) > 100
    assert ROW.findall(korean) == ROWS
    assert korean.count("`danseo ") + korean.count(" -m danseo ") == len(ROWS), "a row has another form"


@pytest.mark.parametrize("name", sorted({test for _, test in ROWS}))
def test_the_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    assert (ROOT / path).is_file()
    assert f"def {function}" in (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("line", sorted({command for command, _ in ROWS}))
def test_the_command_can_be_parsed(line: str) -> None:
    """Options and settings exist, have a value of their type, and no argument is missing or too many; nothing runs."""
    assert re.match(r"danseo |torchrun [^`]* -m danseo ", line)
    command, given = found(shlex.split(re.sub(r"^.*?danseo ", "", line)))
    for flag, assignment in pairwise(given):
        if flag == "--set":
            full_name(assignment.partition("=")[0], RunConfig)
    command.parse_args(click.Context(command, info_name="danseo"), given)
