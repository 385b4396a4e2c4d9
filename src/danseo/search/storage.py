"""Where studies are kept: a file beside the runs unless a database is named, for sweeps and `danseo tune` alike."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

OLDER = "study.db"
"""Where `danseo tune` once kept its studies, in the folder of the command."""


def is_database(storage: str) -> bool:
    """Whether a storage is the URL of a database; else it is a file."""
    return "://" in storage


def default_storage(folder: Path, name: str) -> str:
    """The file of a study among its runs."""
    return str(folder / f"{name}.study")


def begun_earlier(name: str, folder: Path = Path()) -> str | None:
    """The database in which an older version began the study; whatever else lies there is not touched."""
    path = folder / OLDER
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as database:
            found = database.execute("SELECT 1 FROM studies WHERE study_name = ?", (name,)).fetchone()
    except sqlite3.Error:
        return None
    return f"sqlite:///{path}" if found else None


def open_storage(storage: str, heartbeat: dict[str, Any]) -> Any:
    """A database, or a file to which all processes append; SQLite waits for others instead of giving up."""
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    if is_database(storage):
        waiting = {"connect_args": {"timeout": 60}} if storage.startswith("sqlite") else None
        return RDBStorage(storage, engine_kwargs=waiting, **heartbeat)
    Path(storage).parent.mkdir(parents=True, exist_ok=True)
    lock = JournalFileSymlinkLock(storage)
    backend = JournalFileBackend(storage, lock)
    lock.acquire()
    try:
        _cut_half_line(Path(storage))
    finally:
        lock.release()
    return JournalStorage(backend)


def _cut_half_line(path: Path) -> None:
    """Remove the end that a killed process did not finish: what is appended to it could never be read."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
