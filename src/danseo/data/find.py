"""Find and read data files, check whether the files of KLUE are official, and write the bundled sample."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from danseo import __version__
from danseo.errors import DataError, MissingData
from danseo.files import cache_root as cache_root
from danseo.files import content_sha256, home_folder, read_bytes, write_atomically
from danseo.language import _
from danseo.rows import is_parquet, read_object, read_rows
from danseo.tasks.custom import select_split
from danseo.tasks.custom.task_file import find_data_file
from danseo.tasktypes.base import Task

OFFICIAL_SHA256 = {  # of the unpacked content, for files whose official bytes are known
    "klue-nli-v1.1_train.json": "8d32e7e4ff97804a23f277fee8740f1341ac82e1c0c7b34f1be21952e4813996",
    "klue-re-v1.1_train.json": "10101fa3059b340f9971286dd5639daccb5889324182aed31679f038bca05bc4",
    "relation_list.json": "74b9b50540891b21711418a996d3fe3adb92d5d904c6e7c7f4fa7d16be83ed13",
    "ontology.json": "d3145ac33dbac0592823af92909c5cbd7c505361cb8145859f3656712c13b6f7",
}
MANIFEST = "hashes.json"
_HUB_NOTE = "Hub layout (v1 data)"

Verdict = Literal["official", "subset", "corrupted", "missing"]


@dataclass(frozen=True)
class FileReport:
    """The verdict on one expected file; part is its split or, for a companion, its name."""

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
    """Return the folder of --data, else of $DANSEO_DATA, else the cache; "sample" is the bundled sample."""
    if option == "":
        raise DataError(_("--data is empty; name a folder, or `sample` for the bundled sample"))
    chosen = option or os.environ.get("DANSEO_DATA")
    if chosen == "sample":
        return SAMPLE
    return home_folder(chosen) if chosen else cache_root() / "klue"


def find_file(task: Task, split: str, root: Path) -> Path | None:
    """Return the file of a split: in the official folder or in the root, plain or gzipped, or in the Hub's layout."""
    if task.custom:
        return find_data_file(task.custom, split, root)
    return find_named(task, task.file(split), root) or _find_hub_file(task, split, root)


def find_named(task: Task, name: str, root: Path) -> Path | None:
    """Return the file with an official name, or None."""
    if root == SAMPLE:
        return packed_file(name)
    candidates = (folder / f"{name}{suffix}" for folder in (root / task.folder, root) for suffix in ("", ".gz"))
    return next(filter(_is_file, candidates), None)


def hub_split(split: str) -> str:
    """Return the Hub's name of a split."""
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
        raise DataError(
            _("{path} cannot be read: {reason}; check the path and its permissions").format(
                path=path, reason=error.strerror
            )
        ) from None


def require_file(task: Task, split: str, root: Path) -> Path:
    """Return the file of a split, or raise a DataError that names the places where it should be."""
    if path := find_file(task, split, root):
        return path
    if task.custom:
        name = task.custom.train if split == "train" or task.custom.share else task.custom.dev
        places = f"{task.custom.folder} or {root}"
        raise DataError(f"{task.name}: {name} is not in {places}; name its folder with --data")
    raise MissingData(
        _(
            "{task}: {names} is not in {root}{missing}; run `danseo data get`, or name another folder with --data"
        ).format(
            task=task.name,
            names=_list_names(task, split),
            root=root,
            missing="" if root.is_dir() else _(" (no such folder)"),
        )
    )


def _list_names(task: Task, split: str) -> str:
    return f"{task.folder}/{task.file(split)} (or .gz, or {task.name}/{hub_split(split)}-*.parquet)"


def load(task: Task, split: str, root: Path) -> list[Any]:
    """Return the examples of a split; dev may be a held-out share of a custom task's train file."""
    examples = task.read(require_file(task, split, root))
    examples = select_split(task.custom, examples, split) if task.custom and task.custom.share else examples
    return sample_examples(examples, *task.dev_sample) if split == "dev" else examples


def sample_examples(examples: list[Any], count: int, seed: int) -> list[Any]:
    """Sample examples by a seed, in their order; a count of 0 takes all. A larger sample contains the smaller ones."""
    if not 0 < count < len(examples):
        return examples
    order = sorted(examples, key=lambda example: hashlib.sha256(f"{seed} {example.guid}".encode()).digest())
    chosen = {example.guid for example in order[:count]}
    return [example for example in examples if example.guid in chosen]


