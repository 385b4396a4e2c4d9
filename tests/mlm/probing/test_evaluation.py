"""Many checkpoints: found, probed once, saved, compared and drawn; and the commands."""

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
from danseo.mlm.probing.checkpoints import Checkpoint, StepRange, find_checkpoints, find_numbered_folders
from danseo.mlm.probing.evaluation import CheckpointProber, ProbeJob, read_training_mode, run_probe
from danseo.mlm.probing.items import read_bundled_items, write_items
from danseo.mlm.probing.probe import ProbeOptions
from danseo.mlm.probing.results import ADDED, LEGACY, compare_records, format_csv, merge_rows, read_reference
from danseo.runs.lock import lock_folder

from .tiny import FakeAnalyser

pytestmark = pytest.mark.lengthy

ITEMS = read_bundled_items()[::10]


@pytest.fixture
def small(tmp_path) -> Path:
    write_items(tmp_path / "items.jsonl", ITEMS)
    return tmp_path / "items.jsonl"


def make_prober(output: Path, spelling="natural", quick=True, **options) -> CheckpointProber:
    settings = ProbeOptions(quick=quick, spelling=spelling)
    return CheckpointProber(ITEMS, settings, FakeAnalyser(), output, "cpu", "fp32", **options)


def test_results_of_other_spellings_are_kept_separate(training, tmp_path):
    checkpoint = Checkpoint(str(training / "checkpoint-20"))
    natural, separate = (make_prober(tmp_path, spelling) for spelling in ("natural", "separate"))
    records = [prober.probe(checkpoint) for prober in (natural, separate)]
    assert [record["spelling"] for record in records] == ["natural", "separate"]
    assert records[0]["eval_config_hash"] != records[1]["eval_config_hash"]
    assert len(list(tmp_path.glob("*_eval_results.json"))) == 2
    natural.save(tmp_path, 1, "complete")
    summary = separate.save(tmp_path, 1, "complete")
    assert [row["spelling"] for row in summary["results"]] == ["separate"]
    assert [row["spelling"] for row in summary["other_sets"]] == ["natural"]
    (tmp_path / "separate.json").write_text(json.dumps(records[1]))
    with pytest.raises(DanseoError, match="--spelling separate"):
        read_reference(tmp_path / "separate.json", records[0]["eval_set_hash"], "natural")


def test_all_checkpoints_have_the_first_precision(training, tmp_path, monkeypatch):
    measured = ["fp32"]
    monkeypatch.setattr(
        "danseo.models.mlm.masked_model.choose_precision",
        lambda model, device, precision: measured.pop() if precision == "auto" else precision,
    )
    checkpoints = [Checkpoint(str(path)) for _, path in find_numbered_folders(training)[:2]]
    records = []
    for checkpoint in checkpoints:  # each in a command of its own
        prober = make_prober(tmp_path)
        prober.precision = "auto"
        records.append(prober.probe(checkpoint))
        prober.save(tmp_path, 1, "complete")
    assert [(record["status"], record["dtype"], record["attention"]) for record in records] == [
        ("ok", "fp32", "own")
    ] * 2
    other = make_prober(tmp_path, mode=("fp32", "eager"))
    assert other.key(checkpoints[0]) != prober.key(checkpoints[0])
    other.probe(checkpoints[0])
    summary = other.save(tmp_path, 1, "complete")
    assert [row["attention"] for row in summary["results"]] == ["eager"]
    assert [row["attention"] for row in summary["other_sets"]] == ["own", "own"]


def test_precision_of_the_training_is_used(training, tmp_path):
    folder = tmp_path / "run" / "checkpoint-20"
    shutil.copytree(training / "checkpoint-20", folder)
    for device, mode in (("cpu", ("fp32", "eager")), ("cuda", None)):
        kept = {"precision": "fp32", "attention": "eager", "device": device}
        (folder.parent / "compute.json").write_text(json.dumps(kept))
        assert read_training_mode(Checkpoint(str(folder)), "cpu") == mode
    assert read_training_mode(Checkpoint("some/model"), "cpu") is None


