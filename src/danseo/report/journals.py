"""How far sweeps are, by their journals: the last word on each run, and who has died over it."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.runs.locks import Locks

JOURNAL = ".sweep.jsonl"
_TAIL = 1 << 20  # bytes of a journal that are read
_STARTING = 60.0  # seconds that a run may take until it holds its lock
UNFINISHED = ("running", "queued", "lost", "stopped")


@dataclass(frozen=True)
class Event:
    """The last word on a run of a sweep."""

    run: str
    state: str
    where: str = ""
    error: str = ""


def sweep_name(path: Path) -> str:
    """What the sweep of a journal is called."""
    return path.name.removesuffix(JOURNAL)


def sweep_events(path: Path, now: float | None = None) -> list[Event]:
    """The last word on each run; one that was begun and that nobody works on is stopped."""
    last: dict[str, dict[str, Any]] = {}
    for event in _lines(path):
        last[str(event["run"])] = event
    now = time.time() if now is None else now
    return [Event(run, _state(path.parent, event, now), *_told(event)) for run, event in last.items()]


def sweep_states(path: Path, now: float | None = None) -> dict[str, int]:
    """How many runs of a sweep are in which state."""
    return dict(Counter(event.state for event in sweep_events(path, now)))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a line that is cut or being written
        if isinstance(event, dict) and "run" in event and "state" in event:
            yield event


def _told(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("where") or ""), str(event.get("error") or "")


def _state(folder: Path, event: dict[str, Any], now: float) -> str:
    state, begun, run = str(event["state"]), event.get("time"), folder / Path(str(event["run"])).name
    if state != "running" or is_worked_on(run):
        return state
    is_fresh = isinstance(begun, int | float) and now - begun < _STARTING and not _was_locked_since(run, begun)
    return "running" if is_fresh else "stopped"


def _was_locked_since(run: Path, begun: float) -> bool:
    """Whether somebody took the run after that time, or let it go."""
    try:
        return any(path.stat().st_mtime > begun for path in (run.parent / ".locks" / run.name).iterdir())
    except OSError:
        return False


def is_worked_on(run: Path) -> bool | None:
    """Whether a living process has the run, by its lock, which is only read; None where it has none."""
    if run.name in ("", ".", ".."):
        return None
    locks = Locks(run.parent, now=time.time)
    try:
        return locks.is_held(run.name) if locks.highest(run.name) else None
    except (OSError, TypeError, ValueError):
        return None  # not what danseo writes
