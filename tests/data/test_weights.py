"""Weights of training examples: what the file may say."""

import pytest

from danseo.data.weights import known_weights, read_weights, write_weights
from danseo.errors import DataError


def test_what_was_written_is_read(tmp_path):
    weights = {"a": 1.0, '=odd, "guid"': 2.5, "b": 0.0}
    write_weights(tmp_path / "w.csv", weights)
    assert read_weights(tmp_path / "w.csv") == weights
    assert known_weights(tmp_path / "w.csv", {*weights, "not named"}) == weights


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,1\n", "line 1: should be the header guid,weight"),
        ("", "guid,weight|empty"),
        ("guid,weight\na,-1\n", "line 2: the weight '-1' should be a number, 0 or more"),
        ("guid,weight\na,inf\n", "should be a number"),
        ("guid,weight\n\na\n", "line 3: no weight"),
        ("guid,weight\na,1\na,2\n", "line 3: 'a' stands there twice"),
        ("guid,weight\nz,1\n", "no training example is called 'z'"),
        ("guid,weight\na,0\nb,0\n", "every training example weighs 0"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, text, words):
    (tmp_path / "w.csv").write_text(text, "utf-8")
    with pytest.raises(DataError, match=words):
        known_weights(tmp_path / "w.csv", ["a", "b"])
