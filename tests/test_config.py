import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

from danseo.config import HeadConfig, RunConfig, TrainConfig, read_config
from danseo.errors import DanseoError
from danseo.settings.declaring import flat, full_name, identifying, later, setting_help, setting_paths
from danseo.settings.values import parse_setting, with_settings
from danseo.settings.written import read_settings, to_toml

BASE = RunConfig(task="ner", model="klue/roberta-base")
EVERYTHING = {
    "seed": 7,
    "recipe": "내 설정.toml",
    "limit": 100,
    "trust_remote_code": True,
    "head.architecture": "official",
    "head.max_length": 510,
    "train.epochs": 2.5,
    "train.learning_rate": 3e-5,
    "train.head_learning_rate": 1e-3,
    "train.schedule": "cosine",
    "train.patience": 3,
    "train.freeze": "4",
    "train.swa_start": 1.0,
    "train.swa_learning_rate": 5e-5,
    "train.ema": 0.999,
}


@pytest.mark.parametrize("settings", [{}, EVERYTHING, {"model": 'a "quoted" \\ folder\n두 줄'}])
def test_a_config_written_as_toml_reads_back_the_same(tmp_path: Path, settings):
    config = with_settings(BASE, settings)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), "utf-8")
    assert read_config(path) == config
    document = tomllib.loads(to_toml(config))
    assert len(document["train"]) == len(fields(TrainConfig))
    assert len(document["head"]) == len(fields(HeadConfig))


def test_every_setting_has_a_help_text():
    for name, (cls, attribute) in setting_paths(RunConfig).items():
        assert setting_help(cls).get(attribute, "").endswith("."), name


def test_the_section_may_be_left_out_where_a_name_comes_once_or_came_first():
    short = [path.split(".")[-1] for path in setting_paths(RunConfig)]
    assert {name for name in short if short.count(name) > 1} == {"attention"}
    assert full_name("attention", RunConfig) == "train.attention"  # as before there was head.attention
    assert full_name("head.attention", RunConfig) == "head.attention"
    assert full_name("learning_rate", RunConfig) == full_name("train.learning_rate", RunConfig) == "train.learning_rate"


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("learning_rte", "train.learning_rate"),
        ("train.learnin_rate", "train.learning_rate"),
        ("batchsize", "train.batch_size"),
        ("max_len", "head.max_length"),
        ("sed", "seed"),
    ],
)
def test_an_unknown_key_names_the_nearest(key, near):
    message = f"unknown setting '{key}'; did you mean {near}? `danseo settings` lists all"
    with pytest.raises(DanseoError) as caught:
        with_settings(BASE, {key: 1})
    assert str(caught.value) == message


def test_a_key_like_nothing_gets_no_suggestion():
    with pytest.raises(DanseoError, match=r"^unknown setting '§§§§'; `danseo settings` lists all$"):
        full_name("§§§§", RunConfig)


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("learning_rate=3e-5", ("train.learning_rate", 3e-5)),
        ("epochs = 4", ("train.epochs", 4.0)),
        ("patience=none", ("train.patience", None)),
        ("patience=5", ("train.patience", 5)),
        ("freeze=4", ("train.freeze", "4")),
        ("freeze=none", ("train.freeze", "none")),
        ("class_weights=none", ("train.class_weights", "none")),
        ("gradient_checkpointing=True", ("train.gradient_checkpointing", True)),
        ("gradient_checkpointing=false", ("train.gradient_checkpointing", False)),
        ("swa_start=1", ("train.swa_start", 1.0)),
        ("head.stride=64", ("head.stride", 64)),
        ("recipe=a=b.toml", ("recipe", "a=b.toml")),
    ],
)
def test_assignments_become_values_of_the_right_type(assignment, value):
    found = parse_setting(assignment, RunConfig)
    assert found == value
    assert type(found[1]) is type(value[1])


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("learning_rate", "write key=value"),
        ("learning_rate=fast", "train.learning_rate = 'fast': should be float"),
        ("learning_rate=true", "should be float"),
        ("batch_size=1.5", "train.batch_size = 1.5: should be int"),
        ("batch_size=none", "should be int"),
        ("batch_size=true", "should be int"),
        ("patience=1.5", "should be int or none"),
        ("gradient_checkpointing=1", "should be bool"),
        ("schedule=linera", "train.schedule = 'linera': should be one of linear, cosine, constant"),
        ("precision=fp8", "should be one of auto, bf16, fp16, fp32"),
        ("schedule=none", "should be one of linear"),
        ("batch_size=0", "train.batch_size = 0: should be above 0"),
        ("epochs=0", "train.epochs = 0.0: should be above 0"),
        ("epochs=inf", "should be above 0"),
        ("learning_rate=nan", "train.learning_rate = nan: should be 0 or more"),
        ("limit=-5", "limit = -5: should be 0 or more"),
        ("patience=-1", "should be 0 or more"),
        ("warmup=1.5", "train.warmup = 1.5: should be from 0 to 1"),
    ],
)
def test_a_wrong_value_says_what_is_due(assignment, complaint):
    with pytest.raises(DanseoError) as caught:
        parse_setting(assignment, RunConfig)
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
def test_a_file_is_named_when_it_is_wrong(tmp_path: Path, content, complaint):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(DanseoError) as caught:
        read_settings(path, RunConfig)
    assert str(caught.value).startswith(f"{path}: ")
    assert complaint in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path):
    with pytest.raises(DanseoError) as caught:
        read_settings(tmp_path / "nowhere.toml", RunConfig)
    assert "\n" not in str(caught.value)


def test_a_file_without_task_is_no_run(tmp_path: Path):
    (tmp_path / "config.toml").write_text("seed = 1\n")
    with pytest.raises(DanseoError, match="task and model missing"):
        read_config(tmp_path / "config.toml")


def test_settings_change_only_what_they_name():
    changed = flat(with_settings(BASE, EVERYTHING))
    for name, value in flat(BASE).items():
        assert changed[name] == EVERYTHING.get(name, value)


def test_a_later_setting_renames_no_run_until_it_is_used():
    @dataclass(frozen=True, kw_only=True)
    class Later:
        width: int = 4

    @dataclass(frozen=True, kw_only=True)
    class Grown:
        seed: int = 42
        shade: str = later("plain")
        extra: Later = field(default_factory=Later, metadata={"later": True})

    assert identifying(Grown()) == {"seed": 42}
    assert identifying(Grown(shade="dark")) == {"seed": 42, "shade": "dark"}
    assert identifying(Grown(extra=Later(width=5))) == {"seed": 42, "extra.width": 5}