def test_checkpoints_are_found(golden, tmp_path):
    case = golden["checkpoint_discovery"]
    for name in case["directories"]:
        (tmp_path / "deep" / name).mkdir(parents=True)
        (tmp_path / "deep" / name / "config.json").write_text("{}")
    (tmp_path / "checkpoint-7").mkdir()  # without a config: still being written, or nothing of ours
    names = [path.name for _, path in find_numbered_folders(tmp_path)]
    assert names == case["numeric_sort"]
    chosen = find_checkpoints([str(tmp_path)], StepRange(100, 1000))
    assert [each.name for each in chosen] == case["range_min_100_max_1000"]
    assert [each.name for each in find_checkpoints([str(tmp_path)], StepRange(every=65))] == case["numeric_sort"][:2]
    best = find_checkpoints([str(tmp_path / "deep" / "best")])
    assert [(each.name, each.step) for each in best] == [("best", None)]
    with pytest.raises(DanseoError, match="none of 3 checkpoints is in the range"):
        find_checkpoints([str(tmp_path)], StepRange(5000))
    with pytest.raises(DanseoError, match="no such folder"):
        find_checkpoints(["/nowhere/at/all"])
    assert find_checkpoints(["klue/roberta-base"]) == [Checkpoint("klue/roberta-base")]


def test_partial_results_merge(golden):
    case = golden["partial_merge"]
    assert merge_rows(case["existing"], case["new"]) == case["merged"]


def test_csv_starts_with_the_columns_of_earlier_results(golden):
    record = golden["result_record_legacy"]
    header, row, *_ = format_csv([{**record, "epoch": record["checkpoint_info"]["epoch"]}]).splitlines()
    assert header.startswith(golden["csv_legacy"]["header"] + ",")
    assert row.startswith(golden["csv_legacy"]["row"] + ",")
    assert list(csv.reader([header])) == [[*LEGACY, *ADDED]]


def test_results_have_earlier_fields_and_are_computed_once(golden, training, tmp_path):
    prober = make_prober(tmp_path)
    record = prober.probe(Checkpoint(str(training / "checkpoint-20")))
    dropped = {"lambada_time", "real1_time", "real5_time"}  # one pass answers all three
    assert set(golden["result_record_legacy"]) - dropped <= set(record)
    assert set(golden["result_record_legacy"]["checkpoint_info"]) == set(record["checkpoint_info"])
    assert (record["step"], record["epoch"], record["coref_samples"]) == (20, 0.5, record["probes"]["repeated"]["n"])
    path = tmp_path / "checkpoint-20_eval_results.json"
    before = path.stat().st_mtime_ns
    notes: list[str] = []
    again = make_prober(tmp_path, on_note=notes.append).probe(Checkpoint(str(training / "checkpoint-20")))
    assert again == record
    assert path.stat().st_mtime_ns == before
    assert notes == [f"{training.name}/checkpoint-20: already probed"]


def test_quick_probe_keeps_a_full_result(training, tmp_path):
    checkpoint, results = Checkpoint(str(training / "checkpoint-20")), []
    for quick in (True, False, True):
        prober = make_prober(tmp_path, quick=quick)
        results.append(prober.probe(checkpoint))
        prober.save(tmp_path, 1, "complete")
    first, full, again = results
    assert first["choice1"] is None
    assert full["choice1"] is not None
    assert again == full
    (row,) = json.loads((tmp_path / "probe_summary.json").read_text("utf-8"))["results"]
    assert row["choice1"] == full["choice1"]
    (line,) = csv.DictReader((tmp_path / "probe_summary.csv").open(encoding="utf-8"))
    assert float(line["choice1"]) == pytest.approx(full["choice1"], abs=1e-4)


@pytest.mark.parametrize("changed", [{"seq_len": 24}, {"weights": (1.0, 0.0, 0.0)}])
def test_quick_probe_with_other_settings_keeps_the_full_row(training, tmp_path, changed):
    checkpoint = Checkpoint(str(training / "checkpoint-20"))
    full = make_prober(tmp_path, quick=False)
    quick = CheckpointProber(ITEMS, ProbeOptions(quick=True, **changed), full.analyser, tmp_path, precision="fp32")
    for prober in (full, quick):
        prober.probe(checkpoint)
        summary = prober.save(tmp_path, 1, "complete")
    (row,), (kept,) = summary["results"], summary["other_sets"]
    assert row["choice1"] is None
    assert kept["choice1"] is not None
    again = make_prober(tmp_path)
    again.probe(checkpoint)
    summary = again.save(tmp_path, 1, "complete")
    assert [each["choice1"] for each in summary["results"]] == [kept["choice1"]]
    assert [each["choice1"] for each in summary["other_sets"]] == [None]


def test_changed_weights_are_probed_again(training, tmp_path):
    copy = Path(shutil.copytree(training / "checkpoint-20", tmp_path / "run" / "checkpoint-20"))
    first = make_prober(tmp_path).probe(Checkpoint(str(copy)))
    shutil.copy(training / "checkpoint-100" / "model.safetensors", copy)
    second = make_prober(tmp_path).probe(Checkpoint(str(copy)))
    assert first["model_hash"] != second["model_hash"]
    assert first["evaluated_at"] <= second["evaluated_at"]


