import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.export.base import ExportRequest
from danseo.export.bundle import collect_files, pack_zip, verify_bundle
from danseo.export.registry import FORMATS, export_run
from danseo.models.registry import configure_run
from danseo.runs.index import read_record
from danseo.runs.store import Run


@pytest.fixture
def files(run):
    return collect_files(read_record(Run(run)))


def written(folder: Path, files) -> Path:
    path = folder / "changed.zip"
    path.write_bytes(pack_zip(files))
    return path


def test_a_bundle_is_verified_and_the_same_bytes_every_time(run, sample, tmp_path):
    paths = [tmp_path / "a.zip", tmp_path / "b.zip"]
    made = [export_run("bundle", ExportRequest(str(run), str(path))) for path in paths]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert made[0]["sha256"] == made[1]["sha256"]
    found = CliRunner().invoke(cli, ["score", "--bundle", str(paths[0]), "--data", str(sample), "--json"])
    document = json.loads(found.output)
    assert document["verified"]
    assert document["scores"] == json.loads((run / "scores.json").read_text())["scores"]


def forge(files, change_scores=lambda scores: None, change_manifest=lambda manifest: None):
    """The bundle with other scores or another manifest, all hashes made to fit."""
    scores, manifest = json.loads(files["scores.json"]), json.loads(files["manifest.json"])
    change_scores(scores)
    content = json.dumps(scores).encode()
    manifest["files"]["scores.json"] = hashlib.sha256(content).hexdigest()
    change_manifest(manifest)
    return {**files, "scores.json": content, "manifest.json": json.dumps(manifest).encode()}


def assert_refused(path: Path, sample: Path, word: str = "") -> None:
    """The command ends with one short line and exit code 2."""
    command = [sys.executable, "-m", "danseo", "score", "--bundle", str(path), "--data", str(sample), "--json"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (2, ""), found.stderr
    assert found.stderr.count("\n") == 1
    assert word in found.stderr
    assert len(found.stderr.replace(str(path), "")) < 220


def test_a_forged_bundle_is_refused_by_the_command(files, sample, tmp_path):
    forged = forge(files, lambda scores: scores.update(scores={}), lambda manifest: manifest.update(headline=None))
    assert_refused(written(tmp_path, forged), sample, "scores")


SCORES = {
    "a better number": lambda scores: scores["scores"]["dev"][0].update(value=99.0),
    "no number": lambda scores: scores["scores"]["dev"][0].update(value=None),
    "NaN": lambda scores: scores["scores"]["dev"][0].update(value=float("nan")),
    "a huge number": lambda scores: scores["scores"]["dev"][0].update(value=10**400),
    "a text": lambda scores: scores["scores"]["dev"][0].update(value="99"),
    "a narrower interval": lambda scores: scores["scores"]["report"][0].update(interval=[50.0, 50.1]),
    "no interval": lambda scores: scores["scores"]["report"][0].update(interval=None),
    "an interval of one end": lambda scores: scores["scores"]["report"][0].update(interval=[1.0]),
    "more examples": lambda scores: scores["scores"]["dev"][0].update(n=10_000),
    "a note": lambda scores: scores["scores"]["dev"][0].update(note="official"),
    "another metric's name": lambda scores: scores["scores"]["dev"][0].update(id="ynat/accuracy@best-1"),
    "no scores": lambda scores: scores.update(scores={}),
    "empty splits": lambda scores: scores.update(scores={"report": [], "dev": []}),
    "one split": lambda scores: scores["scores"].pop("report"),
    "a split of its own": lambda scores: scores["scores"].update(test=scores["scores"]["dev"]),
    "a metric left out": lambda scores: scores["scores"]["dev"].pop(),
    "a metric twice": lambda scores: scores["scores"]["dev"].append(scores["scores"]["dev"][0]),
    "another headline": lambda scores: scores.update(headline=scores["scores"]["dev"][-1]["id"]),
    "the other split": lambda scores: scores.update(reported_on="dev"),
    "another selection": lambda scores: scores.update(selected_on="dev", reported_on="dev"),
    "lower baselines": lambda scores: scores["baselines"]["dev"]["majority"].update({"ynat/macro_f1@official-1": 0.0}),
    "a list": lambda scores: scores.update(scores=[]),
}


@pytest.mark.parametrize("change", SCORES.values(), ids=SCORES)
def test_forged_scores_are_refused_even_if_the_manifest_agrees(files, sample, tmp_path, change):
    def agree(manifest):
        scores = json.loads(files["scores.json"])
        change(scores)
        manifest |= {key: scores[key] for key in ("reported_on", "selected_on")}
        if isinstance(scores["scores"], dict):
            listed = scores["scores"].get(scores["reported_on"]) or scores["scores"].get("dev", [])
            manifest["headline"] = next((s for s in listed if s.get("id") == scores["headline"]), None)

    with pytest.raises(DanseoError, match="scores"):
        verify_bundle(written(tmp_path, forge(files, change, agree)), str(sample))


MANIFEST = {
    "a headline": lambda manifest: manifest["headline"].update(value=99.0),
    "an interval": lambda manifest: manifest["headline"].update(interval=[98.0, 99.0]),
    "n": lambda manifest: manifest["headline"].update(n=9),
    "no headline": lambda manifest: manifest.update(headline=None),
    "the name of a run": lambda manifest: manifest.update(run="ynat--best-model--s1--00000000"),
    "a model": lambda manifest: manifest.update(model="best-model"),
    "a seed": lambda manifest: manifest.update(seed=7),
    "the reported split": lambda manifest: manifest.update(reported_on="dev"),
    "the selection": lambda manifest: manifest.update(selected_on="dev"),
    "a task": lambda manifest: manifest.update(task="nli"),
    "the dev file": lambda manifest: manifest.update(dev_sha256="0" * 64),
    "a key of its own": lambda manifest: manifest.update(verified=True),
    "a key left out": lambda manifest: manifest.pop("reported_on"),
    "no list of files": lambda manifest: manifest.update(files=[]),
    "another file": lambda manifest: manifest["files"].update({"model.bin": "0"}),
}


@pytest.mark.parametrize("change", MANIFEST.values(), ids=MANIFEST)
def test_a_forged_manifest_is_refused(files, sample, tmp_path, change):
    with pytest.raises(DanseoError, match="manifest"):
        verify_bundle(written(tmp_path, forge(files, change_manifest=change)), str(sample))


@pytest.mark.parametrize("name", ["manifest.json", "scores.json", "environment.json", "config.toml"])
@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"[]", b"{}", b"[" * 100_000, b"null", b"a = 1", b" ", b'{"a": 1, "a": 1}', b"task = 'a\\u0000'"],
)
def test_a_file_of_another_form_is_one_line(files, sample, tmp_path, name, content):
    def agree(manifest):
        manifest["files"][name] = hashlib.sha256(content).hexdigest()

    changed = forge(files) if name == "manifest.json" else forge(files, change_manifest=agree)
    with pytest.raises(DanseoError) as caught:
        verify_bundle(written(tmp_path, {**changed, name: content}), str(sample))
    assert "\n" not in str(caught.value)
    assert tempfile.gettempdir() + "/tmp" not in str(caught.value)


