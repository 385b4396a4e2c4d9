"""Whose trial is whose: its process signs it, and once that is gone the trial may be tried again."""

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from danseo.runs.locks import Locks, Owner, owned
from danseo.search.storage import is_database


def sign(trial: Any, storage: str, until: ExitStack) -> None:
    """Sign a trial; databases hear by themselves that a process is gone, beside a file a lock beats for it."""
    if not is_database(storage):
        until.enter_context(owned(_lock(trial.study.study_name, trial.number, storage)))
    trial.set_user_attr("owner", asdict(Owner.me()))


def is_dead(study: Any, trial: Any, storage: str) -> bool:
    """Whether the process of a signed trial is gone: on this machine at once, elsewhere by its lock's heartbeat."""
    owner = Owner(**trial.user_attrs["owner"])
    if is_database(storage) or owner.host == Owner.me().host:
        return owner.is_dead()
    path = _lock(study.study_name, trial.number, storage)
    return not Locks(path.parent).is_held(path.name)


def _lock(study: str, number: int, storage: str) -> Path:
    return Path(storage).with_name(f"{study}.trial-{number + 1}")
