"""The settings of a run: names, values, files, fingerprints."""

import tomllib
from pathlib import Path

import pytest

from danseo.config.base import (
    full_name,
    parse_assignment,
    read_settings,
    to_toml,
    update_config,
)
from danseo.config.run import RunConfig, read_config
from danseo.config.train import TrainSettings
from danseo.errors import DanseoError
from danseo.models.encoder.settings import EncoderSettings
from danseo.tasks import get_task

BASE = RunConfig(task="ner", model="klue/roberta-base")
EVERYTHING = {
    "seed": 7,
    "recipe": "내 설정.toml",
    "max_train_samples": 100,
    "trust_remote_code": True,
    "encoder.architecture": "official",
    "train.max_length": 510,
    "train.epochs": 2.5,
    "train.learning_rate": 3e-5,
    "train.head_learning_rate": 1e-3,
    "train.lr_scheduler_type": "cosine",
    "train.patience": 3,
    "train.freeze": "4",
    "train.swa_start_epoch": 1.0,
    "train.swa_lr": 5e-5,
    "train.ema_decay": 0.999,
}


@pytest.mark.parametrize("settings", [{}, EVERYTHING, {"model": 'a "quoted" \\ folder\n두 줄'}])
def test_a_config_written_as_toml_reads_back_the_same(tmp_path: Path, settings):
    config = update_config(BASE, settings)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), "utf-8")
    assert read_config(path) == config
    document = tomllib.loads(to_toml(config))
    assert list(document["train"]) == list(TrainSettings.model_fields)
    assert list(document["encoder"]) == list(EncoderSettings.model_fields)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("num_train_epochs", "set train.epochs"),
        ("per_device_train_batch_size", "set train.batch_size"),
        ("save_steps", "train.evals_per_epoch"),
        ("learning_rte", "did you mean train.learning_rate? "),
        ("train.learnin_rate", "did you mean train.learning_rate? "),
        ("batchsize", "did you mean train.batch_size? "),
        ("max_len", "did you mean train.max_length? "),
        ("sed", "did you mean seed? "),
        ("§§§§", "unknown setting '§§§§'; `danseo settings`"),
    ],
)
def test_an_unknown_name_gets_a_hint(key, hint):
    with pytest.raises(DanseoError, match="unknown setting") as caught:
        full_name(key, RunConfig)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("learning_rate=3e-5", ("train.learning_rate", 3e-5)),
        ("epochs = 4", ("train.epochs", 4.0)),
        ("patience=none", ("train.patience", None)),
        ("patience=5", ("train.patience", 5)),
        ("freeze=4", ("train.freeze", "4")),
        ("freeze=none", ("train.freeze", "none")),
        ("class_weights=none", ("encoder.class_weights", "none")),
        ("gradient_checkpointing=True", ("train.gradient_checkpointing", True)),
        ("gradient_checkpointing=false", ("train.gradient_checkpointing", False)),
        ("swa_start_epoch=1", ("train.swa_start_epoch", 1.0)),
        ("encoder.doc_stride=64", ("encoder.doc_stride", 64)),
        ("recipe=a=b.toml", ("recipe", "a=b.toml")),
    ],
)
def test_assignments_become_values_of_the_right_type(assignment, value):
    found = parse_assignment(assignment, RunConfig)
    assert found == value
    assert type(found[1]) is type(value[1])


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("learning_rate", "write key=value"),
        ("learning_rate=fast", "train.learning_rate = 'fast': should be float"),
        ("batch_size=1.5", "should be int"),
        ("batch_size=none", "should be int"),
        ("patience=1.5", "should be int or none"),
        ("gradient_checkpointing=1", "should be bool"),
        ("lr_scheduler_type=none", "should be one of linear"),
        ("batch_size=0", "should be above 0"),
        ("epochs=inf", "should be above 0"),
        ("learning_rate=nan", "should be 0 or more"),
        ("patience=-1", "should be 0 or more"),
        ("warmup_ratio=1.5", "should be from 0 to 1"),
        ("run_type=ensemble", "cannot be set"),
    ],
)
def test_a_wrong_value_is_refused(assignment, complaint):
    with pytest.raises(DanseoError) as caught:
        parse_assignment(assignment, RunConfig)
    assert complaint in str(caught.value).replace('"', "'")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[train\n", "not valid TOML"),
        ("[train]\nlearning_rte = 1.0\n", "did you mean train.learning_rate?"),
        ('[train]\nlearning_rate = "3e-5"\n', "should be float"),
        ("[train]\nlearning_rate = [1, 2]\n", "should be float"),
        ("[training]\nepochs = 1\n", "unknown setting 'training.epochs'"),
        ("train = 3\n", "unknown setting 'train'"),
    ],
)
def test_an_error_names_the_file(tmp_path: Path, content, complaint):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(DanseoError) as caught:
        read_settings(path, RunConfig)
    assert str(caught.value).startswith(f"{path}: ")
    assert complaint in str(caught.value)


def test_a_config_without_task_is_refused(tmp_path: Path):
    (tmp_path / "config.toml").write_text("schema = 2\nseed = 1\n")
    with pytest.raises(DanseoError, match="task and model missing"):
        read_config(tmp_path / "config.toml")


def test_a_long_unknown_setting_is_shortened(tmp_path):
    (tmp_path / "config.toml").write_text(f"schema = 2\n{'k' * 70_000} = 1\n", "utf-8")
    with pytest.raises(DanseoError, match="unknown setting") as raised:
        read_config(tmp_path / "config.toml")
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("name", ["긴" * 70_000, "a\0b", "a\nb"])
def test_an_impossible_task_name_is_one_line(name):
    with pytest.raises(DanseoError) as raised:
        get_task(name)
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 300