def test_every_printed_value_is_the_computed_one(run, sample, tmp_path):
    export_run("bundle", ExportRequest(str(run), str(tmp_path / "a.zip")))
    document = verify_bundle(tmp_path / "a.zip", str(sample)).as_dict()
    scores = json.loads((run / "scores.json").read_text())
    assert document["headline"] in document["scores"][document["reported_on"]]
    assert document["headline"]["id"] == scores["headline"]
    assert document["stated"] == {"model": "linear", "seed": 42, "selected_on": "select"}


# Sizes


def repack(path: Path, files, method=zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_a_padded_bundle_is_refused_before_it_is_unpacked(files, sample, tmp_path):
    blanks = b" " * (48 << 20)
    large = repack(tmp_path / "a.zip", {**files, "scores.json": files["scores.json"] + blanks})
    lines = repack(tmp_path / "b.zip", {**files, "predictions/dev.jsonl": b"\n" * (48 << 20)})
    both = repack(tmp_path / "c.zip", {**files, "predictions/dev.jsonl": blanks * 2})
    tracemalloc.start()
    for path in (large, lines, both):
        assert path.stat().st_size < 1 << 18
        with pytest.raises(DanseoError, match=r"times its size|too large"):
            verify_bundle(path, str(sample))
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_more_lines_than_examples_are_refused(files, sample, tmp_path):
    content = files["predictions/dev.jsonl"] + b"\n" * 1000

    def agree(manifest):
        manifest["files"]["predictions/dev.jsonl"] = hashlib.sha256(content).hexdigest()

    forged = {**forge(files, change_manifest=agree), "predictions/dev.jsonl": content}
    with pytest.raises(DanseoError, match="lines for"):
        verify_bundle(written(tmp_path, forged), str(sample))


def test_a_size_that_the_zip_does_not_admit_is_not_unpacked(files, sample, tmp_path):
    content = repack(tmp_path / "a.zip", {**files, "scores.json": b" " * (32 << 20)}).read_bytes()
    lied = content.replace(struct.pack("<L", 32 << 20), struct.pack("<L", 100))
    (tmp_path / "b.zip").write_bytes(lied)
    tracemalloc.start()
    with pytest.raises(DanseoError, match="readable zip"):
        verify_bundle(tmp_path / "b.zip", str(sample))
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_many_entries_are_refused_before_they_are_listed(sample, tmp_path):
    content = repack(tmp_path / "a.zip", {f"{number}": b"" for number in range(10_000)}).read_bytes()
    with pytest.raises(DanseoError, match="list of files"):
        verify_bundle(tmp_path / "a.zip", str(sample))
    (tmp_path / "b.zip").write_bytes(content + b" ")
    with pytest.raises(DanseoError, match="end is missing"):
        verify_bundle(tmp_path / "b.zip", str(sample))


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_ways_of_packing_are_refused(files, sample, tmp_path, method):
    with pytest.raises(DanseoError, match="deflate"):
        verify_bundle(repack(tmp_path / "a.zip", files, method), str(sample))


def test_a_corrupted_bundle_is_one_line(files, sample, tmp_path):
    content = pack_zip(files)
    rng = random.Random(0)
    for _ in range(400):
        changed = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        if rng.random() < 0.2:
            del changed[rng.randrange(len(changed)) :]
        (tmp_path / "a.zip").write_bytes(changed)
        with suppress(DanseoError):
            verify_bundle(tmp_path / "a.zip", str(sample))


def test_bytes_that_do_not_unpack_are_one_line(files, sample, tmp_path):
    path = written(tmp_path, files)
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("predictions/dev.jsonl")
    content = bytearray(path.read_bytes())
    start = entry.header_offset + 30 + len(entry.filename)
    content[start : start + 20] = b"\xff" * 20
    path.write_bytes(content)
    assert_refused(path, sample, "readable zip")


def test_a_pipe_a_folder_and_a_long_name_are_one_line(sample, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "no.zip").write_bytes(b"no zip")
    names = ("pipe", "", "no.zip", "absent.zip", "a" * 3000)
    for path in (*(tmp_path / name for name in names), Path("/dev/zero")):
        with pytest.raises(DanseoError):
            verify_bundle(path, str(sample))


# Other runs


def test_bundles_of_own_tasks_ensembles_and_folds_are_verified(run, sample, tmp_path):
    rows = [f"{number}번째 글이 {word}\t{word}" for number in range(60) for word in ("좋다", "싫다")]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n", "utf-8")
    (tmp_path / "mine.toml").write_text(
        'type = "classification"\ntrain = "train.tsv"\ndev = 0.5\ntext = "text"\nlabel = "label"\n'
    )
    own = configure_run(str(tmp_path / "mine.toml"), "linear", "default", {})
    fold = configure_run("ynat", "majority", "default", {"n_folds": 3, "fold": 1})
    made = [run_experiment(config, sample, tmp_path / "runs", quiet=True).path for config in (own, fold)]
    majority = run_experiment(
        configure_run("ynat", "majority", "default", {}), sample, tmp_path / "runs", quiet=True
    ).path
    found = CliRunner().invoke(
        cli, ["ensemble", str(run), str(majority), "--data", str(sample), "--runs", str(tmp_path / "runs"), "--json"]
    )
    assert found.exit_code == 0, found.output
    made += [path for path in (tmp_path / "runs").iterdir() if "ensemble" in path.name]
    assert len(made) == 3
    for number, path in enumerate(made):
        export_run("bundle", ExportRequest(str(path), str(tmp_path / f"{number}.zip")))
        data = tmp_path if number == 0 else sample
        assert verify_bundle(tmp_path / f"{number}.zip", str(data)).as_dict()["verified"]


def test_other_data_than_was_answered_is_refused(files, sample, tmp_path):
    other = tmp_path / "data"
    gold = next(sample.rglob("ynat*dev*"))
    target = other / gold.relative_to(sample)
    target.parent.mkdir(parents=True)
    target.write_text(gold.read_text().replace("guid", "guid ", 0) + "\n")
    with pytest.raises(DanseoError, match="not the dev file"):
        verify_bundle(written(tmp_path, files), str(other))


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "extra.txt"])
def test_a_bundle_holds_nothing_else(files, sample, tmp_path, name):
    with pytest.raises(DanseoError, match="and nothing else"):
        verify_bundle(written(tmp_path, {**files, name: b"x"}), str(sample))


def test_an_export_never_lands_in_the_run(run):
    with pytest.raises(DanseoError, match="run directory"):
        export_run("bundle", ExportRequest(str(run), str(run / "bundle.zip")))
    with pytest.raises(DanseoError, match=r"\.zip"):
        export_run("bundle", ExportRequest(str(run), str(run) + ".tar"))


def test_formats_are_listed_with_their_extra_and_documented(tmp_path):
    found = CliRunner().invoke(cli, ["export", "--json"])
    assert [row[0] for row in json.loads(found.output)["rows"]] == list(FORMATS)
    page = (Path(__file__).parents[2] / "docs" / "guides" / "export.md").read_text()
    assert all(f"`{name}`" in page for name in FORMATS)


def test_a_mistyped_format_and_a_foreign_option_are_named(run, tmp_path):
    with pytest.raises(DanseoError, match="did you mean 'bundle'"):
        export_run("bundel", ExportRequest(str(run)))
    with pytest.raises(DanseoError, match="--private is not an option"):
        export_run("bundle", ExportRequest(str(run), str(tmp_path / "a.zip"), options={"private": True}))
    assert not list(tmp_path.glob("*.zip"))
