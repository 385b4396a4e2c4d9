"""Tables of probes: no winner among equals, no -0.0, and names that tell checkpoints apart."""

from pathlib import Path
from typing import Any

import pytest

from danseo.display.table import to_markdown
from danseo.probing.results import best_by
from danseo.probing.tables import comparison_table, result_tables, sweep_table

SHARE = {"value": 0.0, "low": -1e-17, "high": 0.0764, "n": 47}
SCORES = ("strict1", "strict5", "choice1", "lambada_strict1", "composite", "real1", "real5", "lambada_top1", "score")


def row(checkpoint: str, composite: float | None = 0.1, **more: Any) -> dict[str, Any]:
    found = {"checkpoint": checkpoint, "step": None, "status": "ok", "weights": [0.4, 0.3, 0.3], **more}
    return found | dict.fromkeys(SCORES, 0.05) | {"composite": composite}


def summary(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"results": list(rows)}


def test_one_best_is_named():
    table = sweep_table(summary(row("a/x", 0.1), row("a/y", 0.2)))
    assert table.note.endswith("best composite: y")
    assert best_by([row("a", 0.1), row("b", 0.2)], "composite") == row("b", 0.2)


def test_there_is_no_best_among_ties():
    rows = [row("a/x", 0.2), row("a/y", 0.2), row("a/z", 0.1)]
    assert sweep_table(summary(*rows)).note.endswith("x and y share the best composite")
    assert sweep_table(summary(*rows[:2])).note.endswith("all have the same composite")
    assert "best" not in sweep_table(summary(rows[0])).note, "one alone is no contest"
    assert "best" not in sweep_table(summary(row("a", None), row("b", None))).note
    assert best_by(rows, "composite") is None


def test_errors_have_a_column_where_there_are_any():
    good = row("a/x")
    assert "error" not in to_markdown(sweep_table(summary(good)))
    failed = {"checkpoint": "a/y", "step": 3, "status": "failed", "error": "no weights"}
    assert "| failed: no weights |" in to_markdown(sweep_table(summary(good, failed)))


def test_checkpoints_of_the_same_name_are_told_apart():
    named = ["one/checkpoint-100", "two/checkpoint-100", "a/long/model", "b/long/model", "klue/bert"]
    found = [cells[0] for cells in sweep_table(summary(*map(row, named))).cells()]
    assert found == ["one/checkpoint-100", "two/checkpoint-100", "a/long", "b/long", "bert"]
    difference = {"probe": "repeated", "score": "strict@1", "value": 1.0, "reference": 2.0, "difference": -1.0}
    difference |= {"only_here": 1, "only_reference": 2, "mcnemar_p": 1.0}
    listed = [{"checkpoint": name, **difference} for name in named[:2]]
    table = comparison_table(listed, {"checkpoint": "ref/checkpoint-1"})
    assert [cells[0] for cells in table.cells()] == named[:2]
    assert table.title == "Against ref/checkpoint-1, %"


def test_intervals_are_readable():
    """Once this was -0.0-7.6."""
    probe: dict[str, Any] = {"n": 47, "scores": {"strict@1": SHARE}, "baselines": {}, "by_distance": []}
    probe |= {"coverage": 1.0, "no_candidate": 0.0, "antecedent_in_window": 1.0, "respelled": 0.0}
    probe["by_distance"] = [{"distance": "<64", "n": 47, "in_window": 47, "strict@1": SHARE}]
    record = {"checkpoint": "pre/model", "seq_len": 128, "spelling": "natural", "probes": {"repeated": probe}}
    scores, distances = result_tables(record)
    assert "| strict@1 | 0.00 | 0.0 – 7.6 |" in to_markdown(scores)
    assert "| 0.0 – 7.6 |" in to_markdown(distances)
    assert scores.title.startswith("pre: repeated nouns")


@pytest.mark.parametrize("name", ["model", "checkpoint-100"])
def test_a_folder_is_called_with_its_parent(tmp_path: Path, monkeypatch, name):
    (tmp_path / "pre" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "pre")
    (cells,) = sweep_table(summary(row(name))).cells()
    assert cells[0] == {"model": "pre", "checkpoint-100": "pre/checkpoint-100"}[name]
