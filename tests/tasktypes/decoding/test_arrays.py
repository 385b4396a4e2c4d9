"""The arrays of predictions/dev.npz are read as they were written."""

from dataclasses import replace

import numpy as np
import pytest

from danseo.errors import PredictionError
from danseo.tasks import TASKS
from danseo.tasktypes.decoding import pack_npz, read_npz

LABELS = ("B-X", "I-X", "O")
ROWS = {
    "ner": [np.arange(6, dtype=np.float16).reshape(2, 3), np.ones((1, 3), dtype=np.float16)],
    "dp": [(np.arange(n * (n + 1), dtype=np.float16).reshape(n, n + 1), np.full((n, n + 1), n)) for n in (1, 2)],
    "mrc": [[("서울특별시", 1.5), ("\n둘째 줄", -2.0), ("", 0.25)], [("", 3.0)], [("𠀀😀", 0.1), ("", 0.0)]],
}


def as_lists(rows):
    return [[part.tolist() if hasattr(part, "tolist") else part for part in row] for row in rows]


@pytest.mark.parametrize("name", ROWS)
def test_rows_survive_a_file(name, tmp_path):
    task = replace(TASKS[name], labels=LABELS)
    (tmp_path / "dev.npz").write_bytes(pack_npz(task.type.pack_arrays(task, ROWS[name])))
    arrays = read_npz(tmp_path / "dev.npz")
    assert as_lists(task.type.unpack_arrays(task, arrays)) == as_lists(ROWS[name])
    if name == "ner":
        turned = task.type.unpack_arrays(replace(task, labels=LABELS[::-1]), arrays)
        assert turned[0].tolist() == ROWS[name][0][:, ::-1].tolist(), "labels are found by name, not by position"


def test_corrupted_and_pickled_files_are_refused(tmp_path):
    assert read_npz(tmp_path / "nothing.npz") is None
    (tmp_path / "dev.npz").write_bytes(b"no zip")
    np.savez(tmp_path / "pickle.npz", texts=np.array([{"a": 1}], dtype=object))
    for name in ("dev.npz", "pickle.npz"):
        with pytest.raises(PredictionError, match="not a readable npz file"):
            read_npz(tmp_path / name)