def sample_sha256(sha256: str, count: int, seed: int) -> str:
    """Return the hash of a sample of a file."""
    return hashlib.sha256(f"{sha256} sample {count} {seed}".encode()).hexdigest() if count else sha256


def read_gold(task: Task, gold: str, option: str | None) -> tuple[Path, list[Any]]:
    """Return file and examples of dev or train in the data folder, or of any file with gold answers."""
    if gold in ("train", "dev"):
        root = data_root(option)
        return require_file(task, gold, root), load(task, gold, root)
    if not Path(gold).exists():
        raise DataError(
            _("{gold} is missing; name a file with gold answers, or dev or train of the data folder").format(gold=gold)
        )
    return Path(gold), task.read(Path(gold))


def find_train_examples(task: Task, gold: str, option: str | None) -> list[Any]:
    """Return the training examples of the data folder, or beside the file of gold answers; none if there are none."""
    if option or gold in ("train", "dev"):
        root = data_root(option)
        return load(task, "train", root) if find_file(task, "train", root) else []
    beside = Path(gold).parent / task.file("train")
    return task.read(beside) if beside.is_file() and not task.custom else []


def split_sha256(task: Task, split: str, root: Path) -> str:
    """Return the hash of a split's file; for a part of a file, the hash also covers which part."""
    sha256 = content_sha256(require_file(task, split, root))
    if task.custom and task.custom.share:
        sha256 = hashlib.sha256(f"{sha256} {split} {task.custom.share}".encode()).hexdigest()
    return sample_sha256(sha256, *task.dev_sample) if split == "dev" else sha256


def data_hashes(task: Task, root: Path) -> dict[str, str]:
    """Return file name without .gz -> hash, for train and dev; files of custom tasks are called train and dev."""
    paths = {split: require_file(task, split, root) for split in ("train", "dev")}
    names = {split: path.name if is_parquet(path) else task.file(split) for split, path in paths.items()}
    names = {"train": "train", "dev": "dev"} if task.custom else names
    hashes = {name: split_sha256(task, split, root) for split, name in names.items()}
    if task.custom and hashes["train"] == hashes["dev"]:
        raise DataError(f"{task.name}: train and dev are equal; hold out a share of train instead: dev = 0.1")
    return hashes


def find_dev_hash(hashes: Mapping[str, str]) -> str | None:
    """Return the hash of the dev file among those of data_hashes; the Hub calls it validation."""
    return next((sha for name, sha in hashes.items() if "dev" in name or "validation" in name), None)


def load_splits(task: Task, root: Path) -> dict[str, list[Any]]:
    """Return the examples of every split that exists; there must be at least one."""
    splits = [split for split in task.official_rows or ("train", "dev") if find_file(task, split, root)]
    return {split: load(task, split, root) for split in splits or ("dev",)}


# The manifest of the files that `data get` wrote


def _read_manifest(root: Path) -> dict[str, Any]:
    path = root / MANIFEST
    if not _is_file(path):
        return {}
    try:
        manifest = dict(read_object(path).values)
        if not all(isinstance(entry["sha256"], str) for entry in manifest["files"].values()):
            raise TypeError
    except (DataError, AttributeError, KeyError, TypeError):
        raise DataError(_("{path} is corrupted; remove it and run `danseo data get` again").format(path=path)) from None
    return manifest


def read_hashes(root: Path) -> dict[str, str]:
    """Return file relative to the root -> SHA-256 of the content that `data get` wrote."""
    return {name: entry["sha256"] for name, entry in _read_manifest(root).get("files", {}).items()}


def record_files(root: Path, entries: dict[Path, dict[str, Any]]) -> None:
    """Add files to the manifest."""
    try:
        files = _read_manifest(root).get("files", {})
    except DataError:
        files = {}  # a corrupted manifest is replaced
    files |= {path.relative_to(root).as_posix(): entry for path, entry in entries.items()}
    manifest = {"danseo": __version__, "files": dict(sorted(files.items()))}
    write_atomically(root / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=2) + "\n")


# Checking


