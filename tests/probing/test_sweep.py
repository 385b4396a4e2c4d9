"""Many checkpoints: found, probed once, saved at once, compared, drawn; and the commands."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from danseo.errors import DanseoError, WorkFailed
from danseo.probing.checkpoints import Checkpoint, Range, find_checkpoints, numbered
from danseo.probing.command import Job, run_job
from danseo.probing.items import shipped_items, write_items
from danseo.probing.probe import ProbeOptions
from danseo.probing.results import ADDED, LEGACY, csv_text, merged, read_reference
from danseo.probing.sweep import Sweep, trained_mode
from danseo.probing.tables import comparison
from danseo.runs.locks import owned

from .tiny import FakeAnalyser

pytestmark = pytest.mark.lengthy

ITEMS = shipped_items()[::10]


@pytest.fixture
def small(tmp_path) -> Path:
    write_items(tmp_path / "items.jsonl", ITEMS)
    return tmp_path / "items.jsonl"


def make_sweep(output: Path, spelling="natural", **options) -> Sweep:
    asking = ProbeOptions(quick=True, spelling=spelling)
    return Sweep(ITEMS, asking, FakeAnalyser(), output, "cpu", "fp32", **options)


def test_spellings_are_other_evaluations(training, tmp_path):
    """Never taken for each other, nor compared: in files, identities, summaries and as a reference."""
    checkpoint = Checkpoint(str(training / "checkpoint-20"))
    natural, separate = (make_sweep(tmp_path, spelling) for spelling in ("natural", "separate"))
    records = [sweep.probe(checkpoint) for sweep in (natural, separate)]
    assert [record["spelling"] for record in records] == ["natural", "separate"]
    assert records[0]["eval_config_hash"] != records[1]["eval_config_hash"]
    assert len(list(tmp_path.glob("*_eval_results.json"))) == 2
    natural.save(tmp_path, 1, "complete")
    summary = separate.save(tmp_path, 1, "complete")
    assert [row["spelling"] for row in summary["results"]] == ["separate"]
    assert [row["spelling"] for row in summary["other_sets"]] == ["natural"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps({key: value for key, value in records[1].items() if key != "spelling"}))
    read_reference(path, records[0]["eval_set_hash"], "separate")  # which was the only way when files did not say
    with pytest.raises(DanseoError, match="probed with --spelling separate, here it is natural"):
        read_reference(path, records[0]["eval_set_hash"], "natural")


def test_a_series_is_computed_in_one_way(training, tmp_path, monkeypatch):
    """What auto chose first holds for all, in later commands too; other ways are other evaluations and stand apart."""
    measured = ["fp32"]
    monkeypatch.setattr(
        "danseo.models.masked.load.usable_precision",
        lambda model, device, precision, on_note: measured.pop() if precision == "auto" else precision,
    )
    checkpoints = [Checkpoint(str(path)) for _, path in numbered(training)[:2]]
    records = []
    for checkpoint in checkpoints:  # each in a command of its own
        sweep = make_sweep(tmp_path)
        sweep.precision = "auto"
        records.append(sweep.probe(checkpoint))
        sweep.save(tmp_path, 1, "complete")
    assert [(record["status"], record["dtype"], record["attention"]) for record in records] == [
        ("ok", "fp32", "own")
    ] * 2
    other = make_sweep(tmp_path, mode=("fp32", "eager"))
    assert other.identity(checkpoints[0]) != sweep.identity(checkpoints[0])
    other.probe(checkpoints[0])
    summary = other.save(tmp_path, 1, "complete")
    assert [row["attention"] for row in summary["results"]] == ["eager"]
    assert [row["attention"] for row in summary["other_sets"]] == ["own", "own"]


def test_a_training_is_probed_as_it_computed(training, tmp_path):
    folder = tmp_path / "run" / "checkpoint-20"
    shutil.copytree(training / "checkpoint-20", folder)
    for device, mode in (("cpu", ("fp32", "eager")), ("cuda", None)):
        kept = {"precision": "fp32", "attention": "eager", "device": device}
        (folder.parent / "gear.json").write_text(json.dumps(kept))
        assert trained_mode(Checkpoint(str(folder)), "cpu") == mode
    assert trained_mode(Checkpoint("some/model"), "cpu") is None


def test_discovery(golden, tmp_path):
    case = golden["checkpoint_discovery"]
    for name in case["directories"]:
        (tmp_path / "deep" / name).mkdir(parents=True)
        (tmp_path / "deep" / name / "config.json").write_text("{}")
    (tmp_path / "checkpoint-7").mkdir()  # without a config: still being written, or nothing of ours
    names = [path.name for _, path in numbered(tmp_path)]
    assert names == case["numeric_sort"]
    chosen = find_checkpoints([str(tmp_path)], Range(100, 1000))
    assert [each.name for each in chosen] == case["range_min_100_max_1000"]
    assert [each.name for each in find_checkpoints([str(tmp_path)], Range(every=65))] == case["numeric_sort"][:2]
    best = find_checkpoints([str(tmp_path / "deep" / "best")])
    assert [(each.name, each.step) for each in best] == [("best", None)]
    with pytest.raises(DanseoError, match="none of them in the range"):
        find_checkpoints([str(tmp_path)], Range(5000))
    with pytest.raises(DanseoError, match="no such folder"):
        find_checkpoints(["/nowhere/at/all"])
    assert find_checkpoints(["klue/roberta-base"]) == [Checkpoint("klue/roberta-base")]


def test_partial_results_merge(golden):
    case = golden["partial_merge"]
    assert merged(case["existing"], case["new"]) == case["merged"]


def test_csv_begins_with_the_old_columns(golden):
    record = golden["result_record_legacy"]
    header, row, *_ = csv_text([{**record, "epoch": record["checkpoint_info"]["epoch"]}]).splitlines()
    assert header.startswith(golden["csv_legacy"]["header"] + ",")
    assert row.startswith(golden["csv_legacy"]["row"] + ",")
    assert list(csv.reader([header])) == [[*LEGACY, *ADDED]]


def test_results_have_the_old_fields_and_are_not_made_twice(golden, training, tmp_path):
    sweep = make_sweep(tmp_path)
    record = sweep.probe(Checkpoint(str(training / "checkpoint-20")))
    dropped = {"lambada_time", "real1_time", "real5_time"}  # one pass answers all three
    assert set(golden["result_record_legacy"]) - dropped <= set(record)
    assert set(golden["result_record_legacy"]["checkpoint_info"]) == set(record["checkpoint_info"])
    assert (record["step"], record["epoch"], record["coref_samples"]) == (20, 0.5, record["probes"]["repeated"]["n"])
    path = tmp_path / "checkpoint-20_eval_results.json"
    before = path.stat().st_mtime_ns
    notes: list[str] = []
    again = make_sweep(tmp_path, on_note=notes.append).probe(Checkpoint(str(training / "checkpoint-20")))
    assert again == record
    assert path.stat().st_mtime_ns == before
    assert notes == [f"{training.name}/checkpoint-20: already probed"]


def test_changed_weights_are_probed_again(training, tmp_path):
    copy = Path(shutil.copytree(training / "checkpoint-20", tmp_path / "run" / "checkpoint-20"))
    first = make_sweep(tmp_path).probe(Checkpoint(str(copy)))
    shutil.copy(training / "checkpoint-100" / "model.safetensors", copy)
    second = make_sweep(tmp_path).probe(Checkpoint(str(copy)))
    assert first["model_hash"] != second["model_hash"]
    assert first["evaluated_at"] <= second["evaluated_at"]


def test_equal_names_do_not_collide(training, tmp_path):
    copies = [
        shutil.copytree(training / f"checkpoint-{step}", tmp_path / run / "checkpoint-20")
        for run, step in (("a", 20), ("b", 100))
    ]
    sweep = make_sweep(tmp_path / "out")
    for copy in copies:
        sweep.probe(Checkpoint(str(copy)))
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {"checkpoint-20_eval_results.json", "b--checkpoint-20_eval_results.json"}


def test_a_broken_checkpoint_is_a_row(training, tmp_path):
    broken = Path(shutil.copytree(training / "checkpoint-20", tmp_path / "checkpoint-50"))
    (broken / "model.safetensors").write_bytes(b"half a file")
    (broken / "trainer_state.json").unlink()
    sweep = make_sweep(tmp_path)
    sweep.probe(Checkpoint(str(broken)))
    sweep.probe(Checkpoint(str(training / "checkpoint-20")))
    summary = sweep.save(tmp_path, 2, "complete")
    assert [row["status"] for row in summary["results"]] == ["ok", "failed"]
    assert summary["successful_evaluations"] == 1
    assert summary["results"][1]["error"]


def test_comparison_needs_the_same_items(training, tmp_path):
    sweep = make_sweep(tmp_path)
    for step in (20, 100):
        sweep.probe(Checkpoint(str(training / f"checkpoint-{step}")))
    path = tmp_path / "checkpoint-20_eval_results.json"
    reference = read_reference(path, sweep.records[0]["eval_set_hash"], "natural")
    same, other = (comparison([record], reference) for record in sweep.records)
    assert all(row["difference"] == 0 and row["mcnemar_p"] == 1 for row in same)
    assert {row["score"] for row in other} >= {"strict@1", "lenient@5"}
    with pytest.raises(DanseoError, match="other items"):
        read_reference(path, "another", "natural")
    with pytest.raises(DanseoError, match="no result file"):
        read_reference(tmp_path / "nothing.json", "another", "natural")


def test_the_command_line(danseo, training, tmp_path, small):
    pytest.importorskip("kiwipiepy")
    out = tmp_path / "out"
    broken = tmp_path / "checkpoint-1"
    shutil.copytree(training / "checkpoint-20", broken)
    (broken / "model.safetensors").write_bytes(b"x")
    (broken / "trainer_state.json").unlink()
    common = ("--items", small, "--output-dir", out, "--precision", "fp32", "--device", "cpu")
    first = danseo("probe", training, broken, *common, "--json")
    assert first.code == 3, first.err
    rows = first.json["summary"]["results"]
    assert [(row["step"], row["status"]) for row in rows] == [(1, "failed"), (20, "ok"), (100, "ok")]
    assert (out / "probe_curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "probe_summary.json").read_text())["status"] == "complete"
    reference = out / "checkpoint-20_eval_results.json"
    second = danseo("probe", training, *common, "--from-step", 50, "--reference", reference)
    assert second.code == 0
    assert "already probed" in second.err
    assert "Against" in second.out
    assert "exact@1" in second.out
    assert danseo("probe", tmp_path / "none", *common).complaint.startswith("danseo: ")
    assert "0.4,0.3,0.3" in danseo("probe", training, "--weights", "1,2").complaint


def test_data_probes_command(danseo, tmp_path):
    pytest.importorskip("kiwipiepy")
    texts = [item.text for item in {item.text: item for item in shipped_items()}.values()]
    for name, part in (("a", texts[::2]), ("b", texts[1::2])):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(part), encoding="utf-8")
    result = danseo("data", "probes", "--text", "a.txt", "b.txt", "--out", "sets", "--limit", 10, "--json")
    assert result.code == 0, result.err
    assert result.json["sources"] == {"a": "a.txt", "b": "b.txt"}
    assert {split: found["items"] for split, found in result.json["sets"].items()} == {"dev": 10, "test": 10}
    (tmp_path / "empty.txt").write_text("\n")
    assert "holds no text" in danseo("data", "probes", "--text", "empty.txt", "--out", "sets").complaint


def test_watching_ends_with_ctrl_c(training, tmp_path, small):
    pytest.importorskip("kiwipiepy")
    folder, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(training / "checkpoint-20", folder / "checkpoint-20")
    for file in (folder / "checkpoint-20").iterdir():
        os.utime(file, (time.time() - 60,) * 2)
    command = [sys.executable, "-m", "danseo", "probe", folder, "--items", small, "--output-dir", out, "--quick"]
    command += ["--watch", "--poll", "0.2", "--precision", "fp32", "--device", "cpu"]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait_for(out / "checkpoint-20_eval_results.json")
            late = shutil.copytree(training / "checkpoint-100", tmp_path / "late")
            for file in Path(late).iterdir():
                os.utime(file, (time.time() - 60,) * 2)
            Path(late).rename(folder / "checkpoint-100")
            _wait_for(out / "checkpoint-100_eval_results.json")
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            printed, noted = process.communicate(timeout=600)
        finally:
            process.kill()
    assert process.returncode == 0, noted
    assert "checkpoint-100" in printed
    assert "no longer waiting" in noted


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 600
    while not path.is_file():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.2)


def test_a_folder_that_another_process_probes_into_is_left_to_it(training, small, tmp_path):
    job = Job((str(training),), items=small, output=tmp_path / "out", device="cpu", precision="fp32", wait=False)
    with owned(tmp_path / "out", inside=True), pytest.raises(WorkFailed, match="is being written by another process"):
        run_job(job, quiet=True)
    assert not (tmp_path / "out").exists(), "nothing is left of the lock"
