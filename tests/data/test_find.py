"""Finding, checking and copying the KLUE files."""

import gzip
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import danseo.data.find
from danseo.data.fetch import get
from danseo.data.find import FileReport, cache_root, check, data_root, find_file, load, require_file
from danseo.errors import DataError
from danseo.tasks import TASKS
from danseo.tasks.task import Task

NLI, STS, RE, WOS, YNAT = (TASKS[name] for name in ("nli", "sts", "re", "wos", "ynat"))


def nli_rows(count: int, guid: str = "klue-nli-v1_dev_{:05d}") -> list[dict[str, Any]]:
    rows = ({"premise": "비가 온다.", "hypothesis": f"{n}번", "gold_label": "neutral"} for n in range(count))
    return [{"guid": guid.format(n), "source": "NSMC", **row} for n, row in enumerate(rows)]


def write(path: Path, content: Any) -> Path:
    """Write JSON, text or bytes; a name in .gz is packed."""
    text = content if isinstance(content, str | bytes) else json.dumps(content, ensure_ascii=False)
    raw = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def quiet(line: str) -> None:
    """No progress is shown."""


def files_in(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


# Finding


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, and none of danseo's variables."""
    for name in ("DANSEO_DATA", "DANSEO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_cache_and_what_overrides_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_root() == home / ".cache" / "danseo"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/xdg")
    assert cache_root() == Path("/var/xdg/danseo")
    monkeypatch.setenv("DANSEO_CACHE", "/var/own")
    assert cache_root() == Path("/var/own")


def test_the_data_folder_is_the_option_else_the_variable_else_the_cache(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_root(None) == home / ".cache" / "danseo" / "klue"
    monkeypatch.setenv("DANSEO_DATA", "/var/klue")
    assert data_root(None) == Path("/var/klue")
    assert data_root("~/other") == home / "other"
    with pytest.raises(DataError, match="--data is empty"):
        data_root("")
    with pytest.raises(DataError, match="write the path in full"):
        data_root("~nobody-of-this-name/klue")


def test_the_sample_is_written_once_per_version(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def write_sample(folder: Path) -> list[Path]:
        calls.append(folder)
        return [write(folder / NLI.folder / NLI.file("dev"), nli_rows(2, "klue-nli-sample_dev_{:05d}"))]

    monkeypatch.setitem(sys.modules, "danseo.sample", SimpleNamespace(write_sample=write_sample))
    folder = home / ".cache" / "danseo" / "sample"
    assert [data_root("sample"), data_root("sample")] == [folder, folder]
    assert calls == [folder]
    assert check(folder, [NLI])[1].note == "built-in sample, not KLUE data"
    (folder / NLI.folder / NLI.file("dev")).unlink()
    data_root("sample")
    (folder / "hashes.json").write_text("{")
    data_root("sample")
    monkeypatch.setattr(danseo.data.find, "__version__", "99")
    data_root("sample")
    assert len(calls) == 4


def test_files_are_found_in_a_fixed_order(tmp_path: Path) -> None:
    names = [
        "nli/validation-00000-of-00001.parquet",
        "klue-nli-v1.1_dev.json.gz",
        "klue-nli-v1.1_dev.json",
        "klue-nli-v1.1/klue-nli-v1.1_dev.json.gz",
        "klue-nli-v1.1/klue-nli-v1.1_dev.json",
    ]
    assert find_file(NLI, "dev", tmp_path) is None
    for name in names:
        path = write(tmp_path / name, nli_rows(1))
        assert find_file(NLI, "dev", tmp_path) == path
        assert find_file(NLI, "train", tmp_path) is None


def test_plain_and_packed_files_load_alike(tmp_path: Path) -> None:
    write(tmp_path / "a" / NLI.file("dev"), nli_rows(2))
    write(tmp_path / "b" / f"{NLI.file('dev')}.gz", nli_rows(2))
    assert load(NLI, "dev", tmp_path / "a") == load(NLI, "dev", tmp_path / "b")


def test_a_missing_file_says_what_is_missing_where_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        require_file(NLI, "dev", tmp_path / "none")
    message = str(caught.value)
    for part in ("klue-nli-v1.1_dev.json", str(tmp_path / "none"), "no such folder", "`danseo data get`", "--data"):
        assert part in message


def test_a_path_that_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        find_file(NLI, "dev", tmp_path / ("x" * 300))


# Checking


def ontology(slots: Sequence[str]) -> dict[str, list[str]]:
    return {slot: [] for slot in slots}


def verdict_of(task: Task, root: Path, part: str = "dev") -> tuple[str, str]:
    """The verdict and the note on one file."""
    report = next(report for report in check(root, [task]) if report.part == part)
    return report.verdict, report.note


def with_rows(task: Task, count: int) -> Task:
    return replace(task, official_rows={"dev": count}, companions={})


def test_a_report_tells_all_there_is(tmp_path: Path) -> None:
    path = write(tmp_path / NLI.folder / f"{NLI.file('dev')}.gz", nli_rows(2))
    missing, report = check(tmp_path, [NLI])
    sha256 = danseo.data.find.content_sha256(path)
    assert report == FileReport("nli", "dev", path, 2, 3000, sha256, "subset", "2 of 3000 rows")
    assert (missing.verdict, missing.path, missing.rows, missing.sha256) == ("missing", None, None, None)
    assert "klue-nli-v1.1_train.json" in missing.note


def test_an_unreadable_file_is_damaged(tmp_path: Path) -> None:
    write(tmp_path / NLI.file("dev"), '[{"guid": "klue')
    verdict, note = verdict_of(NLI, tmp_path)
    assert verdict == "damaged"
    assert "not valid JSON" in note


def test_too_many_rows_are_damaged(tmp_path: Path) -> None:
    write(tmp_path / NLI.file("dev"), nli_rows(4))
    assert verdict_of(with_rows(NLI, 3), tmp_path) == ("damaged", "more rows than the official file (4, not 3)")


def test_all_rows_with_official_ids_are_official(tmp_path: Path) -> None:
    write(tmp_path / NLI.file("dev"), nli_rows(3))
    assert verdict_of(with_rows(NLI, 3), tmp_path) == ("official", "by rows and ids; no hash on record")


@pytest.mark.parametrize("guid", ["mine_{}", "klue-nli-v1_train_{:05d}", "klue-nli-v1_dev_{:06d}"])
def test_all_rows_with_other_ids_are_not_official(guid: str, tmp_path: Path) -> None:
    write(tmp_path / NLI.file("dev"), nli_rows(3, guid))
    assert verdict_of(with_rows(NLI, 3), tmp_path) == ("subset", "all rows; the ids are not the official ones")


def test_official_ids_of_dialogues_and_tsv_files(tmp_path: Path) -> None:
    turn = {"role": "user", "text": "안녕", "state": []}
    write(tmp_path / WOS.file("dev"), [{"guid": "wos-v1_dev_00000", "domains": ["숙소"], "dialogue": [turn]}])
    write(tmp_path / TASKS["ner"].file("dev"), "## klue-ner-v1_dev_00000-nsmc\t가\n가\tO\n\n")
    write(tmp_path / TASKS["dp"].file("dev"), "## klue-dp-v1_dev_00000_airbnb\t가\n1\t가\t가\tNNG\t0\tNP\n\n")
    for task in (WOS, TASKS["ner"], TASKS["dp"]):
        assert verdict_of(with_rows(task, 1), tmp_path)[0] == "official"


def sts_row(**more: Any) -> dict[str, Any]:
    labels = {"label": 4.3, "real-label": 4.25, "binary-label": 1}
    return {"guid": "klue-sts-v1_dev_00000", "sentence1": "가", "sentence2": "나", "labels": labels, **more}


def test_sts_without_votes_is_not_the_official_file(tmp_path: Path) -> None:
    write(tmp_path / STS.file("dev"), [sts_row()])
    assert verdict_of(with_rows(STS, 1), tmp_path) == ("subset", "all rows; field annotations is absent")
    write(tmp_path / STS.file("dev"), [sts_row(annotations={})])
    assert verdict_of(with_rows(STS, 1), tmp_path)[0] == "official"


def test_ynat_without_its_other_fields_is_not_the_official_file(tmp_path: Path) -> None:
    write(tmp_path / YNAT.file("dev"), [{"guid": "ynat-v1_dev_00000", "title": "제목", "label": "정치", "url": ""}])
    note = "all rows; field predefined_news_category, annotations, date is absent"
    assert verdict_of(with_rows(YNAT, 1), tmp_path) == ("subset", note)


def test_a_known_hash_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / f"{NLI.file('dev')}.gz", nli_rows(3, "mine_{}"))
    monkeypatch.setitem(danseo.data.find.OFFICIAL_SHA256, NLI.file("dev"), danseo.data.find.content_sha256(path))
    assert verdict_of(with_rows(NLI, 9), tmp_path) == ("official", "by hash")
    write(path, nli_rows(3))
    assert verdict_of(with_rows(NLI, 3), tmp_path) == ("damaged", "right number of rows but not the official content")
    assert verdict_of(with_rows(NLI, 9), tmp_path) == ("subset", "3 of 9 rows")


def test_a_file_that_changed_since_it_was_fetched_is_damaged(tmp_path: Path) -> None:
    write(tmp_path / "from" / NLI.file("dev"), nli_rows(3))
    (path,) = get([NLI], str(tmp_path / "from"), tmp_path / "to", quiet)
    assert verdict_of(NLI, tmp_path / "to")[0] == "subset"
    write(path, nli_rows(2))
    verdict, note = verdict_of(NLI, tmp_path / "to")
    assert verdict == "damaged"
    assert note.startswith("changed since `danseo data get`")


@pytest.mark.parametrize("content", ["{", "[]", '{"files": {"a": 1}}', '{"files": []}', "{}"])
def test_a_damaged_record_says_what_to_do(content: str, tmp_path: Path) -> None:
    write(tmp_path / "hashes.json", content)
    with pytest.raises(DataError, match=r"hashes\.json is damaged; remove it"):
        check(tmp_path, [NLI])


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [(RE, "relation_list.json", {"relations": list(RE.labels)}), (WOS, "ontology.json", ontology(WOS.labels))],
    ids=["re", "wos"],
)
def test_companion_files(task: Task, name: str, content: dict[str, Any], tmp_path: Path) -> None:
    assert verdict_of(task, tmp_path, name)[0] == "missing"
    path = write(tmp_path / task.folder / name, content)
    assert verdict_of(task, tmp_path, name) == ("subset", "all entries, but not the official file")
    write(path, {"relations": list(RE.labels[1:])} if task is RE else ontology(WOS.labels[1:]))
    verdict, note = verdict_of(task, tmp_path, name)
    assert verdict == "damaged"
    assert f"not the {len(task.labels)} entries" in note
    write(path, "[1]")
    assert verdict_of(task, tmp_path, name)[0] == "damaged"


# Copying from a folder


def test_a_folder_is_copied_once_into_the_official_layout(tmp_path: Path) -> None:
    source, root = tmp_path / "from", tmp_path / "to"
    write(source / f"{NLI.file('train')}.gz", nli_rows(2, "klue-nli-v1_train_{:05d}"))
    write(source / NLI.folder / NLI.file("dev"), nli_rows(3))
    write(source / RE.folder / RE.file("dev"), [RE_ROW])
    write(source / RE.folder / "relation_list.json", {"relations": list(RE.labels)})
    lines: list[str] = []
    paths = get([NLI, RE], str(source), root, lines.append)
    names = [f"{NLI.folder}/{NLI.file(split)}" for split in ("train", "dev")]
    names += [f"{RE.folder}/{RE.file('dev')}", f"{RE.folder}/relation_list.json"]
    assert [path.relative_to(root).as_posix() for path in paths] == names
    assert files_in(root) == sorted([*names, "hashes.json"])
    assert lines[0] == f"1/4 {names[0]}: copied, 2 rows"
    assert load(NLI, "train", root) == load(NLI, "train", source)
    entries = json.loads((root / "hashes.json").read_text())["files"]
    assert entries[names[0]]["rows"] == 2
    assert entries[names[0]]["source"] == str(source / f"{NLI.file('train')}.gz")

    before = {path: path.stat().st_mtime_ns for path in paths}
    assert get([NLI, RE], str(source), root, lines.append) == []
    assert lines[-1] == f"4/4 {RE.folder}/relation_list.json: already there, 30 rows"
    assert {path: path.stat().st_mtime_ns for path in paths} == before


RE_ROW = {
    "guid": "klue-re-v1_dev_00000",
    "sentence": "가온전자는 서울에 있다.",
    "subject_entity": {"word": "가온전자", "start_idx": 0, "end_idx": 3, "type": "ORG"},
    "object_entity": {"word": "서울", "start_idx": 6, "end_idx": 7, "type": "LOC"},
    "label": "org:place_of_headquarters",
}


def spoil_dev(source: Path) -> None:
    write(source / NLI.file("dev"), '[{"guid": ')


def spoil_labels(source: Path) -> None:
    write(source / RE.file("dev"), [{**RE_ROW, "label": "per:friend"}])


def spoil_relations(source: Path) -> None:
    write(source / "relation_list.json", {"relations": ["no_relation"]})


@pytest.mark.parametrize("spoil", [spoil_dev, spoil_labels, spoil_relations])
def test_a_damaged_source_is_refused_before_anything_is_written(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    source, root = tmp_path / "from", tmp_path / "to"
    write(source / NLI.file("train"), nli_rows(2))
    write(source / RE.file("train"), [RE_ROW])
    spoil(source)
    with pytest.raises(DataError, match=str(source)):
        get([NLI, RE], str(source), root, quiet)
    assert not root.exists()


def test_a_source_without_the_task_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "from" / NLI.file("dev"), nli_rows(2))
    with pytest.raises(DataError, match=r"nothing for sts: looked for klue-sts-v1\.1_train\.json or .*_dev\.json"):
        get([NLI, STS], str(tmp_path / "from"), tmp_path / "to", quiet)
    with pytest.raises(DataError, match="is no folder"):
        get([NLI], str(tmp_path / "none"), tmp_path / "to", quiet)
    assert not (tmp_path / "to").exists()


def test_a_changed_source_replaces_what_was_fetched_but_never_the_users_own(tmp_path: Path) -> None:
    source, root, own = tmp_path / "from", tmp_path / "to", tmp_path / "own"
    write(source / NLI.file("dev"), nli_rows(2))
    write(own / NLI.folder / f"{NLI.file('dev')}.gz", nli_rows(5))
    get([NLI], str(source), root, quiet)
    write(source / NLI.file("dev"), nli_rows(3))
    assert len(get([NLI], str(source), root, quiet)) == 1
    assert len(load(NLI, "dev", root)) == 3
    with pytest.raises(DataError, match="already there with other content; move it away"):
        get([NLI], str(source), own, quiet)
    assert len(load(NLI, "dev", own)) == 5


def test_a_folder_may_be_its_own_source(tmp_path: Path) -> None:
    write(tmp_path / NLI.folder / f"{NLI.file('dev')}.gz", nli_rows(2))
    assert get([NLI], str(tmp_path), tmp_path, quiet) == []
    assert files_in(tmp_path) == ["hashes.json", f"{NLI.folder}/{NLI.file('dev')}.gz"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path / "from" / NLI.file("dev"), nli_rows(2))
    write(tmp_path / "file", "no folder")
    with pytest.raises(DataError, match="cannot be written"):
        get([NLI], str(tmp_path / "from"), tmp_path / "file", quiet)


# The real files

REAL_ROWS = {
    "ynat": (36547, 7286),
    "sts": (11668, 416),
    "nli": (24998, 2400),
    "ner": (5000, 4000),
    "re": (32470, 6212),
    "dp": (1000, 800),
    "mrc": (4417, 1090),
    "wos": (527, 168),
}


def test_the_real_files_have_the_rows_of_their_table(real_data: Path) -> None:
    reports = check(real_data, TASKS.values())
    rows = {name: tuple(report.rows for report in reports if report.task == name)[:2] for name in REAL_ROWS}
    assert rows == REAL_ROWS
    whole = {report.part if "." in report.part else report.task for report in reports if report.verdict == "official"}
    assert whole == {"nli", "re", "relation_list.json", "ontology.json"}
    assert {report.verdict for report in reports} == {"official", "subset"}
    notes = {(report.task, report.part): report.note for report in reports}
    assert notes["sts", "train"] == "all rows; field annotations is absent"
    assert notes["ner", "dev"] == "4000 of 5000 rows"
