"""Settings of a command: an option beats --set, which beats --config, which beats the recipe; conflicts are errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from danseo.api.training import configure_masked_training, configure_training
from danseo.cli import cli
from danseo.config.mlm import CorefConfig, PretrainConfig
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.sweeps.preparation import SweepOptions, prepare
from danseo.tasks import TASKS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text("[train]\nepochs = 5\nbatch_size = 5\nlearning_rate = 5e-5\n")
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "recipe.toml"
    path.write_text("[train]\nepochs = 6\nbatch_size = 6\nlearning_rate = 6e-5\nwarmup_ratio = 0.6\n")
    return str(path)


def read_four(config: Any) -> tuple[float, int, float, float]:
    return config.train.epochs, config.train.batch_size, config.train.learning_rate, config.train.warmup_ratio


def test_training(file: Path, recipe: str) -> None:
    assignments = ("epochs=4", "batch_size=4")
    config = configure_training(TASKS["ner"], "x", recipe, file, assignments, {"epochs": 3.0, "batch_size": None})
    assert read_four(config) == (3.0, 4, 5e-5, 0.6)
    assert (config.task, config.model, config.recipe) == ("ner", "x", recipe)


def test_a_file_does_not_change_task_and_model(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('task = "nli"\nmodel = "other"\nrun_type = "training"\nseed = 7\n')
    config = configure_training(TASKS["ner"], "x", None, tmp_path / "run.toml", (), {})
    assert (config.task, config.model, config.seed) == ("ner", "x", 7)


@pytest.mark.parametrize("start", [PretrainConfig(), CorefConfig(checkpoint="x")])
def test_masked_training(file: Path, start: Any) -> None:
    config = configure_masked_training(start, file, ("epochs=4", "batch_size=4"), {"epochs": 3.0})
    assert read_four(config) == (3.0, 4, 5e-5, start.train.warmup_ratio)


@pytest.mark.parametrize(
    ("option", "length"),
    [
        ({}, (6250, 5.0, 0.0)),
        ({"epochs": 2.0}, (0, 2.0, 0.0)),
        ({"minutes": 3.0}, (0, 5.0, 3.0)),
        ({"steps": 9}, (9, 5.0, 0.0)),
    ],
)
def test_an_option_for_the_length_replaces_other_measures(
    option: dict[str, Any], length: tuple[Any, ...], tmp_path: Path
) -> None:
    (tmp_path / "long.toml").write_text("steps = 6250\n")
    options = {"steps": None, "epochs": None, "minutes": None, **option}
    config = configure_masked_training(PretrainConfig(), tmp_path / "long.toml", (), options)
    assert (config.steps, config.train.epochs, config.minutes) == length


@pytest.mark.parametrize("start", [RunConfig(task="ner", model="x"), PretrainConfig(), CorefConfig(checkpoint="x")])
def test_the_same_setting_twice(start: Any, tmp_path: Path) -> None:
    same = ("seed=1", "epochs=2", "train.epochs=2.0")
    assert configure_masked_training(start, None, same, {}).train.epochs == 2
    with pytest.raises(DanseoError, match=r"--set: train\.epochs is set twice"):
        configure_masked_training(start, None, ("epochs=2", "train.epochs=3"), {})
    (tmp_path / "mine.toml").write_text("epochs = 2\n[train]\nepochs = 3\n")
    with pytest.raises(DanseoError, match=r"mine.toml: train.epochs is set twice"):
        configure_masked_training(start, tmp_path / "mine.toml", (), {})
    with pytest.raises(DanseoError, match="--steps and --epochs are both given"):
        configure_masked_training(start, None, (), {"steps": 9, "epochs": 1.0})


@pytest.mark.parametrize("command", ["train", "pretrain", "coref"])
def test_the_same_option_twice(command: str) -> None:
    needed = {"train": ["ner", "-m", "x"], "pretrain": ["--text", "a", "b"], "coref": ["--epochs", "1", "x"]}[command]
    parse = cli.commands[command].make_context  # type: ignore[attr-defined]
    repeated = parse(command, [*needed, "--epochs", "1", "--epochs", "1.0"]).params
    assert repeated["epochs"] == 1
    assert repeated.get("checkpoint") in (None, "x")
    with pytest.raises(click.UsageError, match="--epochs is given twice"):
        parse(command, [*needed, "--epochs", "1", "--epochs", "2"])


@pytest.fixture
def sweep(tmp_path: Path, sample: Path) -> Callable[..., Any]:
    def make(text: str, *settings: str) -> Any:
        (tmp_path / "sweep.toml").write_text(text)
        return prepare(tmp_path / "sweep.toml", SweepOptions(sample, tmp_path / "runs", settings=settings))

    return make


def test_sweeps(sweep: Callable[..., Any]) -> None:
    text = 'task = "ynat"\nmodel = "majority"\nmax_train_samples = 5\n[grid]\nseed = [1, 2]\n'
    assert [point.config.max_train_samples for point in sweep(text, "max_train_samples=4").points] == [4, 4]
    with pytest.raises(DanseoError, match=r"seed is given by --set"):
        sweep(text, "seed=3")
    search = 'task = "ynat"\nmodel = "majority"\n[search]\ntrials = 1\n[search.space]\nseed = [1, 2]\n'
    with pytest.raises(DanseoError, match="select_on = dev"):
        sweep(search, "select_on=dev")


@pytest.mark.parametrize("option", [["--epochs", "3"], ["--set", "epochs=3"]])
def test_tuning(option: list[str], tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    (tmp_path / "space.toml").write_text("epochs = [1.0, 2.0]\n")
    command = ["tune", "train", "ynat", "-m", "majority", "--space", str(tmp_path / "space.toml"), "--data", "sample"]
    result = CliRunner().invoke(cli, [*command, *option])
    assert "train.epochs is given on the command line, and searched for" in str(result.exception)
