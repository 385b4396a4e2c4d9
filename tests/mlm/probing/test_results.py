"""Result files and tables of probed checkpoints."""

from pathlib import Path
from typing import Any

from danseo.mlm.probing.results import (
    SUMMARY,
    find_best,
    find_series,
    group_tied_series,
    make_series_chart,
    make_sweep_table,
    remove_partial_files,
    write_record,
    write_summary,
)
from danseo.report.mlm_page import make_mlm_pages

SCORES = ("strict1", "strict5", "choice1", "lambada_strict1", "composite", "real1", "real5", "lambada_top1", "score")


def row(checkpoint: str, composite: float | None = 0.1, **more: Any) -> dict[str, Any]:
    found = {"checkpoint": checkpoint, "step": None, "status": "ok", "weights": [0.4, 0.3, 0.3], **more}
    return found | dict.fromkeys(SCORES, 0.05) | {"composite": composite}


def summary(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"results": list(rows)}


def test_only_partial_files_of_results_are_removed(tmp_path: Path) -> None:
    drafts = (
        ".probe_summary.csv.17.part",
        ".probe_summary.json.17.part",
        ".probe_curve.png.1.part",
        ".a_eval_results.json.9.part",
    )
    others = ("probe_summary.csv", "a_eval_results.json", "model.safetensors.part", ".other.json.3.part")
    for name in (*drafts, *others):
        (tmp_path / name).write_text("x", "utf-8")
    remove_partial_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_best_checkpoint_is_named_without_ties():
    rows = [row("a/x", 0.2), row("a/y", 0.2), row("a/z", 0.1)]
    assert make_sweep_table(summary(*rows[1:])).note.endswith("best composite: y")
    assert make_sweep_table(summary(*rows)).note.endswith("x and y share the best composite")
    assert make_sweep_table(summary(*rows[:2])).note.endswith("all have the same composite")
    assert "best" not in make_sweep_table(summary(rows[0])).note
    assert "best" not in make_sweep_table(summary(row("a", None), row("b", None))).note
    assert find_best(rows[1:], "composite") == rows[1]
    assert find_best(rows, "composite") is None


def write_series(folder: Path, hits: dict[int, str], **more: Any) -> Path:
    """A folder of probed checkpoints: step -> hits of all items."""
    rows = []
    for step, marks in hits.items():
        record = row(str(folder / f"checkpoint-{step}"), eval_set_hash="e", eval_config_hash="c", spelling="natural")
        record |= {"step": step, "strict1": marks.count("1") / len(marks)}
        rows.append(record)
        full = {**record, "hits": {"repeated": {"strict@1": marks}}, "checkpoint_info": {"name": f"checkpoint-{step}"}}
        write_record(folder, full)
    reference = {**row("best/checkpoint-7"), "strict1": 0.5, "eval_set_hash": "e", "spelling": "natural"}
    write_summary(folder, [{**each, "evaluated_at": "", **more} for each in rows], 1, 0.0, "complete", {}, reference)
    return folder / SUMMARY


def test_series_are_drawn_together_with_reference_and_ties(tmp_path: Path) -> None:
    weak, strong = "1" * 5 + "0" * 95, "1" * 60 + "0" * 40
    paths = [
        write_series(tmp_path / "a" / "pre", {10: weak, 20: strong}),
        write_series(tmp_path / "b" / "pre", {10: weak, 20: "0" + strong[1:]}),
        write_series(tmp_path / "slow", {10: weak}),
        write_series(tmp_path / "other", {10: weak}, eval_set_hash="f"),  # of other items
    ]
    ((series, reference),) = find_series(paths)
    assert [len(each.rows) for each in series] == [2, 2, 1]
    assert len({each.name for each in series}) == 3
    assert reference is not None
    groups = group_tied_series(series)
    first, second, third = (groups[each.name] for each in series)
    assert first == second != third
    chart = make_series_chart(series, groups, reference)
    assert [curve.best for curve in chart.curves] == [20, 20, 10]
    assert chart.curves[0].points == [(10, 5.0), (20, 60.0)]
    assert chart.curves[0].name.endswith(f"({first})")
    assert chart.levels == [("reference best/checkpoint-7", 50.0)]
    assert find_series(paths[:1]) == []
    (page,) = make_mlm_pages([tmp_path], paths)
    section = next(section for section in page.sections if section.title.startswith("Probe series"))
    assert [line[-1] for line in section.blocks[0].table.rows] == [first, second, third, None]
