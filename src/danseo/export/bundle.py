"""A bundle: one zip with predictions, settings, environment, scores and hashes, and its verification.

The files of several runs are in folders with the names of their KLUE tasks.
"""

import hashlib
import io
import json
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo import __version__
from danseo.data.find import data_root, load, require_file, split_sha256
from danseo.data.prediction_file import read_predictions
from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError
from danseo.export.base import ExportFormat, ExportRequest
from danseo.files import parse_json, quote, read_bytes, write_atomically
from danseo.records import Prediction
from danseo.runs.index import Record, read_record
from danseo.runs.predictions import get_dev_hash
from danseo.runs.scores import get_headline, score_splits
from danseo.runs.store import OWN_TASK, Run
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task

MANIFEST = "manifest.json"
PREDICTIONS = "predictions/dev.jsonl"
FILES = ("config.toml", "environment.json", "scores.json", PREDICTIONS)
MAX_BYTES = 1 << 26
"""Unpacked bytes of a bundle; the largest of KLUE have a fifth of it."""
_MAX_OTHER_BYTES = 1 << 22  # bytes of a file without predictions
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip: the same run gives the same bytes


def collect_files(record: Record) -> dict[str, bytes]:
    """Return the files of a bundle by name, the manifest first."""
    own = (OWN_TASK,) if (record.run.path / OWN_TASK).is_file() else ()
    files = {name: read_bytes(record.run.path / name) for name in (*FILES, *own)}
    manifest = {"danseo": __version__, **make_manifest(record, files)}
    return {MANIFEST: (json.dumps(manifest, ensure_ascii=False, indent=2) + "\n").encode(), **files}


