"""Finding and reading the KLUE files, and saying whether they are what they claim to be."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from danseo import __version__
from danseo.errors import DataError
from danseo.files import cache_root as cache_root
from danseo.files import content_sha256, home_folder, write_atomically
from danseo.rows import is_parquet, read_object, read_rows
from danseo.tasks.own import part_of
from danseo.tasks.own.description import data_file
from danseo.tasks.task import Task

OFFICIAL_SHA256 = {  # of the unpacked content, where the official bytes are known
    "klue-nli-v1.1_train.json": "8d32e7e4ff97804a23f277fee8740f1341ac82e1c0c7b34f1be21952e4813996",
    "klue-re-v1.1_train.json": "10101fa3059b340f9971286dd5639daccb5889324182aed31679f038bca05bc4",
    "relation_list.json": "74b9b50540891b21711418a996d3fe3adb92d5d904c6e7c7f4fa7d16be83ed13",
    "ontology.json": "d3145ac33dbac0592823af92909c5cbd7c505361cb8145859f3656712c13b6f7",
}
MANIFEST = "hashes.json"
_HUB_NOTE = "Hub layout (v1 data)"

Verdict = Literal["official", "subset", "damaged", "missing"]


@dataclass(frozen=True)
class FileReport:
    """What is known of one expected file; part is its split or, for a companion, its name."""

    task: str
    part: str
    path: Path | None
    rows: int | None
    official_rows: int
    sha256: str | None
    verdict: Verdict
    note: str

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path) if self.path else None}


# Finding


def data_root(option: str | None) -> Path:
    """The folder of --data, else of $DANSEO_DATA, else the cache; the word sample means the built-in sample."""
    if option == "":
        raise DataError("--data is empty; name a folder, or `sample` for the built-in sample")
    chosen = option or os.environ.get("DANSEO_DATA")
    if chosen == "sample":
        return _sample_root()
    return home_folder(chosen) if chosen else cache_root() / "klue"


def _sample_root() -> Path:
    """The built-in sample in the cache, written anew when this version of danseo did not write it."""
    folder = cache_root() / "sample"
    if not _is_fresh(folder):
        from danseo.sample import write_sample

        paths = write_sample(folder)
        record(folder, {path: {"sha256": content_sha256(path), "source": "sample"} for path in paths})
    return folder


def _is_fresh(folder: Path) -> bool:
    try:
        manifest = _read_manifest(folder)
    except DataError:
        return False
    files = manifest.get("files", {})
    return manifest.get("danseo") == __version__ and bool(files) and all(_is_file(folder / name) for name in files)


def find_file(task: Task, split: str, root: Path) -> Path | None:
    """The file of a split: in the official folder or loose, plain or gzipped, or in the Hub's layout."""
    if task.own:
        return data_file(task.own, split, root)
    return find_named(task, task.file(split), root) or _find_hub_file(task, split, root)


def find_named(task: Task, name: str, root: Path) -> Path | None:
    """A file by its official name."""
    candidates = (folder / f"{name}{suffix}" for folder in (root / task.folder, root) for suffix in ("", ".gz"))
    return next(filter(_is_file, candidates), None)


def hub_split(split: str) -> str:
    """The Hub's word for a split."""
    return "validation" if split == "dev" else split


def _find_hub_file(task: Task, split: str, root: Path) -> Path | None:
    shards = sorted((root / task.name).glob(f"{hub_split(split)}-*.parquet"))
    if len(shards) > 1:
        raise DataError(f"{root / task.name} has {len(shards)} parquet files for {split}; join them into one")
    return shards[0] if shards else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path and its permissions") from None


def require_file(task: Task, split: str, root: Path) -> Path:
    """The file of a split, or a DataError that says what was looked for."""
    if path := find_file(task, split, root):
        return path
    if task.own:
        name = task.own.train if split == "train" or task.own.share else task.own.dev
        raise DataError(
            f"{task.name}: {name} is neither in {task.own.folder} nor in {root}; name its folder with --data"
        )
    raise DataError(
        f"{task.name}: {_looked_for(task, split)} is not in {root}{'' if root.is_dir() else ' (no such folder)'}; "
        "run `danseo data get`, or name another folder with --data"
    )


def _looked_for(task: Task, split: str) -> str:
    return f"{task.folder}/{task.file(split)} (or .gz, or {task.name}/{hub_split(split)}-*.parquet)"


def load(task: Task, split: str, root: Path) -> list[Any]:
    """The examples of a split, of a user's own data also those that are held out of one file."""
    examples = task.read(require_file(task, split, root))
    return part_of(task.own, examples, split) if task.own and task.own.share else examples


def read_gold(task: Task, gold: str, option: str | None) -> tuple[Path, list[Any]]:
    """The file and the examples of dev or train of the data folder, or of any file with gold answers."""
    if gold in ("train", "dev"):
        root = data_root(option)
        return require_file(task, gold, root), load(task, gold, root)
    if not Path(gold).exists():
        raise DataError(f"{gold} is missing; name a file with gold answers, or dev or train of the data folder")
    return Path(gold), task.read(Path(gold))


def split_sha256(task: Task, split: str, root: Path) -> str:
    """The hash of a split's file; where several splits are held in one file, of which part of it."""
    found = content_sha256(require_file(task, split, root))
    return (
        hashlib.sha256(f"{found} {split} {task.own.share}".encode()).hexdigest()
        if task.own and task.own.share
        else found
    )


