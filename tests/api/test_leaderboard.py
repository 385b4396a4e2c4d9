"""The leaderboard: bundles of two baselines, a forged one and hostile names."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from danseo.api.leaderboard import write_leaderboard
from danseo.cli import cli
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.export.base import ExportRequest
from danseo.export.bundle import collect_files, pack_zip
from danseo.export.registry import export_run
from danseo.models.registry import configure_run
from danseo.report.html import render_site
from danseo.report.leaderboard_page import make_leaderboard_pages
from danseo.runs.index import read_record
from danseo.runs.store import Run

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def bundles(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One bundle per baseline, each with two tasks."""
    folder, paths = tmp_path_factory.mktemp("leaderboard"), []
    for model in ("majority", "linear"):
        configs = [configure_run(task, model, "default", {}) for task in ("ynat", "nli")]
        runs = [run_experiment(config, sample, folder / "runs", quiet=True).path for config in configs]
        paths.append(folder / f"{model}.zip")
        export_run("bundle", ExportRequest(str(runs[0]), str(paths[-1]), None, {}, (str(runs[1]),)))
    return paths


@pytest.fixture
def files(bundles: list[Path]) -> dict[str, bytes]:
    """The files of a bundle of one task."""
    return collect_files(read_record(Run(next((bundles[0].parent / "runs").glob("ynat--majority*")))))


def rename_model(files: dict[str, bytes], model: str) -> bytes:
    """The bundle under another model, all hashes made to fit."""
    environment = json.loads(files["environment.json"])
    environment["model"] = {**(environment.get("model") or {}), "name": model}
    changed = {**files, "environment.json": json.dumps(environment).encode()}
    manifest = json.loads(files["manifest.json"]) | {"model": model}
    manifest["files"]["environment.json"] = hashlib.sha256(changed["environment.json"]).hexdigest()
    return pack_zip({**changed, "manifest.json": json.dumps(manifest).encode()})


def read_site(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_site_has_pages_in_both_languages_and_the_same_bytes_every_time(bundles, sample, tmp_path):
    first = write_leaderboard(bundles, tmp_path / "site", str(sample))
    assert first.exit_code == 0
    site = read_site(tmp_path / "site")
    write_leaderboard(bundles[::-1], tmp_path / "site", str(sample))
    assert read_site(tmp_path / "site") == site
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert {"index.html", "index.ko.html", "task-ynat.html", "task-nli.ko.html", "leaderboard.json"} < set(site)
    assert sum(name.startswith("system-") for name in site) == 4
    assert "리더보드" in site["index.ko.html"].decode()
    document = json.loads(site["leaderboard.json"])
    ranked = document["tasks"]["ynat"]
    assert [entry["system"] for entry in ranked] == ["linear", "majority"]
    assert [entry["group"] for entry in ranked] == ["a", "b"]
    for name, content in site.items():
        assert not re.search(rb'(src|href|action)="?(https?:)?//', content), name
        for link in re.findall(rb'<a href="([^"#]+)"', content):
            assert link.decode() in site, name


def test_a_failed_bundle_is_listed_and_the_others_are_ranked(bundles, files, sample, tmp_path):
    forged = json.loads(files["scores.json"])
    forged["scores"]["dev"][0]["value"] = 99.0
    broken = tmp_path / "bad.zip"
    broken.write_bytes(pack_zip({**files, "scores.json": json.dumps(forged).encode()}))
    slip = tmp_path / "slip.zip"
    slip.write_bytes(pack_zip({**files, "../../out.txt": b"x"}))
    out = tmp_path / "site"
    result = CliRunner().invoke(
        cli,
        [*map(str, ("leaderboard", *bundles, broken, slip, "--out", out, "--data", sample)), "--json"],
        standalone_mode=False,
    )
    assert result.return_value == 3
    failed = {each["bundle"]: each["reason"] for each in json.loads(result.stdout)["failed"]}
    assert set(failed) == {"bad.zip", "slip.zip"}
    page = (out / "index.html").read_text("utf-8")
    assert "bad.zip" in page
    assert "hash of scores.json" in page
    assert str(tmp_path) not in page
    assert not list(tmp_path.parent.rglob("out.txt"))


def test_names_of_bundles_are_escaped_and_never_leave_the_folder(bundles, files, sample, tmp_path):
    path = tmp_path / "hostile.zip"
    path.write_bytes(rename_model(files, f"../../{SCRIPT}"))
    assert not write_leaderboard([bundles[1], path], tmp_path / "site", str(sample)).failed
    pages = [content.decode() for name, content in read_site(tmp_path / "site").items() if name.endswith(".html")]
    assert any("&lt;script&gt;alert" in page for page in pages)
    assert not any(SCRIPT in page for page in pages)
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in read_site(tmp_path / "site"))


def test_without_gold_data_nothing_is_written(bundles, tmp_path):
    with pytest.raises(DanseoError, match="--data") as error:
        write_leaderboard(bundles, tmp_path / "site", str(tmp_path))
    assert error.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_other_folders_are_not_replaced(bundles, sample, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DanseoError, match="not a leaderboard"):
        write_leaderboard(bundles, tmp_path, str(sample))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_published_scores_stand_apart_and_only_beside_all_of_klue(bundles, sample, tmp_path):
    written = write_leaderboard(bundles, tmp_path / "site", str(sample))
    assert not any("ublished scores" in name for name in map(str, list_sections(written.results)))
    assert "Published scores" in list_sections([replace(result, is_klue=True) for result in written.results])


def list_sections(results) -> list[str]:
    pages, _nav = make_leaderboard_pages(results, {})
    assert render_site(pages, pages[:1])
    return [section.title for page in pages for section in page.sections]
