"""Who wins: an option beats --set, which beats --config, which beats the recipe; a contradiction is an error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.cli.pretraining import configured
from danseo.cli.training import train_command, train_config
from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.pretraining.config import CorefConfig, PretrainConfig
from danseo.sweeps.preparing import Options, prepare
from danseo.tasks import TASKS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text("[train]\nepochs = 5\nbatch_size = 5\nlearning_rate = 5e-5\n")
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "recipe.toml"
    path.write_text("[train]\nepochs = 6\nbatch_size = 6\nlearning_rate = 6e-5\nwarmup = 0.6\n")
    return str(path)


def told(config: Any) -> tuple[float, int, float, float]:
    return config.train.epochs, config.train.batch_size, config.train.learning_rate, config.train.warmup


def test_training(file: Path, recipe: str) -> None:
    assignments = ("epochs=4", "batch_size=4")
    found = train_config(TASKS["ner"], "x", recipe, file, assignments, {"epochs": 3.0, "batch_size": None})
    assert told(found) == (3.0, 4, 5e-5, 0.6)
    assert (found.task, found.model, found.recipe) == ("ner", "x", recipe)


def test_what_the_command_names_is_not_changed_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('task = "nli"\nmodel = "other"\nkind = "training"\nseed = 7\n')
    found = train_config(TASKS["ner"], "x", None, tmp_path / "run.toml", (), {})
    assert (found.task, found.model, found.seed) == ("ner", "x", 7)


@pytest.mark.parametrize("start", [PretrainConfig(), CorefConfig(checkpoint="x")])
def test_masked_training(file: Path, start: Any) -> None:
    found = configured(start, file, ("epochs=4", "batch_size=4"), {"epochs": 3.0})
    assert told(found) == (3.0, 4, 5e-5, start.train.warmup)


@pytest.mark.parametrize("start", [RunConfig(task="ner", model="x"), PretrainConfig(), CorefConfig(checkpoint="x")])
def test_the_same_setting_twice(start: Any) -> None:
    same = ("seed=1", "epochs=2", "train.epochs=2.0")
    assert configured(start, None, same, {}).train.epochs == 2
    with pytest.raises(DanseoError, match=r"--set: train.epochs is set twice, to 2.0 and to 3.0; name it once"):
        configured(start, None, ("epochs=2", "train.epochs=3"), {})


def test_the_same_setting_twice_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("epochs = 2\n[train]\nepochs = 3\n")
    with pytest.raises(DanseoError, match=r"mine.toml: train.epochs is set twice, to 2.0 and to 3.0"):
        configured(PretrainConfig(), tmp_path / "mine.toml", (), {})


@pytest.mark.parametrize("command", ["train", "pretrain", "coref"])
def test_the_same_option_twice(command: str) -> None:
    needed = {"train": ["ner", "-m", "x"], "pretrain": ["--text", "a", "b"], "coref": ["--epochs", "1", "x"]}[command]
    parse = cli.commands[command].make_context
    again = parse(command, [*needed, "--epochs", "1", "--epochs", "1.0"]).params
    assert again["epochs"] == 1
    assert again.get("checkpoint") in (None, "x")
    with pytest.raises(click.UsageError, match=r"--epochs is given twice, as 1.0 and as 2.0; give it once"):
        parse(command, [*needed, "--epochs", "1", "--epochs", "2"])


def test_an_option_that_is_needed_is_missed() -> None:
    with pytest.raises(click.UsageError) as caught:
        train_command.make_context("train", ["ner"])
    assert caught.value.format_message().startswith("Missing option '-m'")
    assert train_command.make_context("train", ["ner", "-m", "x"]).params["epochs"] is None


def test_the_kind_of_a_run_is_for_the_command_to_say() -> None:
    with pytest.raises(DanseoError, match="kind cannot be set"):
        train_config(TASKS["ner"], "x", None, None, ("kind=ensemble",), {})


@pytest.fixture
def sweep(tmp_path: Path, sample: Path) -> Callable[..., Any]:
    def make(text: str, *settings: str) -> Any:
        (tmp_path / "sweep.toml").write_text(text)
        return prepare(tmp_path / "sweep.toml", Options(sample, tmp_path / "runs", settings=settings))

    return make


def test_sweeps(sweep: Callable[..., Any]) -> None:
    text = 'task = "ynat"\nmodel = "majority"\nlimit = 5\n[grid]\nseed = [1, 2]\n'
    assert [point.config.limit for point in sweep(text, "limit=4").points] == [4, 4]
    with pytest.raises(DanseoError, match=r"seed is given by --set, and .*sweep.toml lets it vary"):
        sweep(text, "seed=3")
    search = 'task = "ynat"\nmodel = "majority"\n[search]\ntrials = 1\n[search.space]\nseed = [1, 2]\n'
    with pytest.raises(DanseoError, match="select_on = dev would search on the reported examples"):
        sweep(search, "select_on=dev")


def test_tuning(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    (tmp_path / "space.toml").write_text("epochs = [1.0, 2.0]\n")
    given = ["tune", "train", "ynat", "-m", "majority", "--space", str(tmp_path / "space.toml"), "--data", "sample"]
    for more in (["--epochs", "3"], ["--set", "epochs=3"]):
        result = CliRunner().invoke(cli, [*given, *more])
        assert "train.epochs is given on the command line, and searched for by" in str(result.exception)


def test_settings_shows_what_a_run_would_have(file: Path, recipe: str) -> None:
    result = CliRunner().invoke(
        cli, ["settings", "ner", "--recipe", recipe, "--config", str(file), "--set", "epochs=4", "--json"]
    )
    rows = {row[0]: row[1] for row in json.loads(result.stdout)["rows"]}
    assert (rows["train.epochs"], rows["train.batch_size"], rows["train.warmup"]) == ("4.0", "5", "0.6")
    assert "kind" not in rows, "what nobody can set is not listed"
