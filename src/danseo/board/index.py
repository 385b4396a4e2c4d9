"""The runs of a folder, remembered by the times of their files: a list of thousands is there at once."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.board.store import Known, RecordStore, Signature
from danseo.errors import DanseoError
from danseo.report.collect import Collection
from danseo.runs.directory import PRUNED, STANDING, Run
from danseo.runs.index import Record, in_order, read_record

_READ = ("config.toml", "scores.json", "environment.json", "error.txt", PRUNED)
_SHOWN = (*_READ, "log.jsonl", STANDING, "predictions/dev.jsonl", "predictions/dev.npz")
_FIRST = frozenset(name.split("/")[0] for name in _SHOWN)
_DEEPER = tuple(name for name in _SHOWN if "/" in name)
_PAUSE = 2.0  # seconds between two looks at the folder
_OLD = 20.0  # seconds after which nobody is shown what was seen last
_DEEPEST = 5


@dataclass(frozen=True)
class Snapshot:
    """The runs as they were at one moment."""

    version: str
    collection: Collection
    by_key: dict[str, Record]
    """Page key -> run; what is not here is not served."""


@dataclass
class RunIndex:
    """Looks at a folder and remembers what it read; nothing is written there, and a new one knows the same."""

    root: Path
    data_dir: str | None = None
    store: RecordStore | None = None
    """Where what was read is kept until the next start."""
    _known: Known = field(default_factory=dict)
    _snapshot: Snapshot | None = None
    _looked: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _caches: tuple[dict[str, Any], dict[str, Any]] = field(default_factory=lambda: ({}, {}))

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        if not self.root.is_dir():
            raise DanseoError(f"{self.root} is not a folder of runs; `danseo train` makes them in runs/")

    def snapshot(self) -> Snapshot:
        """What is there; who asks first, or after a while, waits; others get what was seen while a thread looks."""
        if self._snapshot is None or time.monotonic() - self._looked >= _OLD:
            return self.refresh()
        if time.monotonic() - self._looked >= _PAUSE and not self._lock.locked():
            threading.Thread(target=self.refresh, daemon=True).start()
        return self._snapshot

    def refresh(self) -> Snapshot:
        """Look now."""
        with self._lock:
            if self._snapshot is None or time.monotonic() - self._looked >= _PAUSE:
                self._snapshot = self._look(self._snapshot)
                self._looked = time.monotonic()
            return self._snapshot

    def _look(self, before: Snapshot | None) -> Snapshot:
        if before is None and self.store:
            self._known = self.store.read()
        found = {path: signature_of(path) for path in run_folders(str(self.root))}
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
        records = [self._known[path][1] for path in sorted(found, key=in_order)]
        keys = {str(r.run.path): f"run/{r.run.path.relative_to(self.root).as_posix()}" for r in records}
        collection = Collection(records, self.data_dir, [self.root], keys=dict(keys))
        collection.share(*self._caches)
        version = f"{os.getpid():x}-{time.time_ns():x}"
        return Snapshot(version, collection, {keys[str(record.run.path)]: record for record in records})


def signature_of(path: str) -> Signature:
    """The times and sizes of what a run's line in a list is made of."""
    return tuple(_times(f"{path}/{name}") for name in _READ)


def _times(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (a Path for each of some ten thousand costs more than the look)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def run_folders(root: str, depth: int = 0) -> Iterator[str]:
    """The run directories below a folder whose files all lie in it; links that lead out of it are not followed."""
    try:
        with os.scandir(root) as found:
            entries = list(found)
    except OSError:
        return
    if any(entry.name == "config.toml" for entry in entries):
        if depth and is_inside(root, entries):
            yield root
        return
    for entry in entries:
        if entry.name.startswith(".") or depth >= _DEEPEST:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from run_folders(entry.path, depth + 1)


def is_inside(run: str, entries: list["os.DirEntry[str]"]) -> bool:
    """Whether nothing that pages show is a link to somewhere else."""
    if any(entry.is_symlink() and entry.name in _FIRST for entry in entries):
        return False
    return not any(os.path.islink(f"{run}/{name}") for name in _DEEPER)  # noqa: PTH114
