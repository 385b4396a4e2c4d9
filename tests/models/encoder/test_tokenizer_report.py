"""What a tokenizer makes of relations, told by `danseo data stats --tokenizer`."""

import pytest

pytest.importorskip("torch")

from dataclasses import replace

from danseo.data.stats import get_view
from danseo.models.encoder.tokenizer_report import tokenizer_tables
from danseo.tasks import TASKS
from tests.tiny import read_split, tiny_encoder


def test_pieces_unknown_ones_and_windows(sample, tmp_path):
    encoder, task = tiny_encoder(tmp_path, sample), TASKS["re"]
    train = read_split(sample, "re", "train", 30)
    long = replace(train[0], guid="long", text=train[0].text + " 가나다라" * 80 + " 龘龘")
    tables = tokenizer_tables(task, {"train": [*train, long]}, get_view(task).texts, str(encoder))
    pieces, windows = tables
    row = dict(zip(pieces.columns, pieces.rows[0], strict=True))
    assert row["max"] > 128 > row["p95"]
    assert row["above 128 %"] == pytest.approx(100 / 31)
    assert row["unknown %"] > 0
    assert row["unknown in entities %"] == 0
    shown = [dict(zip(windows.columns, each, strict=True)) for each in windows.rows]
    assert [(each["max_length"], each["whole"], each["window"]) for each in shown] == [(128, 30, 1), (160, 30, 1)]
    assert (
        len(
            tokenizer_tables(
                TASKS["ynat"],
                {"dev": read_split(sample, "ynat", "dev", 5)},
                get_view(TASKS["ynat"]).texts,
                str(encoder),
            )
        )
        == 1
    )
