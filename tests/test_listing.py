"""What danseo says of itself: help, settings, ready files, and how to get data."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.recipes import purpose, ready_file, ready_files
from tests.conftest import ROOT, Result

Run = Callable[..., Result]


def groups(command: click.Group, *names: str) -> list[tuple[str, ...]]:
    inner = [each for each in command.commands.items() if isinstance(each[1], click.Group)]
    return [names, *(found for name, group in inner for found in groups(group, *names, name))]  # type: ignore[arg-type]


# danseo itself lists its commands in sections, which are tested with the command line
@pytest.mark.parametrize("names", groups(cli)[1:], ids=" ".join)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_help_tells_of_every_command_in_whole_sentences(names: tuple[str, ...], width: int) -> None:
    shown = CliRunner().invoke(cli, [*names, "--help"], terminal_width=width).output
    assert "..." not in shown.split("Commands:")[1]
    assert max(map(len, shown.splitlines())) <= width
    group: click.Command = cli
    for name in names:
        group = group.commands[name]  # type: ignore[attr-defined]
    for command in group.commands.values():  # type: ignore[attr-defined]
        assert " ".join(command.help.split()) in " ".join(shown.split())


def test_every_extra_named_anywhere_exists() -> None:
    import re

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = {
        extra
        for page in pages
        for listed in re.findall(r"danseo\[([a-z,]+)\]", page.read_text("utf-8"))
        for extra in listed.split(",")
    }
    assert {"train", "ko", "sweep"} <= named <= extras.keys()


# Settings


def rows(result: Result) -> dict[str, list[str]]:
    assert result.code == 0, result.err
    return {row[0]: row[1:] for row in result.json["rows"]}


def test_settings_of_a_run_are_those_it_would_have(danseo: Run) -> None:
    found = rows(danseo("settings", "ner", "--recipe", "official", "--set", "epochs=7", "--json"))
    assert found["train.learning_rate"][:2] == ["5e-05", "5e-05"]
    assert found["head.architecture"][:2] == ["official", "default"]
    assert found["train.epochs"][:2] == ["7.0", "3"]
    assert "name the encoder with -m" in danseo("settings", "ner", "--recipe", "official").out
    assert rows(danseo("settings", "TC", "--json"))["head.max_length"][0] == "128"


def test_settings_differ_by_the_encoder(danseo: Run, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "config.json").write_text('{"model_type": "roberta", "hidden_size": 1024}')
    result = danseo("settings", "ner", "--recipe", "official", "-m", tmp_path / "large", "--json")
    assert rows(result)["train.learning_rate"][0] == "1e-05"
    assert result.json["note"].endswith("ner-large.toml")


def test_settings_depend_on_a_task(danseo: Run) -> None:
    assert "Missing argument 'TASK'" in danseo("settings", "--recipe", "official").complaint
    assert "no task named 'nerr'" in danseo("settings", "nerr").complaint


# Ready files


def test_ready_files_are_listed_with_what_they_are_for(danseo: Run) -> None:
    found = rows(danseo("configs", "--json"))
    files = sorted(
        path.relative_to(ROOT / "configs").with_suffix("").as_posix() for path in ROOT.glob("configs/*/*.toml")
    )
    assert list(found) == files
    assert all(len(what) > 10 and use.startswith("danseo ") for what, use in found.values())
    assert found["sweeps/ner-seeds"] == [purpose(ROOT / "configs/sweeps/ner-seeds.toml"), "danseo sweep ner-seeds"]


def test_a_ready_file_is_printed_and_copied(danseo: Run, tmp_path: Path) -> None:
    text = (ROOT / "configs/sweeps/search.toml").read_text("utf-8")
    for name in ("search", "sweeps/search", "search.toml", "configs/sweeps/search.toml"):
        assert danseo("configs", name).out == text
    assert danseo("configs", "search", "--out", tmp_path / "mine.toml").code == 0
    assert (tmp_path / "mine.toml").read_text("utf-8") == text
    assert danseo("configs", "--out", tmp_path / "all").code == 0
    copied = {path.relative_to(tmp_path / "all").with_suffix("").as_posix() for path in tmp_path.glob("all/*/*.toml")}
    assert copied == ready_files().keys()
    (tmp_path / "mine.toml").write_text("own = 1")
    assert "already there with other content" in danseo("configs", "search", "--out", tmp_path / "mine.toml").complaint
    assert (tmp_path / "mine.toml").read_text() == "own = 1"


def test_a_ready_file_stands_for_its_name_where_no_file_does(danseo: Run, tmp_path: Path) -> None:
    (tmp_path / "ner-seeds").write_text("task = ")
    assert "ner-seeds: not valid TOML" in danseo("sweep", "ner-seeds", "--dry-run", "--data", "sample").complaint
    (tmp_path / "ner-seeds").unlink()
    named = danseo("sweep", "ner-seeds", "--dry-run", "--data", "sample")
    assert str(ready_file("ner-seeds")) in named.err or named.code == 0
    assert "unknown setting" not in danseo("pretrain", "--config", "small", "--text", "nowhere").complaint


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (
            "sweep nowhere.toml",
            "nowhere.toml: no such file; ner-seeds, re-models, re-study, search come with danseo; `danseo configs`",
        ),
        ("sweep ner-sedes", "did you mean ner-seeds? `danseo configs` lists the ready ones"),
        ("pretrain --config smal --text x", "smal: no such file; did you mean small?"),
        ("train ynat -m majority --data sample --recipe none.toml", "none.toml: no such file; `danseo configs` lists"),
        ("configs ner", "ner may be default/ner or llm/ner or official/ner or small/ner; name one of them"),
        ("tune train ynat -m majority --data sample --space none.toml", "none.toml is missing; check the path"),
        ("score ynat nowhere.json p.jsonl", "nowhere.json is missing; name a file with gold answers, or dev or train"),
        ("probe . --items none.jsonl", "none.jsonl is missing; check the path"),
        ("train ynat -m majority --data sample --set data=x", "unknown setting 'data'; `danseo settings` lists all"),
    ],
)
def test_hints_fit_the_command(command: str, complaint: str, danseo: Run) -> None:
    found = danseo(*command.split())
    assert found.code == 2
    assert complaint in found.complaint
    assert "data check" not in found.complaint
    assert "right file for the task" not in found.complaint


def test_code_of_a_checkpoint_is_allowed_only_where_that_can_be_said(danseo: Run, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    config = '{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}'
    (tmp_path / "own" / "config.json").write_text(config)
    train = danseo("train", "ynat", "-m", "own", "--data", "sample").complaint
    assert "own wants to run code of its own; allow it with --trust-remote-code" in train
    assert "own wants to run code of its own; allow it with --trust-remote-code" in danseo("probe", "own").complaint


# Tasks


def test_tasks_say_how_to_get_data(danseo: Run, sample: Path) -> None:
    for command in (("tasks",), ("tasks", "ner")):
        assert (
            "get it with `danseo data get`, from a folder you have with --from, or try --data sample"
            in danseo(*command).out
        )
        assert "danseo data get" not in danseo(*command, "--data", sample).out
