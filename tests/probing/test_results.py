"""Result files of probed checkpoints."""

from pathlib import Path

import pytest

from danseo.probing import command
from danseo.probing.results import tidy


def test_only_drafts_of_results_go(tmp_path: Path) -> None:
    """What a killed command was writing goes with the next one; the folder may hold anything else."""
    drafts = (
        ".probe_summary.csv.17.part",
        ".probe_summary.json.17.part",
        ".probe_curve.png.1.part",
        ".a_eval_results.json.9.part",
    )
    others = ("probe_summary.csv", "a_eval_results.json", "model.safetensors.part", ".other.json.3.part")
    for name in (*drafts, *others):
        (tmp_path / name).write_text("x", "utf-8")
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_the_command_tidies_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "config.json").write_text("{}", "utf-8")
    out = tmp_path / "out"
    out.mkdir()
    (out / ".probe_summary.csv.17.part").write_text("x", "utf-8")
    monkeypatch.setattr(command, "_run", lambda job, items, waiting, folder, quiet: sorted(folder.glob(".*.part")))
    assert command.run_job(command.Job((str(tmp_path),), output=out), quiet=True) == []
