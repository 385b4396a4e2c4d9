"""The guides name commands, options and settings that exist; what can run in them does."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.pretraining.config import CorefConfig, PretrainConfig
from danseo.search.space import read_space_file
from danseo.settings.declaring import full_name, setting_paths
from danseo.sweeps.space import read_sweep

from .conftest import ROOT

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONFIGS = {"pretrain": PretrainConfig, "coref": CorefConfig}
LIGHT = ("tasks", "settings", "configs")  # commands that need neither models nor files
WORD = re.compile(r"[a-z][a-z0-9-]*")


def shell_lines(text: str) -> Iterator[str]:
    """The commands of code blocks, one each, without comments."""
    for block in re.findall(r"^```(?:sh|console|bash)?\n(.*?)^```$", text, re.M | re.S):
        yield from re.sub(r"\\\n", " ", block).splitlines()


def commands(guide: Path) -> list[list[str]]:
    """Every command of danseo that a guide names, as words."""
    text = guide.read_text("utf-8")
    inline = re.findall(r"`(danseo [^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    blocks = (match for line in shell_lines(text) for match in re.findall(r"(?:^|[|;&]\s*)(danseo [^|;&]+)", line))
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


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_commands_and_options_exist(guide: Path) -> None:
    for given in commands(guide):
        command, rest = found(given)
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
        if command is cli:
            continue
        for word in rest:
            option = re.match(r"--?[a-z][a-z0-9-]*", word)
            assert not option or option.group() in known, f"danseo {' '.join(given)}: no option {word}"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_settings_exist(guide: Path) -> None:
    for given in commands(guide):
        command, rest = found(given)
        for flag, assignment in pairwise(rest):
            if flag == "--set" and re.match(r"[a-z_.0-9]+=", assignment):
                full_name(assignment.split("=")[0], CONFIGS.get(str(command.name), RunConfig))
    every = {path for cls in (RunConfig, PretrainConfig, CorefConfig) for path in setting_paths(cls)}
    sections = "|".join(sorted({path.split(".")[0] for path in every if "." in path}))
    for path in re.findall(rf"`((?:{sections})\.[a-z0-9_]+)`", guide.read_text("utf-8")):
        assert path in every or path.endswith((".toml", ".py", ".md", ".safetensors", ".onnx")), path


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_settings_files_are_read(guide: Path, tmp_path: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```$", guide.read_text("utf-8"), re.M | re.S):
        path = tmp_path / "block.toml"
        table = tomllib.loads(block)
        path.write_text(block + "[grid]\nseed = [1]\n" * ("resources" in table), "utf-8")
        if table.keys() & {"grid", "runs", "search", "study", "resources"}:
            read_sweep(path)
        elif guide.name in ("tuning.md", "sweeps.md"):
            assert any(is_space(path, cls) for cls in (RunConfig, PretrainConfig, CorefConfig)), block


def is_space(path: Path, cls: type) -> bool:
    try:
        return bool(read_space_file(path, cls))
    except DanseoError:
        return False


def test_light_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    light = {tuple(given) for guide in GUIDES for given in commands(guide) if given and given[0] in LIGHT}
    runnable = [given for given in sorted(light) if not any("klue/" in word or word.isupper() for word in given)]
    assert len(runnable) >= 3
    for given in runnable:
        result = CliRunner().invoke(cli, list(given))
        assert result.exit_code == 0, (given, result.exception)


def test_every_command_is_explained() -> None:
    named = {tuple(given[:1]) for guide in GUIDES for given in commands(guide)}
    missing = [name for name in cli.commands if (name,) not in named]
    assert not missing, f"no guide tells of {', '.join(missing)}"
