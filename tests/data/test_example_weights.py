"""Weights of training examples."""

import pytest

from danseo.errors import DataError
from danseo.runs.training_data import load_weights, read_weights, write_weights


def test_written_weights_are_read_back(tmp_path):
    weights = {"a": 1.0, '=odd, "guid"': 2.5, "b": 0.0}
    write_weights(tmp_path / "w.csv", weights)
    assert read_weights(tmp_path / "w.csv") == weights
    assert load_weights(tmp_path / "w.csv", {*weights, "not named"}) == weights


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,1\n", "line 1: .*header"),
        ("", "guid,weight|empty"),
        ("guid,weight\na,-1\n", "line 2: the weight '-1'"),
        ("guid,weight\na,inf\n", "should be a number"),
        ("guid,weight\n\na\n", "line 3: no weight"),
        ("guid,weight\na,1\na,2\n", "line 3: 'a' occurs twice"),
        ("guid,weight\nz,1\n", "guid 'z'"),
        ("guid,weight\na,0\nb,0\n", "weight 0"),
    ],
)
def test_bad_files(tmp_path, text, message):
    (tmp_path / "w.csv").write_text(text, "utf-8")
    with pytest.raises(DataError, match=message):
        load_weights(tmp_path / "w.csv", ["a", "b"])
