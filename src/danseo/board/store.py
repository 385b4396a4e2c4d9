"""What was read of runs, kept on disk by the times of their files: a board that starts anew reads only what changed."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo import __version__
from danseo.data.find import cache_root
from danseo.display.escaping import say
from danseo.runs.directory import Run
from danseo.runs.index import Record

Signature = tuple[tuple[int, int] | None, ...]
Known = dict[str, tuple[Signature, Record]]
_TABLE = "CREATE TABLE IF NOT EXISTS runs (path TEXT PRIMARY KEY, signature TEXT, record TEXT)"


@dataclass(frozen=True)
class RecordStore:
    """A database in the cache folder; it can be deleted at any time, and runs are then read again."""

    path: Path

    def read(self) -> Known:
        """What is known by now; a damaged file knows nothing and is removed."""
        if not self.path.is_file():
            return {}
        try:
            with closing(sqlite3.connect(self.path, timeout=5)) as database:
                rows = database.execute("SELECT path, signature, record FROM runs").fetchall()
            return {path: (_signature(told), _record(path, text)) for path, told, text in rows}
        except (sqlite3.Error, ValueError, TypeError, KeyError):
            self.path.unlink(missing_ok=True)
            return {}

    def write(self, known: Mapping[str, tuple[Signature, Record]], gone: Iterable[str]) -> None:
        """Keep these, and forget what is gone; without room or rights the board goes on from memory, and says so."""
        rows = [(path, json.dumps(told), json.dumps(_plain(record))) for path, (told, record) in known.items()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=5)) as database, database:
                database.execute(_TABLE)
                database.executemany("DELETE FROM runs WHERE path = ?", [(path,) for path in gone])
                database.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError) as error:
            say(f"the index of runs is not kept in {self.path}: {error}; the next start reads all runs again")


def store_of(root: Path) -> RecordStore:
    """The store of a folder of runs; another version of danseo reads runs its own way and has another."""
    name = hashlib.sha256(f"{__version__} {root.resolve()}".encode()).hexdigest()[:16]
    return RecordStore(cache_root() / "board" / f"{name}.sqlite")


def _signature(text: str) -> Signature:
    return tuple((int(each[0]), int(each[1])) if each else None for each in json.loads(text))


def _plain(record: Record) -> list[Any]:
    return [record.status, record.settings, record.scores, record.surroundings, record.note]


def _record(path: str, text: str) -> Record:
    status, settings, scores, surroundings, note = json.loads(text)
    return Record(Run(Path(path)), str(status), dict(settings), dict(scores), dict(surroundings), str(note))