def data_hashes(task: Task, root: Path) -> dict[str, str]:
    """The hashes of train and dev by the names of their files; a user's own files may have any name."""
    paths = {split: require_file(task, split, root) for split in ("train", "dev")}
    hashes = {split if task.own else path.name: split_sha256(task, split, root) for split, path in paths.items()}
    if task.own and hashes["train"] == hashes["dev"]:
        raise DataError(f"{task.name}: train and dev hold the same; hold out a share of train instead: dev = 0.1")
    return hashes


def load_splits(task: Task, root: Path) -> dict[str, list[Any]]:
    """The examples of every split that is there; one is due."""
    found = [split for split in task.official_rows or ("train", "dev") if find_file(task, split, root)]
    return {split: load(task, split, root) for split in found or ("dev",)}


# The record of what `data get` wrote


def _read_manifest(root: Path) -> dict[str, Any]:
    path = root / MANIFEST
    if not _is_file(path):
        return {}
    try:
        manifest = dict(read_object(path).values)
        if not all(isinstance(entry["sha256"], str) for entry in manifest["files"].values()):
            raise TypeError
    except (DataError, AttributeError, KeyError, TypeError):
        raise DataError(f"{path} is damaged; remove it and run `danseo data get` again") from None
    return manifest


def recorded(root: Path) -> dict[str, str]:
    """File, relative to the root -> SHA-256 of its content when it was written."""
    return {name: entry["sha256"] for name, entry in _read_manifest(root).get("files", {}).items()}


def record(root: Path, entries: dict[Path, dict[str, Any]]) -> None:
    """Add files to the record."""
    try:
        files = _read_manifest(root).get("files", {})
    except DataError:
        files = {}  # what was damaged is replaced
    files |= {path.relative_to(root).as_posix(): entry for path, entry in entries.items()}
    manifest = {"danseo": __version__, "files": dict(sorted(files.items()))}
    write_atomically(root / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=2) + "\n")


# Checking


def check(root: Path, tasks: Iterable[Task]) -> list[FileReport]:
    """A report on every file that the tasks expect."""
    hashes = recorded(root)
    return [
        report
        for task in tasks
        for report in (
            *(_check_split(task, split, root, hashes) for split in task.official_rows),
            *(_check_companion(task, name, root, hashes) for name in task.companions),
        )
    ]


def _check_split(task: Task, split: str, root: Path, hashes: dict[str, str]) -> FileReport:
    path, rows, sha256, official = None, None, None, task.official_rows[split]
    try:
        if path := find_file(task, split, root):
            examples, sha256 = task.read(path), content_sha256(path)
            rows = task.rows(examples)
            verdict, note = (
                _judge_hash(path, sha256, root, hashes)
                or _judge_rows(path, rows, official, examples)
                or _judge_content(task, split, path, examples)
            )
        else:
            verdict, note = "missing", f"looked for {_looked_for(task, split)}"
    except DataError as error:
        verdict, note = "damaged", str(error)
    return FileReport(task.name, split, path, rows, official, sha256, verdict, note)


def _check_companion(task: Task, name: str, root: Path, hashes: dict[str, str]) -> FileReport:
    path, rows, sha256 = None, None, None
    try:
        if path := find_named(task, name, root):
            rows, sha256 = read_companion(task, path), content_sha256(path)
            judged = _judge_hash(path, sha256, root, hashes)
            verdict, note = judged or ("subset", "all entries, but not the official file")
        else:
            verdict, note = "missing", "danseo does without: its entries are built in"
    except DataError as error:
        verdict, note = "damaged", str(error)
    return FileReport(task.name, name, path, rows, task.companions[name], sha256, verdict, note)


def read_companion(task: Task, path: Path) -> int:
    """How many entries a companion file holds, if they are the task's labels."""
    document = read_object(path)
    entries = document.texts("relations") if "relations" in document.values else tuple(document.values)
    if sorted(entries) != sorted(task.labels):
        raise DataError(f"{path}: not the {len(task.labels)} entries of {task.name}; fetch it again")
    return len(entries)


def _judge_hash(path: Path, sha256: str, root: Path, hashes: dict[str, str]) -> tuple[Verdict, str] | None:
    if sha256 == _official_sha256(path):
        return "official", "by hash"
    if hashes.get(path.relative_to(root).as_posix(), sha256) != sha256:
        return "damaged", "changed since `danseo data get` (the hash differs); fetch it again"
    return None


def _official_sha256(path: Path) -> str | None:
    return OFFICIAL_SHA256.get(path.name.removesuffix(".gz"))


def _judge_rows(path: Path, rows: int, official: int, examples: Sequence[Any]) -> tuple[Verdict, str] | None:
    if rows > official:
        return "damaged", f"more rows than the official file ({rows}, not {official})"
    if any("-sample_" in example.guid for example in examples):
        return "subset", "built-in sample, not KLUE data"
    if is_parquet(path):
        return ("official", _HUB_NOTE) if rows == official else ("subset", f"{rows} of {official} rows; {_HUB_NOTE}")
    if rows < official:
        return "subset", f"{rows} of {official} rows"
    if _official_sha256(path):
        return "damaged", "right number of rows but not the official content"
    return None


def _judge_content(task: Task, split: str, path: Path, examples: Sequence[Any]) -> tuple[Verdict, str]:
    """The verdict on a raw file that has all its rows and no hash to compare with."""
    shape = re.compile(rf"{task.folder.removesuffix('.1')}_{split}_\d{{5}}(?!\d)")
    if not all(shape.match(example.guid) for example in examples):
        return "subset", "all rows; the ids are not the official ones"
    rows = read_rows(path) if task.extra_fields else []
    absent = [field for field in task.extra_fields if any(field not in row.values for row in rows)]
    if absent:
        return "subset", f"all rows; field {', '.join(absent)} is absent"
    return "official", "by rows and ids; no hash on record"