def check_files(root: Path, tasks: Iterable[Task]) -> list[FileReport]:
    """Return a report on every file that the tasks expect."""
    hashes = read_hashes(root)
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
            verdict, note = "missing", f"expected {_list_names(task, split)}"
    except DataError as error:
        verdict, note = "corrupted", str(error)
    return FileReport(task.name, split, path, rows, official, sha256, verdict, note)


def _check_companion(task: Task, name: str, root: Path, hashes: dict[str, str]) -> FileReport:
    path, rows, sha256 = None, None, None
    try:
        if path := find_named(task, name, root):
            rows, sha256 = read_companion(task, path), content_sha256(path)
            by_hash = _judge_hash(path, sha256, root, hashes)
            verdict, note = by_hash or ("subset", "all entries, but not the official file")
        else:
            verdict, note = "missing", "not needed: danseo contains its entries"
    except DataError as error:
        verdict, note = "corrupted", str(error)
    return FileReport(task.name, name, path, rows, task.companions[name], sha256, verdict, note)


def read_companion(task: Task, path: Path) -> int:
    """Return the number of entries of a companion file; refuse one whose entries are not the task's labels."""
    document = read_object(path)
    entries = document.texts("relations") if "relations" in document.values else tuple(document.values)
    if sorted(entries) != sorted(task.labels):
        raise DataError(f"{path}: not the {len(task.labels)} entries of {task.name}; fetch it again")
    return len(entries)


def _judge_hash(path: Path, sha256: str, root: Path, hashes: dict[str, str]) -> tuple[Verdict, str] | None:
    if sha256 == _official_sha256(path):
        return "official", "by hash"
    if hashes.get(path.relative_to(root).as_posix(), sha256) != sha256:
        return "corrupted", "changed since `danseo data get` (the hash differs); fetch it again"
    return None


def _official_sha256(path: Path) -> str | None:
    return OFFICIAL_SHA256.get(path.name.removesuffix(".gz"))


def _judge_rows(path: Path, rows: int, official: int, examples: Sequence[Any]) -> tuple[Verdict, str] | None:
    if rows > official:
        return "corrupted", f"more rows than the official file ({rows}, not {official})"
    if any("-sample_" in example.guid for example in examples):
        return "subset", "bundled sample, not KLUE data"
    if is_parquet(path):
        return ("official", _HUB_NOTE) if rows == official else ("subset", f"{rows} of {official} rows; {_HUB_NOTE}")
    if rows < official:
        return "subset", f"{rows} of {official} rows"
    if _official_sha256(path):
        return "corrupted", "right number of rows but not the official content"
    return None


def _judge_content(task: Task, split: str, path: Path, examples: Sequence[Any]) -> tuple[Verdict, str]:
    """Return the verdict on an official file with all rows whose hash is not known."""
    guid = re.compile(rf"{task.folder.removesuffix('.1')}_{split}_\d{{5}}(?!\d)")
    if not all(guid.match(example.guid) for example in examples):
        return "subset", "all rows; the ids are not the official ones"
    rows = read_rows(path) if task.extra_fields else []
    absent = [field for field in task.extra_fields if any(field not in row.values for row in rows)]
    if absent:
        return "subset", f"all rows; field {', '.join(absent)} is absent"
    return "official", "by rows and ids; the official hash is unknown"


SAMPLE = Path(__file__).parent / "sample"
"""The folder of the files; find.py reads it like any data folder."""


def packed_file(name: str) -> Path:
    """Return the file of the sample for an official file name: klue-dp-v1.1_dev.tsv is in dp_dev.tsv.gz."""
    return SAMPLE / f"{name.removeprefix('klue-').replace('-v1.1', '')}.gz"


def write_sample(folder: Path) -> list[Path]:
    """Write all files of the sample into a folder, unpacked, under their official names."""
    from danseo.tasks import TASKS

    files = {
        folder / task.folder / name: packed_file(name)
        for task in TASKS.values()
        for name in (task.file("train"), task.file("dev"), *task.companions)
    }
    predictions = SAMPLE.glob("predictions/*/*.gz")
    files |= {folder / packed.relative_to(SAMPLE).with_suffix(""): packed for packed in predictions}
    for path, packed in sorted(files.items()):
        write_atomically(path, read_bytes(packed))
    return sorted(files)
