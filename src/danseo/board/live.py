"""What goes on just now: trainings with their progress, and sweeps with their queue."""

import time
from pathlib import Path
from typing import Any

from danseo.board.index import Snapshot
from danseo.report.searches import JOURNAL, sweep_states
from danseo.report.task_page import read_log
from danseo.runs.index import Record
from danseo.runs.standing import StandingFile

_ALIVE = 120.0  # seconds since the last sign of life, after which a training is not said to go on
_MOST = 50


def live(snapshot: Snapshot, now: float | None = None) -> dict[str, Any]:
    """The trainings and sweeps of a folder, for the page that asks again and again."""
    now = time.time() if now is None else now
    unfinished = [record for record in snapshot.collection.records if record.status == "unfinished"]
    trainings = [fact for record in unfinished if (fact := training(snapshot, record, now))]
    sweeps = [sweep(path) for path in sorted(snapshot.collection.folders[0].glob(f"*{JOURNAL}"))[:_MOST]]
    return {
        "version": snapshot.version,
        "running": trainings[:_MOST],
        "sweeps": [each for each in sweeps if each],
        "runs": len(snapshot.collection.records),
    }


def training(snapshot: Snapshot, record: Record, now: float) -> dict[str, Any] | None:
    """How far a training is; None where it never said."""
    standing = StandingFile(record.run.path).read()
    if standing is None:
        return None
    log = read_log(record)
    last = log[-1] if log else {}
    return {
        "run": snapshot.collection.name(record),
        "page": snapshot.collection.key(record),
        "task": record.task,
        "step": standing.step,
        "total": standing.total,
        "percent": round(100 * standing.share, 1),
        "left_seconds": round(standing.left()),
        "alive": now - standing.time < _ALIVE,
        "seconds_since": max(0, round((now - standing.time) / 10) * 10),
        "score": last.get("score"),
        "best": last.get("best"),
        "loss": last.get("loss"),
    }


def sweep(path: Path) -> dict[str, Any] | None:
    """How many runs of a sweep are in which state; None where it says nothing yet."""
    states = sweep_states(path)
    return {"sweep": path.name.removesuffix(JOURNAL), "states": states} if states else None
