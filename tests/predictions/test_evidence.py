"""Side files give back what was put in, and trees survive half precision."""

import numpy as np
import pytest

from danseo.errors import PredictionError
from danseo.predictions.evidence import (
    packed_arrays,
    read_arrays,
    span_arrays,
    span_rows,
    tag_arrays,
    tag_rows,
    tree_arrays,
    tree_rows,
)
from danseo.predictions.trees import FLOOR, best_tree

LABELS = ("B-X", "I-X", "O")


def through_a_file(arrays, folder):
    (folder / "dev.npz").write_bytes(packed_arrays(arrays))
    return read_arrays(folder / "dev.npz")


def test_tags(tmp_path):
    rows = [np.arange(6, dtype=np.float16).reshape(2, 3), np.ones((1, 3), dtype=np.float16)]
    arrays = through_a_file(tag_arrays(rows, LABELS), tmp_path)
    assert [row.tolist() for row in tag_rows(arrays, LABELS)] == [row.tolist() for row in rows]
    turned = tag_rows(arrays, LABELS[::-1])
    assert turned[0].tolist() == rows[0][:, ::-1].tolist(), "labels go by name, never by place"


def test_trees(tmp_path):
    trees = [(np.arange(n * (n + 1), dtype=np.float16).reshape(n, n + 1), np.full((n, n + 1), n)) for n in (1, 2)]
    found = tree_rows(through_a_file(tree_arrays(trees, LABELS), tmp_path), LABELS)
    for (arcs, relations), (arcs_again, relations_again) in zip(trees, found, strict=True):
        assert arcs.tolist() == arcs_again.tolist()
        assert relations.tolist() == relations_again.tolist()


def test_spans(tmp_path):
    spans = [[("서울특별시", 1.5), ("\n둘째 줄", -2.0), ("", 0.25)], [("", 3.0)], [("𠀀😀", 0.1), ("", 0.0)]]
    assert span_rows(through_a_file(span_arrays(spans), tmp_path)) == spans


def test_damage_is_one_line(tmp_path):
    assert read_arrays(tmp_path / "nothing.npz") is None
    (tmp_path / "dev.npz").write_bytes(b"no zip")
    with pytest.raises(PredictionError, match="not a readable npz file"):
        read_arrays(tmp_path / "dev.npz")


def test_trees_in_half_precision_have_one_root():
    """The price of a second root is far beyond what half precision can hold."""
    arcs = np.full((9, 10), FLOOR, dtype=np.float16)
    arcs[:, 0] = -0.5
    arcs[1:, 1] = -1.0
    assert best_tree(arcs).tolist() == [0, *[1] * 8]
