"""Commands on a folder of custom data, and a tiny encoder for its words."""

import json

import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.models.new_encoder import EncoderSize, make_encoder

SETTINGS = "precision=fp32 attn_implementation=eager num_threads=1 batch_size=16".split()


@pytest.fixture
def danseo(folder, monkeypatch):
    """Run commands in the folder of the module; they must succeed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DANSEO_CACHE", str(folder / "cache"))
    return run_command


def run_command(*arguments):
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*arguments):
    return json.loads(run_command(*arguments, "--json"))


def make_tiny_encoder(folder, words, hidden=16):
    size = EncoderSize(layers=1, hidden=hidden, heads=1, vocabulary=250, positions=80)
    make_encoder(folder / "tiny", [" ".join(words)] * 3, "bert", size)


def encoder(seed=1, epochs=1, learning_rate=1e-3):
    """Return the options that train the tiny encoder."""
    settings = [*SETTINGS, f"epochs={epochs}", f"learning_rate={learning_rate}"]
    return ["-m", "tiny", "--seed", str(seed), *(word for setting in settings for word in ("--set", setting))]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
