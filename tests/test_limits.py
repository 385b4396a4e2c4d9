"""Input without measure or sense is one line, and memory stays bounded."""

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pytest

from danseo import files
from danseo.config.base import parse_assignment
from danseo.config.run import RunConfig
from danseo.data import input_reader as lines
from danseo.data.input_reader import group_lines
from danseo.data.prediction_file import read_predictions
from danseo.errors import DanseoError, DataError
from danseo.files import parse_json, read_bytes, read_toml
from danseo.records import Prediction
from danseo.sweeps.sweep_file import read_sweep
from danseo.tasks import TASKS
from danseo.tasktypes import decoding
from danseo.tasktypes.decoding import pack_npz, read_npz
from danseo.text import documents

from .tiny import read_split


def test_files_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(b" x" * 100_000))
    large = tmp_path / "large"
    large.write_bytes(b"x" * 1001)
    for path in (bomb, large):
        with pytest.raises(DataError, match="GiB, the limit"):
            read_bytes(path)
    with pytest.raises(DataError, match="is a device, not a file"):
        read_bytes(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is empty"):
        read_bytes(tmp_path / "pipe")


def test_numbers_without_measure(tmp_path, monkeypatch):
    path = tmp_path / "dev.npz"
    path.write_bytes(pack_npz({"scores": np.zeros(10_000)}))
    assert read_npz(path)
    monkeypatch.setattr(decoding, "MAX_BYTES", 1000)
    with pytest.raises(DanseoError, match="GiB of numbers"):
        read_npz(path)


def test_saved_numbers_that_are_none(tmp_path):
    path = tmp_path / "dev.npz"
    path.write_bytes(pack_npz({"arcs": np.array([-np.inf, 0.0])}))
    assert read_npz(path), "the logarithm of nothing is allowed"
    path.write_bytes(pack_npz({"arcs": np.array([np.nan, 0.0])}))
    with pytest.raises(DanseoError, match="arcs holds NaN or infinite numbers"):
        read_npz(path)


def test_lines_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 17)
    with pytest.raises(DataError, match="a line of more than"):
        list(group_lines(_readable(tmp_path, b"x" * (1 << 19)), 10))
    monkeypatch.setattr(documents, "_LONGEST_LINE", 100)
    (tmp_path / "some.txt").write_text("가" * 200)
    with pytest.raises(DataError, match="line 1: more than 100 characters"):
        list(documents.read_documents("some", tmp_path / "some.txt"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is no file"):
        list(documents.read_documents("pipe", tmp_path / "pipe"))


def _readable(folder: Path, content: bytes) -> io.BufferedReader:
    (folder / "lines").write_bytes(content)
    return (folder / "lines").open("rb")


@pytest.mark.parametrize("text", ["a = " + "[" * 3000, "a = " + "9" * 5000, "a = {b = " * 3000])
def test_toml_without_measure(tmp_path, text):
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(DataError, match=r"odd\.toml: not valid TOML"):
        read_toml(tmp_path / "odd.toml")


@pytest.mark.parametrize("setting", ["seed", "batch_size", "learning_rate", "epochs"])
def test_settings_without_measure(setting):
    with pytest.raises(DanseoError, match="too large a number"):
        parse_assignment(f"{setting}={'9' * 400}", RunConfig)


def test_grids_without_measure(tmp_path):
    seeds = ", ".join(map(str, range(200)))
    (tmp_path / "wide.toml").write_text(
        f"task = 'ynat'\nmodel = 'majority'\n[grid]\nseed = [{seeds}]\n"
        f"max_train_samples = [{seeds}]\nbatch_size = [1, 2]\n"
    )
    with pytest.raises(DanseoError, match="80,000 runs, but a sweep has at most 10,000"):
        read_sweep(tmp_path / "wide.toml").configs()


def test_a_key_that_stands_twice_is_refused():
    with pytest.raises(DataError, match="the key answer occurs twice in one object"):
        parse_json('{"guid": "a", "answer": 1, "answer": 2}', None)


def test_answers_beyond_the_scale(sample, tmp_path):
    task, examples = TASKS["sts"], read_split(sample, "sts", "dev", 1)
    path = tmp_path / "answers.jsonl"
    path.write_text(f'{{"guid": "{examples[0].guid}", "answer": 500}}\n')
    with pytest.raises(DanseoError, match="should be a number from 0 to 5, not 500"):
        read_predictions(path, task, examples)
    assert task.remark([Prediction("a", 5.1), Prediction("b", 5.0)]) == "1 of 2 answers are outside 0 to 5"


def test_empty_probabilities_are_refused(sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 1)
    path = tmp_path / "answers.jsonl"
    path.write_text(f'{{"guid": "{examples[0].guid}", "answer": "{examples[0].gold}", "probabilities": {{}}}}\n')
    with pytest.raises(DanseoError, match="probabilities should be an object label -> probability"):
        read_predictions(path, TASKS["ynat"], examples)