def make_manifest(record: Record, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the manifest of these files; verification makes it again and compares."""
    return {
        "task": record.task,
        "model": record.model,
        "seed": record.seed,
        "dev_sha256": get_dev_hash(record),
        "headline": get_headline(record.scores),
        "reported_on": record.scores["reported_on"],
        "selected_on": record.scores["selected_on"],
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }


def check_sizes(sizes: Mapping[str, int], path: Path) -> None:
    """Raise if the files are too large for a bundle."""
    other = max(size for name, size in sizes.items() if not name.endswith(PREDICTIONS))
    if sum(sizes.values()) > MAX_BYTES or other > _MAX_OTHER_BYTES:
        raise DanseoError(
            f"too large for a bundle: {path} holds {sum(sizes.values()) / 2**20:,.0f} MiB of at most {MAX_BYTES >> 20} "
            f"({_MAX_OTHER_BYTES >> 20} in files without predictions); share the run's folder instead"
        )


def pack_zip(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of these files in this order; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(entry, content, compresslevel=9)
    return buffer.getvalue()


def collect_runs(records: Sequence[Record]) -> dict[str, bytes]:
    """Return the files of a bundle of one run, or of several in the order of the tasks, whatever theirs is."""
    if len(records) == 1:
        return collect_files(records[0])
    by_task: dict[str, Record] = {}
    for record in records:
        if record.task not in TASKS:
            raise DanseoError(f"{record.run.path} is of the own task {quote(record.task)}; export it alone")
        if other := by_task.get(record.task):
            raise DanseoError(f"two runs of {record.task}: {other.run.path} and {record.run.path}; leave one out")
        by_task[record.task] = record
    found = {task: collect_files(by_task[task]) for task in TASKS if task in by_task}
    return {f"{task}/{name}": content for task, files in found.items() for name, content in files.items()}


def list_tasks(found: Iterable[str]) -> dict[str, list[str]]:
    """Return which of the eight KLUE tasks are present and which are missing."""
    present = set(found)
    return {"tasks": [t for t in TASKS if t in present], "missing": [t for t in TASKS if t not in present]}


def write_bundle(request: ExportRequest) -> dict[str, Any]:
    """Write the bundle of one or several runs."""
    records = request.records
    path = request.path(".zip", "submission.zip" if len(records) > 1 else "")
    if path.suffix != ".zip":
        raise DanseoError(f"not a zip file name: {path}; end it in .zip")
    files = collect_runs(records)
    check_sizes({name: len(content) for name, content in files.items()}, path)
    content = pack_zip(files)
    write_atomically(path, content)
    return {
        "out": str(path),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        **list_tasks(record.task for record in records),
        "verify": f"danseo score --bundle {path}",
    }


FORMAT = ExportFormat(
    "bundle",
    "predictions, settings, environment, scores and hashes in one zip to verify; several runs, one per task",
    write_bundle,
    takes_several=True,
)


_MAX_DIRECTORY_BYTES = 1 << 12  # bytes of the central directory of the zip; eight tasks have 2,600
_MAX_RATIO = 500  # unpacked to packed bytes: blanks have 1,000, the same answer to every example of RE 134
_SMALL = 1 << 20  # bytes whose ratio does not matter
_END = struct.Struct("<4s4HLLH")  # the last record of a zip file without a comment
_NEAR = 1e-6  # what another processor may round differently


@dataclass(frozen=True)
class VerifiedBundle:
    """A verified run of a bundle: its manifest and scores, computed again."""

    bundle: Path
    gold: Path
    manifest: dict[str, Any]
    """Made again from the files of the bundle."""
    scores: dict[str, list[dict[str, Any]]]
    """Scores by split, computed again from the predictions."""
    task: Task = field(repr=False)
    examples: list[Any] = field(repr=False)
    predictions: list[Prediction] = field(repr=False)

    def tables(self) -> list[Table]:
        rows = [
            (split, s["id"], s["value"], format_interval(s["interval"]), s["n"])
            for split, listed in self.scores.items()
            for s in listed
        ]
        picked = (
            "the whole dev set"
            if self.manifest["selected_on"] == "dev"
            else f"the {self.manifest['selected_on']} split"
        )
        note = (
            f"verified: the manifest, hashes of {len(self.manifest['files'])} files, the dev file {self.gold}, and "
            f"{len(rows)} scores with intervals computed again; the maker of the bundle states: "
            f"model {self.manifest['model']}, seed {self.manifest['seed']}, checkpoint picked on {picked}"
        )
        title = f"{self.bundle.name}: {self.manifest['task']}"
        return [Table(title, ("scored on", "metric", "score", "95 % interval", "n"), rows, note)]

    def as_dict(self) -> dict[str, Any]:
        """Return the verified values, and under "stated" those that predictions cannot prove."""
        stated = {key: self.manifest[key] for key in ("model", "seed", "selected_on")}
        verified = {key: value for key, value in self.manifest.items() if key not in stated}
        return {
            "bundle": str(self.bundle),
            "gold": str(self.gold),
            "verified": True,
            **verified,
            **list_tasks([self.manifest["task"]]),
            "scores": self.scores,
            "stated": stated,
        }


@dataclass(frozen=True)
class VerifiedSubmission:
    """A verified bundle of several tasks."""

    bundle: Path
    runs: list[VerifiedBundle]
    """In the order of the tasks."""

    def tables(self) -> list[Table]:
        runs, rows = {run.manifest["task"]: run for run in self.runs}, list[tuple[object, ...]]()
        for task in TASKS.values():
            if not (run := runs.get(task.name)):
                rows.append((task.short, "missing", *[None] * 5))
                continue
            split = run.manifest["reported_on"] if run.manifest["reported_on"] in run.scores else "dev"
            rows += [
                (task.short, run.manifest["model"], split, s["id"], s["value"], format_interval(s["interval"]), s["n"])
                for s in run.scores[split]
                if s["id"] in task.columns.values()
            ]
        note = (
            f"verified: {len(runs)} of {len(TASKS)} tasks, each with its manifest, hashes, dev file and all scores "
            "computed again (--json has all); models are stated by the maker of the bundle"
        )
        columns = ("task", "model", "scored on", "metric", "score", "95 % interval", "n")
        return [Table(f"{self.bundle.name}: {len(runs)} of {len(TASKS)} tasks", columns, rows, note)]

    def as_dict(self) -> dict[str, Any]:
        """Return the tasks, and the verified values of every run."""
        tasks = list_tasks(run.manifest["task"] for run in self.runs)
        return {"bundle": str(self.bundle), "verified": True, **tasks, "runs": [run.as_dict() for run in self.runs]}


def verify_bundle(path: Path, data_dir: str | None) -> VerifiedBundle | VerifiedSubmission:
    """Verify a bundle; raise one line about the first error."""
    files = _unpack_bundle(path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        try:
            for file, content in files.items():
                write_atomically(folder / file, content)
            if MANIFEST in files:
                return _verify_files(path, folder, files, data_dir)
            runs = []
            for task in (task for task in TASKS if f"{task}/{MANIFEST}" in files):
                own = {name: files[f"{task}/{name}"] for name in (MANIFEST, *FILES)}
                runs.append(_verify_files(path, folder / task, own, data_dir))
                if (named := runs[-1].manifest["task"]) != task:
                    raise DanseoError(f"{path}: the folder {task} holds a run of {named}; do not trust it")
            return VerifiedSubmission(path, runs)
        except DanseoError as error:
            raise type(error)(str(error).replace(f"{folder}/", f"{path}: ").replace(str(folder), str(path))) from None


def _verify_files(path: Path, folder: Path, files: dict[str, bytes], data_dir: str | None) -> VerifiedBundle:
    """Verify a bundle whose files are in a folder like those of a run."""
    claimed = parse_json(_decode(files, MANIFEST, path), folder / MANIFEST)
    if not isinstance(claimed, dict) or not isinstance(claimed.get("files"), dict):
        raise DanseoError(f"{path}: {MANIFEST} has another layout; export the run again")
    contents = {name: content for name, content in files.items() if name != MANIFEST}
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != claimed["files"].get(name):
            raise DanseoError(f"{path}: the hash of {name} differs from the manifest; get the bundle again")
    record = _read_finished(path, folder)
    manifest = make_manifest(record, contents)
    claimed.pop("danseo", None)  # the version that made the bundle; it is not shown
    _compare_values(claimed, manifest, path, (MANIFEST,))
    task, gold = record.run.task, _find_gold(record, data_dir, path)
    examples, predictions = _read_answers(record, files[PREDICTIONS].count(b"\n"), data_dir, path)
    config, claims = record.run.config, record.scores
    expected = score_splits(task, examples, predictions, "fold" if config.n_folds else config.train.select_on)
    _compare_values({key: value for key, value in claims.items() if key in expected}, expected, path, ("scores.json",))
    return VerifiedBundle(path, gold, manifest, expected["scores"], task, examples, predictions)


def _read_finished(path: Path, folder: Path) -> Record:
    record = read_record(Run(folder))
    if record.status != "done":
        raise DanseoError(f"{path}: not the files of a finished run ({record.note or record.status}); export it again")
    if record.task.endswith(".toml"):
        raise DanseoError(f"{path}: config.toml names a task file of another machine; export the run again")
    return record


def _find_gold(record: Record, data_dir: str | None, path: Path) -> Path:
    """Return the dev file that the run answered."""
    task, root = record.run.task, data_root(data_dir)
    if task.name != record.task:
        raise DanseoError(f"{path}: config.toml and {OWN_TASK} name different tasks; export the run again")
    gold = require_file(task, "dev", root)
    if split_sha256(task, "dev", root) != record.dev_sha256:
        raise DanseoError(f"{gold} is not the dev file of {path.name}; name its folder with --data")
    return gold


def _read_answers(record: Record, lines: int, data_dir: str | None, path: Path) -> tuple[list[Any], list[Prediction]]:
    """Return the dev examples and the bundle's predictions of them."""
    task = record.run.task
    examples = load(task, "dev", data_root(data_dir))
    if lines > len(examples):
        raise DanseoError(f"{path}: {PREDICTIONS} has {lines:,} lines for {len(examples):,} examples; do not trust it")
    return examples, read_predictions(record.run.predictions_path("dev"), task, examples, skip=task.needs_probabilities)


def _unpack_bundle(path: Path) -> dict[str, bytes]:
    """Return the files of a bundle; check sizes and names before unpacking."""
    content = read_bytes(path, MAX_BYTES)
    try:
        _check_end(content)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            _check_entries(entries, len(content), path)
            return {entry.filename: archive.open(entry).read(entry.file_size) for entry in entries}
    except (zipfile.BadZipFile, zlib.error, struct.error, OSError, RuntimeError, ValueError, EOFError) as error:
        # RuntimeError: an encrypted file; ValueError: a name that is no text
        raise DanseoError(f"{path} is not a readable zip file ({quote(str(error), 80)}); get it again") from None


def _check_end(content: bytes) -> None:
    """Raise if the central directory is long or other bytes surround it, before a library reads it."""
    end = content[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\x05\x06"):
        raise ValueError("its end is missing, or is followed by other bytes")
    size, start = _END.unpack(end)[5:7]
    is_large = content[: -_END.size][-20:].startswith(b"PK\x06\x07")  # points to another list (zip64)
    if size > _MAX_DIRECTORY_BYTES or start + size + _END.size != len(content) or is_large:
        raise ValueError("its list of files is not one of a bundle")


def _check_entries(entries: list[zipfile.ZipInfo], packed: int, path: Path) -> None:
    """Raise if the zip has other files than a bundle, or more bytes than they can have."""
    found, due = sorted(entry.filename for entry in entries), sorted((MANIFEST, *FILES))
    tasks = {name.partition("/")[0] for name in found}.intersection(TASKS)
    several = sorted(f"{task}/{name}" for task in tasks for name in due)
    if not found or found not in (due, sorted((*due, OWN_TASK)), several):
        raise DanseoError(f"not a bundle: {path}; it should hold {', '.join(due)} (for each task) and nothing else")
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
        raise DanseoError(f"{path} is not packed with deflate; export the run again")
    sizes = {entry.filename: entry.file_size for entry in entries}
    check_sizes(sizes, path)
    ratio = sum(sizes.values()) / packed
    if ratio > _MAX_RATIO and sum(sizes.values()) > _SMALL:
        raise DanseoError(f"{path} unpacks to {ratio:,.0f} times its size, more than a bundle can; do not trust it")


def _decode(files: Mapping[str, bytes], name: str, path: Path) -> str:
    try:
        return files[name].decode("utf-8")
    except UnicodeDecodeError:
        raise DanseoError(f"{path}: {name} is not UTF-8; export the run again") from None


def _compare_values(claimed: Any, expected: Any, path: Path, at: tuple[str, ...]) -> None:
    """Raise if a claimed value is not the expected one; numbers may differ by rounding."""
    where = f"{path}: {quote(' / '.join(at), 100)}"
    if isinstance(expected, dict) and isinstance(claimed, dict):
        if other := sorted(expected.keys() ^ claimed.keys()):
            what = "lacks" if other[0] in expected else "should not have"
            raise DanseoError(f"{where} {what} {quote(other[0])}; export the run again with this version of danseo")
        for key in expected:
            _compare_values(claimed[key], expected[key], path, (*at, key))
    elif isinstance(expected, list) and isinstance(claimed, list) and len(expected) == len(claimed):
        for number, (one, other) in enumerate(zip(claimed, expected, strict=True), 1):
            _compare_values(one, other, path, (*at, str(number)))
    elif not _is_same(claimed, expected):
        raise DanseoError(
            f"{where} is claimed to be {quote(claimed, 40)}, but is {quote(expected, 40)}; do not trust it"
        )


def _is_same(claimed: Any, expected: Any) -> bool:
    if _is_number(claimed) and _is_number(expected):
        return bool(abs(claimed - expected) <= _NEAR)
    return type(claimed) is type(expected) and bool(claimed == expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 1 << 53)
