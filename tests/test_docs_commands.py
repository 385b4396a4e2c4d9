"""The pages name commands, options and settings that exist, and their code blocks run."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

from danseo.cli import cli
from danseo.config.base import full_name, list_settings
from danseo.config.mlm import CorefConfig, PretrainConfig
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.sweeps.search_space import read_space_file
from danseo.sweeps.sweep_file import read_sweep

from .conftest import ROOT
from .pages import ENGLISH as GUIDES
from .pages import find_blocks, name_of

CONFIGS = {"pretrain": PretrainConfig, "coref": CorefConfig}
QUICK = ("score", "mini", "pretrain")
"""Pages whose blocks take a few seconds."""
TUTORIALS = ("first-ten-minutes",)
"""Tutorials that `make test-systems` runs; notebooks do much of the others."""
WORD = re.compile(r"[a-z][a-z0-9-]*")


def shell_lines(guide: Path) -> Iterator[str]:
    """Yield the commands of code blocks."""
    for _, language, block in find_blocks(guide):
        if language == "sh":
            yield from re.sub(r"\\\n", " ", block).splitlines()


def commands(guide: Path) -> list[list[str]]:
    """Every command of danseo that a guide names, as words."""
    text = guide.read_text("utf-8")
    inline = re.findall(r"`(danseo [^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    blocks = (match for line in shell_lines(guide) for match in re.findall(r"(?:^|[|;&]\s*)(danseo [^|;&]+)", line))
    return [words(each) for each in (*inline, *blocks)]


def words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)[1:]
    except ValueError:  # a quote that is an apostrophe
        return text.split()[1:]


def found(given: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and the words behind it."""
    command: click.Command = cli
    while isinstance(command, click.Group) and given and WORD.fullmatch(given[0]):
        name, *given = given
        assert name in command.commands, f"danseo has no command {name}"
        command = command.commands[name]
    return command, given


@pytest.mark.parametrize("guide", GUIDES, ids=name_of)
def test_commands_and_options_exist(guide: Path) -> None:
    for given in commands(guide):
        command, rest = found(given)
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
        if command is cli:
            continue
        for word in rest:
            option = re.match(r"--?[a-z][a-z0-9-]*", word)
            assert not option or option.group() in known, f"danseo {' '.join(given)}: no option {word}"


@pytest.mark.parametrize("guide", GUIDES, ids=name_of)
def test_settings_exist(guide: Path) -> None:
    for given in commands(guide):
        command, rest = found(given)
        for flag, assignment in pairwise(rest):
            if flag == "--set" and re.match(r"[a-z_.0-9]+=", assignment):
                full_name(assignment.split("=")[0], CONFIGS.get(str(command.name), RunConfig))
    every = {path for cls in (RunConfig, PretrainConfig, CorefConfig) for path in list_settings(cls)}
    sections = "|".join(sorted({path.split(".")[0] for path in every if "." in path}))
    for path in re.findall(rf"`((?:{sections})\.[a-z0-9_]+)`", guide.read_text("utf-8")):
        assert path in every or path.endswith((".toml", ".py", ".md", ".safetensors", ".onnx")), path


@pytest.mark.parametrize("guide", GUIDES, ids=name_of)
def test_settings_files_are_read(guide: Path, tmp_path: Path) -> None:
    for _, language, block in find_blocks(guide):
        if language != "toml":
            continue
        path = tmp_path / "block.toml"
        table = tomllib.loads(block)
        path.write_text(block + "[grid]\nseed = [1]\n" * ("resources" in table), "utf-8")
        if table.keys() & {"grid", "runs", "search", "study", "resources"}:
            read_sweep(path)
        elif guide.name == "tune.md":
            assert any(is_space(path, cls) for cls in (RunConfig, PretrainConfig, CorefConfig)), block


def is_space(path: Path, cls: type) -> bool:
    try:
        return bool(read_space_file(path, cls))
    except DanseoError:
        return False


def list_runnable() -> Iterator[Any]:
    """Yield the pages with blocks that run. Pages that train are lengthy; `make test-docs` runs all of them."""
    for guide in GUIDES:  # tests/api/test_api.py runs the blocks of python.md
        if guide.stem != "python" and any(
            language in ("sh", "python") and not note for note, language, _ in find_blocks(guide)
        ):
            is_tutorial = guide.stem in TUTORIALS
            skip = pytest.mark.skipif("DANSEO_ALL_PAGES" not in os.environ, reason="make test-docs runs all pages")
            marks = () if guide.stem in QUICK else (pytest.mark.lengthy, *(() if is_tutorial else (skip,)))
            yield pytest.param(guide, id=name_of(guide), marks=marks)


def write_files(guide: Path, folder: Path) -> None:
    """Write the blocks that are files."""
    for note, _, code in find_blocks(guide):
        if note.startswith("file: "):
            (folder / note.removeprefix("file: ")).write_text(code, "utf-8")


@pytest.mark.parametrize("guide", [*list_runnable()])
def test_blocks_run(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page alone, in an empty folder, from its first block to its last."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    write_files(guide, tmp_path)
    scope: dict[str, Any] = {}
    for note, language, code in find_blocks(guide):
        assert language in ("sh", "python") or not note.startswith("not run"), "only commands run"
        if note.startswith("with: "):  # the files of another page
            write_files(ROOT / note.removeprefix("with: "), tmp_path)
        if language == "python":
            exec(compile(code, name_of(guide), "exec"), scope)
        elif language == "sh" and not note.startswith("not run") and "make " not in code:
            done = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, timeout=500)
            assert done.returncode == 0, f"{code}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("guide", GUIDES, ids=name_of)
def test_blocks_that_do_not_run_say_why(guide: Path) -> None:
    for note, _, code in find_blocks(guide):
        assert not note or re.match(r"(not run|file|with): \S", note), code


def test_every_command_is_explained() -> None:
    named = {tuple(given[:1]) for guide in GUIDES for given in commands(guide)}
    missing = [name for name in cli.commands if (name,) not in named]
    assert not missing, f"no guide tells of {', '.join(missing)}"
