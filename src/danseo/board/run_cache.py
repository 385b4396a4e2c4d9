"""A cache of the runs in a folder, keyed by the times of their files, in memory and on disk."""

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo import __version__
from danseo.data.find import cache_root
from danseo.display.escaping import say
from danseo.errors import DanseoError
from danseo.language import _
from danseo.report.collection import Collection
from danseo.runs.index import Record, natural_sort_key, read_record
from danseo.runs.store import OWN_TASK, PRUNED, Run
from danseo.runs.stress_file import STRESS

Signature = tuple[tuple[int, int] | None, ...]
KnownRecords = dict[str, tuple[Signature, Record]]
_TABLE = "CREATE TABLE IF NOT EXISTS runs (path TEXT PRIMARY KEY, signature TEXT, record TEXT)"


@dataclass(frozen=True)
class RecordStore:
    """A database in the cache folder; it can be deleted at any time."""

    path: Path

    def read(self) -> KnownRecords:
        """Return the stored records; remove a corrupted database."""
        if not self.path.is_file():
            return {}
        try:
            with closing(sqlite3.connect(self.path, timeout=5)) as database:
                rows = database.execute("SELECT path, signature, record FROM runs").fetchall()
            return {path: (_parse_signature(signature), _parse_record(path, text)) for path, signature, text in rows}
        except (sqlite3.Error, ValueError, TypeError, KeyError):
            self.path.unlink(missing_ok=True)
            return {}

    def write(self, known: Mapping[str, tuple[Signature, Record]], gone: Iterable[str]) -> None:
        """Store these records and remove those that are gone; warn if the database cannot be written."""
        rows = [
            (path, json.dumps(signature), json.dumps(_to_list(record))) for path, (signature, record) in known.items()
        ]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=5)) as database, database:
                database.execute(_TABLE)
                database.executemany("DELETE FROM runs WHERE path = ?", [(path,) for path in gone])
                database.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError) as error:
            say(f"the cache of runs cannot be written: {self.path} ({error}); the next start reads all runs again")


def open_store(root: Path) -> RecordStore:
    """Return the store of a folder of runs for this version of danseo."""
    name = hashlib.sha256(f"{__version__} {root.resolve()}".encode()).hexdigest()[:16]
    return RecordStore(cache_root() / "board" / f"{name}.sqlite")


def _parse_signature(text: str) -> Signature:
    return tuple((int(each[0]), int(each[1])) if each else None for each in json.loads(text))


def _to_list(record: Record) -> list[Any]:
    return [record.status, record.settings, record.scores, record.surroundings, record.note]


def _parse_record(path: str, text: str) -> Record:
    status, settings, scores, surroundings, note = json.loads(text)
    return Record(Run(Path(path)), str(status), dict(settings), dict(scores), dict(surroundings), str(note))


_FILES = ("config.toml", "scores.json", "environment.json", "error.txt", PRUNED, OWN_TASK, STRESS)
_PAUSE = 2.0  # seconds between two scans of the folder
_MAX_AGE = 20.0  # seconds after which a snapshot is no longer served
_MAX_DEPTH = 5


@dataclass(frozen=True)
class Snapshot:
    """The runs at one moment."""

    version: str
    collection: Collection
    by_key: dict[str, Record]
    """Runs by page key; no other run is served."""


@dataclass
class RunCache:
    """Scans a folder of runs and caches the records; it writes nothing there."""

    root: Path
    data_dir: str | None = None
    store: RecordStore | None = None
    """The database that keeps the records until the next start."""
    _known: KnownRecords = field(default_factory=dict)
    _snapshot: Snapshot | None = None
    _scanned_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _caches: tuple[dict[str, Any], dict[str, Any]] = field(default_factory=lambda: ({}, {}))

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        if not self.root.is_dir():
            raise DanseoError(
                _("not a folder of runs: {root}; `danseo train` writes runs to runs/").format(root=self.root)
            )

    def snapshot(self) -> Snapshot:
        """Return a snapshot; scan first if there is none or it is old, else scan in a thread."""
        if self._snapshot is None or time.monotonic() - self._scanned_at >= _MAX_AGE:
            return self.refresh()
        if time.monotonic() - self._scanned_at >= _PAUSE and not self._lock.locked():
            threading.Thread(target=self.refresh, daemon=True).start()
        return self._snapshot

    def refresh(self) -> Snapshot:
        """Scan the folder now."""
        with self._lock:
            if self._snapshot is None or time.monotonic() - self._scanned_at >= _PAUSE:
                self._snapshot = self._scan(self._snapshot)
                self._scanned_at = time.monotonic()
            return self._snapshot

    def _scan(self, before: Snapshot | None) -> Snapshot:
        if before is None and self.store:
            self._known = self.store.read()
        found = {path: read_signature(path) for path in find_run_folders(str(self.root))}
        changed = {path for path, signature in found.items() if self._known.get(path, (None,))[0] != signature}
        gone = self._known.keys() - found.keys()
        if before and not changed and not gone:
            return before
        for path in gone:
            del self._known[path]
        for path in changed:
            self._known[path] = found[path], read_record(Run(Path(path)))
        if self.store and (changed or gone):
            self.store.write({path: self._known[path] for path in changed}, gone)
        records = [self._known[path][1] for path in sorted(found, key=natural_sort_key)]
        keys = {str(r.run.path): f"run/{r.run.path.relative_to(self.root).as_posix()}" for r in records}
        collection = Collection(records, self.data_dir, [self.root], keys=dict(keys))
        collection.share(*self._caches)
        version = f"{os.getpid():x}-{time.time_ns():x}"
        return Snapshot(version, collection, {keys[str(record.run.path)]: record for record in records})


def read_signature(path: str) -> Signature:
    """Return the times and sizes of the files behind a run's row."""
    return tuple(_read_times(f"{path}/{name}") for name in _FILES)


def _read_times(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (a Path for each of ten thousand files is slower than stat)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def find_run_folders(root: str, depth: int = 0) -> Iterator[str]:
    """Yield the run directories below a folder, without linked folders."""
    try:
        with os.scandir(root) as found:
            entries = list(found)
    except OSError:
        return
    if any(entry.name == "config.toml" for entry in entries):
        if depth:
            yield root
        return
    for entry in entries:
        if entry.name.startswith(".") or depth >= _MAX_DEPTH:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from find_run_folders(entry.path, depth + 1)
