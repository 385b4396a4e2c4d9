import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.errors import DanseoError
from danseo.exports.bundle import bundle_files, pack
from danseo.exports.format import Request
from danseo.exports.table import FORMATS, export
from danseo.exports.verify import verify_bundle
from danseo.runs.directory import Run
from danseo.runs.index import read_record


@pytest.fixture
def files(run):
    return bundle_files(read_record(Run(run)))


def written(folder: Path, files) -> Path:
    path = folder / "changed.zip"
    path.write_bytes(pack(files))
    return path


def test_a_bundle_is_verified_and_the_same_bytes_every_time(run, sample, tmp_path):
    paths = [tmp_path / "a.zip", tmp_path / "b.zip"]
    made = [export("bundle", Request(str(run), str(path))) for path in paths]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert made[0]["sha256"] == made[1]["sha256"]
    found = CliRunner().invoke(cli, ["score", "--bundle", str(paths[0]), "--data", str(sample), "--json"])
    document = json.loads(found.output)
    assert document["verified"]
    assert document["scores"] == json.loads((run / "scores.json").read_text())["scores"]


def test_a_changed_answer_shows(files, sample, tmp_path):
    changed = files["predictions/dev.jsonl"].replace(b'"answer"', b' "answer"', 1)
    path = written(tmp_path, {**files, "predictions/dev.jsonl": changed})
    with pytest.raises(DanseoError, match="hash differs"):
        verify_bundle(path, str(sample))


def test_a_better_number_than_the_predictions_have_shows(files, sample, tmp_path):
    import hashlib

    scores = json.loads(files["scores.json"])
    scores["scores"]["dev"][0]["value"] += 1
    content = json.dumps(scores).encode()
    manifest = json.loads(files["manifest.json"])
    manifest["files"]["scores.json"] = hashlib.sha256(content).hexdigest()
    path = written(tmp_path, {**files, "scores.json": content, "manifest.json": json.dumps(manifest).encode()})
    with pytest.raises(DanseoError, match="do not trust it"):
        verify_bundle(path, str(sample))


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


def test_what_is_no_zip_is_one_line(sample, tmp_path):
    (tmp_path / "no.zip").write_bytes(b"no zip")
    for name in ("no.zip", "absent.zip"):
        with pytest.raises(DanseoError, match=name):
            verify_bundle(tmp_path / name, str(sample))


def test_an_export_never_lands_in_the_run(run):
    with pytest.raises(DanseoError, match="lies in the run directory"):
        export("bundle", Request(str(run), str(run / "bundle.zip")))
    with pytest.raises(DanseoError, match=r"end its name in \.zip"):
        export("bundle", Request(str(run), str(run) + ".tar"))


def test_formats_are_listed_with_their_extra_and_documented(tmp_path):
    found = CliRunner().invoke(cli, ["export", "--json"])
    assert [row[0] for row in json.loads(found.output)["rows"]] == list(FORMATS)
    page = (Path(__file__).parents[2] / "docs" / "exports.md").read_text()
    assert all(f"| `{name}` |" in page for name in FORMATS)


def test_a_mistyped_format_and_a_foreign_option_are_named(run, tmp_path):
    with pytest.raises(DanseoError, match="did you mean 'bundle'"):
        export("bundel", Request(str(run)))
    with pytest.raises(DanseoError, match="--private is not an option"):
        export("bundle", Request(str(run), str(tmp_path / "a.zip"), options={"private": True}))
    assert not list(tmp_path.glob("*.zip"))


def test_the_zip_says_nothing_of_its_time(run, tmp_path):
    export("bundle", Request(str(run), str(tmp_path / "a.zip")))
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
