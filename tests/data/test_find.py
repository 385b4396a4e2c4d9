"""Finding, checking and copying the KLUE files."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from danseo.data.download import get_files
from danseo.data.find import OFFICIAL_SHA256, cache_root, check_files, data_root, find_file, load, require_file
from danseo.errors import DataError
from danseo.files import content_sha256
from danseo.tasks import TASKS

NLI, STS, RE, WOS, YNAT = (TASKS[name] for name in ("nli", "sts", "re", "wos", "ynat"))
DEV = NLI.file("dev")


def nli_rows(count, guid="klue-nli-v1_dev_{:05d}"):
    row = {"source": "NSMC", "premise": "비가 온다.", "gold_label": "neutral"}
    return [{"guid": guid.format(n), "hypothesis": f"{n}번", **row} for n in range(count)]


def write(path, content):
    """Write JSON, or text unchanged; a name in .gz is packed."""
    raw = (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def copy(source, root, *tasks):
    return get_files(tasks or [NLI], str(source), root, lambda line: None)


def files_in(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


# Finding


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("DANSEO_DATA", "DANSEO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_cache_and_data_folder(home, monkeypatch):
    assert cache_root() == home / ".cache" / "danseo"
    assert data_root(None) == home / ".cache" / "danseo" / "klue"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/xdg")
    assert cache_root() == Path("/var/xdg/danseo")
    monkeypatch.setenv("DANSEO_CACHE", "/var/own")
    assert cache_root() == Path("/var/own")
    monkeypatch.setenv("DANSEO_DATA", "/var/klue")
    assert data_root(None) == Path("/var/klue")
    assert data_root("~/other") == home / "other"
    for option, message in {"": "--data is empty", "~no-user-of-this-name/klue": "write the path in full"}.items():
        with pytest.raises(DataError, match=message):
            data_root(option)


def test_files_are_found_in_a_fixed_order(tmp_path):
    assert find_file(NLI, "dev", tmp_path) is None
    names = ("nli/validation-00000-of-00001.parquet", f"{DEV}.gz", DEV, f"{NLI.folder}/{DEV}.gz", f"{NLI.folder}/{DEV}")
    for name in names:
        path = write(tmp_path / name, nli_rows(1))
        assert find_file(NLI, "dev", tmp_path) == path
        assert find_file(NLI, "train", tmp_path) is None


def test_missing_files_and_impossible_paths(tmp_path):
    with pytest.raises(DataError) as caught:
        require_file(NLI, "dev", tmp_path / "none")
    for part in (DEV, str(tmp_path / "none"), "no such folder", "`danseo data get`", "--data"):
        assert part in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        find_file(NLI, "dev", tmp_path / ("x" * 300))


# Checking


def check_part(task, root, part="dev", rows=None):
    """Return the verdict and the note on one file; `rows` are the official ones."""
    task = task if rows is None else replace(task, official_rows={"dev": rows}, companions={})
    report = next(report for report in check_files(root, [task]) if report.part == part)
    return report.verdict, report.note


STS_ROW = {"guid": "klue-sts-v1_dev_00000", "sentence1": "가", "sentence2": "나", "labels": {"real-label": 4.25}}
YNAT_ROW = {"guid": "ynat-v1_dev_00000", "title": "제목", "label": "정치", "url": ""}
WOS_TURN = {"role": "user", "text": "안녕", "state": []}


@pytest.mark.parametrize(
    ("task", "content", "rows", "verdict", "note"),
    [
        ("nli", '[{"guid": "klue', 3, "corrupted", "not valid JSON"),
        ("nli", nli_rows(4), 3, "corrupted", "more rows than the official file (4, not 3)"),
        ("nli", nli_rows(3), 3, "official", "by rows and ids"),
        ("nli", nli_rows(3, "mine_{}"), 3, "subset", "the ids are not the official ones"),
        ("nli", nli_rows(3, "klue-nli-v1_train_{:05d}"), 3, "subset", "the ids are not the official ones"),
        ("nli", nli_rows(3, "klue-nli-v1_dev_{:06d}"), 3, "subset", "the ids are not the official ones"),
        ("wos", [{"guid": "wos-v1_dev_00000", "domains": ["숙소"], "dialogue": [WOS_TURN]}], 1, "official", ""),
        ("ner", "## klue-ner-v1_dev_00000-nsmc\t가\n가\tO\n\n", 1, "official", ""),
        ("dp", "## klue-dp-v1_dev_00000_airbnb\t가\n1\t가\t가\tNNG\t0\tNP\n\n", 1, "official", ""),
        ("sts", [STS_ROW], 1, "subset", "field annotations is absent"),
        ("sts", [{**STS_ROW, "annotations": {}}], 1, "official", ""),
        ("ynat", [YNAT_ROW], 1, "subset", "field predefined_news_category, annotations, date is absent"),
    ],
)
def test_verdicts(task, content, rows, verdict, note, tmp_path):
    write(tmp_path / TASKS[task].file("dev"), content)
    result = check_part(TASKS[task], tmp_path, rows=rows)
    assert result[0] == verdict
    assert note in result[1]


def test_known_hash_decides(tmp_path, monkeypatch):
    path = write(tmp_path / f"{DEV}.gz", nli_rows(3, "mine_{}"))
    monkeypatch.setitem(OFFICIAL_SHA256, DEV, content_sha256(path))
    assert check_part(NLI, tmp_path, rows=9) == ("official", "by hash")
    write(path, nli_rows(3))
    assert check_part(NLI, tmp_path, rows=3)[0] == "corrupted"
    assert check_part(NLI, tmp_path, rows=9) == ("subset", "3 of 9 rows")


def test_file_that_changed_since_it_was_copied_is_corrupted(tmp_path):
    write(tmp_path / "from" / DEV, nli_rows(3))
    (path,) = copy(tmp_path / "from", tmp_path / "to")
    assert check_part(NLI, tmp_path / "to")[0] == "subset"
    write(path, nli_rows(2))
    verdict, note = check_part(NLI, tmp_path / "to")
    assert verdict == "corrupted"
    assert "changed since" in note


@pytest.mark.parametrize("content", ["{", "[]", '{"files": {"a": 1}}', '{"files": []}', "{}"])
def test_corrupted_manifest(content, tmp_path):
    write(tmp_path / "hashes.json", content)
    with pytest.raises(DataError, match=r"hashes\.json is corrupted; remove it"):
        check_files(tmp_path, [NLI])


@pytest.mark.parametrize(
    ("task", "name", "make"),
    [
        (RE, "relation_list.json", lambda labels: {"relations": list(labels)}),
        (WOS, "ontology.json", lambda labels: {label: [] for label in labels}),
    ],
    ids=["re", "wos"],
)
def test_companion_files(task, name, make, tmp_path):
    assert check_part(task, tmp_path, name)[0] == "missing"
    path = write(tmp_path / task.folder / name, make(task.labels))
    assert check_part(task, tmp_path, name)[0] == "subset"
    for content in (make(task.labels[1:]), "[1]"):
        write(path, content)
        assert check_part(task, tmp_path, name)[0] == "corrupted"


# Copying from a folder

RE_ROW = {
    "guid": "klue-re-v1_dev_00000",
    "sentence": "가온전자는 서울에 있다.",
    "subject_entity": {"word": "가온전자", "start_idx": 0, "end_idx": 3, "type": "ORG"},
    "object_entity": {"word": "서울", "start_idx": 6, "end_idx": 7, "type": "LOC"},
    "label": "org:place_of_headquarters",
}


def test_folder_is_copied_once_into_the_official_layout(tmp_path):
    source, root = tmp_path / "from", tmp_path / "to"
    write(source / f"{NLI.file('train')}.gz", nli_rows(2, "klue-nli-v1_train_{:05d}"))
    write(source / NLI.folder / DEV, nli_rows(3))
    write(source / RE.folder / RE.file("dev"), [RE_ROW])
    write(source / RE.folder / "relation_list.json", {"relations": list(RE.labels)})
    lines = []
    paths = get_files([NLI, RE], str(source), root, lines.append)
    names = [f"{NLI.folder}/{NLI.file(split)}" for split in ("train", "dev")]
    names += [f"{RE.folder}/{RE.file('dev')}", f"{RE.folder}/relation_list.json"]
    assert [path.relative_to(root).as_posix() for path in paths] == names
    assert files_in(root) == sorted([*names, "hashes.json"])
    assert lines[0] == f"1/4 {names[0]}: copied, 2 rows"
    assert load(NLI, "train", root) == load(NLI, "train", source)
    entry = json.loads((root / "hashes.json").read_text())["files"][names[0]]
    assert (entry["rows"], entry["source"]) == (2, str(source / f"{NLI.file('train')}.gz"))

    times = {path: path.stat().st_mtime_ns for path in paths}
    assert get_files([NLI, RE], str(source), root, lines.append) == []
    assert lines[-1] == f"4/4 {RE.folder}/relation_list.json: already there, 30 rows"
    assert {path: path.stat().st_mtime_ns for path in paths} == times


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (DEV, '[{"guid": '),
        (RE.file("dev"), [{**RE_ROW, "label": "per:friend"}]),
        ("relation_list.json", {"relations": ["no_relation"]}),
    ],
)
def test_corrupted_source_is_refused_before_any_file_is_written(name, content, tmp_path):
    source = tmp_path / "from"
    write(source / NLI.file("train"), nli_rows(2))
    write(source / RE.file("train"), [RE_ROW])
    write(source / name, content)
    with pytest.raises(DataError, match=str(source)):
        copy(source, tmp_path / "to", NLI, RE)
    assert not (tmp_path / "to").exists()


def test_sources_without_the_task_and_targets_that_are_no_folder(tmp_path):
    write(tmp_path / "from" / DEV, nli_rows(2))
    with pytest.raises(DataError, match=r"nothing for sts: looked for klue-sts-v1\.1_train\.json or .*_dev\.json"):
        copy(tmp_path / "from", tmp_path / "to", NLI, STS)
    with pytest.raises(DataError, match="is no folder"):
        copy(tmp_path / "none", tmp_path / "to")
    assert not (tmp_path / "to").exists()
    with pytest.raises(DataError, match="cannot be written"):
        copy(tmp_path / "from", write(tmp_path / "file", "no folder"))


def test_changed_source_replaces_copied_files_but_never_those_of_the_user(tmp_path):
    source, root, own = tmp_path / "from", tmp_path / "to", tmp_path / "own"
    write(source / DEV, nli_rows(2))
    write(own / NLI.folder / f"{DEV}.gz", nli_rows(5))
    copy(source, root)
    write(source / DEV, nli_rows(3))
    assert len(copy(source, root)) == 1
    assert len(load(NLI, "dev", root)) == 3
    with pytest.raises(DataError, match="already there with other content"):
        copy(source, own)
    assert len(load(NLI, "dev", own)) == 5


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


@pytest.mark.lengthy
def test_the_real_files_have_the_rows_of_their_table(real_data):
    reports = check_files(real_data, TASKS.values())
    rows = {name: tuple(report.rows for report in reports if report.task == name)[:2] for name in REAL_ROWS}
    assert rows == REAL_ROWS
    whole = {report.part if "." in report.part else report.task for report in reports if report.verdict == "official"}
    assert whole == {"nli", "re", "relation_list.json", "ontology.json"}
    assert {report.verdict for report in reports} == {"official", "subset"}
    notes = {(report.task, report.part): report.note for report in reports}
    assert notes["sts", "train"] == "all rows; field annotations is absent"
    assert notes["ner", "dev"] == "4000 of 5000 rows"