def test_equal_names_have_different_files(training, tmp_path):
    copies = [
        shutil.copytree(training / f"checkpoint-{step}", tmp_path / run / "checkpoint-20")
        for run, step in (("a", 20), ("b", 100))
    ]
    prober = make_prober(tmp_path / "out")
    for copy in copies:
        prober.probe(Checkpoint(str(copy)))
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {"checkpoint-20_eval_results.json", "b--checkpoint-20_eval_results.json"}


def test_broken_checkpoint_is_a_row(training, tmp_path):
    broken = Path(shutil.copytree(training / "checkpoint-20", tmp_path / "checkpoint-50"))
    (broken / "model.safetensors").write_bytes(b"half a file")
    (broken / "trainer_state.json").unlink()
    prober = make_prober(tmp_path)
    prober.probe(Checkpoint(str(broken)))
    prober.probe(Checkpoint(str(training / "checkpoint-20")))
    summary = prober.save(tmp_path, 2, "complete")
    assert [row["status"] for row in summary["results"]] == ["ok", "failed"]
    assert summary["successful_evaluations"] == 1
    assert summary["results"][1]["error"]


def test_comparison_requires_the_same_items(training, tmp_path):
    prober = make_prober(tmp_path)
    for step in (20, 100):
        prober.probe(Checkpoint(str(training / f"checkpoint-{step}")))
    path = tmp_path / "checkpoint-20_eval_results.json"
    reference = read_reference(path, prober.records[0]["eval_set_hash"], "natural")
    same, other = (compare_records([record], reference) for record in prober.records)
    assert all(row["difference"] == 0 and row["mcnemar_p"] == 1 for row in same)
    assert {row["score"] for row in other} >= {"strict@1", "lenient@5"}
    with pytest.raises(DanseoError, match="other items"):
        read_reference(path, "another", "natural")
    with pytest.raises(DanseoError, match="not a result"):
        read_reference(tmp_path / "nothing.json", "another", "natural")


def test_probe_command(invoke, training, tmp_path, small):
    pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
    out = tmp_path / "out"
    broken = tmp_path / "checkpoint-1"
    shutil.copytree(training / "checkpoint-20", broken)
    (broken / "model.safetensors").write_bytes(b"x")
    (broken / "trainer_state.json").unlink()
    common = ("--items", small, "--output-dir", out, "--precision", "fp32", "--device", "cpu")
    first = invoke("probe", training, broken, *common, "--json")
    assert first.code == 3, first.err
    rows = first.json["summary"]["results"]
    assert [(row["step"], row["status"]) for row in rows] == [(1, "failed"), (20, "ok"), (100, "ok")]
    assert (out / "probe_curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "probe_summary.json").read_text())["status"] == "complete"
    reference = out / "checkpoint-20_eval_results.json"
    second = invoke("probe", training, *common, "--from-step", 50, "--reference", reference)
    assert second.code == 0
    assert "already probed" in second.err
    assert "Against" in second.out
    assert "exact@1" in second.out
    assert invoke("probe", tmp_path / "none", *common).complaint.startswith("danseo: ")
    assert "0.4,0.3,0.3" in invoke("probe", training, "--weights", "1,2").complaint


def test_data_probes_command(invoke, tmp_path):
    pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
    texts = [item.text for item in {item.text: item for item in read_bundled_items()}.values()]
    for name, part in (("a", texts[::2]), ("b", texts[1::2])):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(part), encoding="utf-8")
    result = invoke("data", "probes", "--text", "a.txt", "b.txt", "--out", "sets", "--limit", 10, "--json")
    assert result.code == 0, result.err
    assert result.json["sources"] == {"a": "a.txt", "b": "b.txt"}
    assert {split: found["items"] for split, found in result.json["sets"].items()} == {"dev": 10, "test": 10}
    (tmp_path / "empty.txt").write_text("\n")
    assert "no text" in invoke("data", "probes", "--text", "empty.txt", "--out", "sets").complaint


def test_watching_ends_with_ctrl_c(training, tmp_path, small):
    pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
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


def test_locked_folder_is_not_written(training, small, tmp_path):
    job = ProbeJob((str(training),), items=small, output=tmp_path / "out", device="cpu", precision="fp32", wait=False)
    with lock_folder(tmp_path / "out", inside=True), pytest.raises(WorkFailed, match="another process"):
        run_probe(job, quiet=True)
    assert not (tmp_path / "out").exists()
