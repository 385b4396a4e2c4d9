"""Runs of a folder as records."""

from dataclasses import replace
from pathlib import Path

import pytest

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.runs.index import find_runs
from danseo.runs.store import Run
from danseo.tables.runs import make_group_table, make_run_table

from ..tables.test_tables import finished, ner, rows_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed in (10, 2, 1):
        finished(tmp_path, f"ner--base--s{seed}--0a1b", "ner", ner(80.0 + seed, 90.0), seed=seed)
    return tmp_path


def test_runs_are_found_in_the_order_of_numbers(root):
    Run(root / "x" / "deep").start(RunConfig(task="dp", model="majority"))
    assert [(record.seed, record.status) for record in find_runs(root)] == [
        *((seed, "done") for seed in (1, 2, 10)),
        (42, "unfinished"),
    ]
    with pytest.raises(DanseoError, match="not a folder of runs"):
        find_runs(root / "nowhere")


@pytest.mark.parametrize(
    ("seeds", "text"), [((7,), 7), ((1, 2, 3), "1–3"), ((1, 2, 10), "1+2+10"), ((1, 3, 5, 7, 9), "5 seeds")]
)
def test_seeds_of_an_ensemble_as_text(root, seeds, text):
    members = {"ensemble": {"members": [{"run": f"m{seed}", "seed": seed} for seed in seeds]}}
    assert replace(find_runs(root)[0], scores=members).seed == text


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("config.toml", content) for content in (b"task = ", b'task = "ner"', b"\xff\xfe")),
        ("config.toml", b'task = "ner"\nmodel = "x"\n[train]\nlearning_rat = 1.0'),
        *(("scores.json", content) for content in (b'{"scores": {', b"[1, 2]", b'{"headline": "x"}')),
        *(("environment.json", content) for content in (b"[]", b"\xff")),
    ],
)
def test_a_corrupted_run_is_listed_and_does_not_affect_others(root, file, content):
    (root / "ner--base--s2--0a1b" / file).write_bytes(content)
    records = find_runs(root)
    assert [record.status for record in records] == ["done", "corrupted", "done"]
    assert "corrupted: " in rows_of(make_run_table(records))[1]["status"]
    assert rows_of(make_group_table(records, ["task"]))[0]["n"] == 2


def test_a_failed_run_has_its_reason(root):
    run = Run(root / "x")
    run.start(RunConfig(task="ner", model="x"))
    run.fail("the loss is nan at step 3")
    assert find_runs(root)[-1].status_line == "failed: the loss is nan at step 3"
    assert replace(find_runs(root)[-1], status="pruned", note="pruned at step 2").status_line == "pruned at step 2"
    (run.path / "error.txt").write_bytes(b"\xff\xff")
    assert find_runs(root)[-1].status == "corrupted"
