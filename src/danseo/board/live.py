"""What goes on just now: trainings with their progress, and sweeps with their queue."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from danseo.board.index import Snapshot
from danseo.report.task_page import read_log
from danseo.runs.index import Record
from danseo.runs.standing import StandingFile

_ALIVE = 120.0  # seconds since the last sign of life, after which a training is not said to go on
_MOST = 50
_TAIL = 1 << 20  # bytes of a sweep's journal that are read


def live(snapshot: Snapshot, now: float | None = None) -> dict[str, Any]:
    """The trainings and sweeps of a folder, for the page that asks again and again."""
    now = time.time() if now is None else now
    unfinished = [record for record in snapshot.collection.records if record.status == "unfinished"]
    trainings = [fact for record in unfinished if (fact := training(snapshot, record, now))]
    sweeps = [sweep(path) for path in sorted(snapshot.collection.folders[0].glob("*.sweep.jsonl"))[:_MOST]]
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
    """How many runs of a sweep are in which state, by the last word on each."""
    states: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        try:
            event = json.loads(line)
            states[str(event["run"])] = str(event["state"])
        except (ValueError, KeyError, TypeError):
            continue  # a line that is cut or being written
    return (
        {"sweep": path.name.removesuffix(".sweep.jsonl"), "states": dict(Counter(states.values()))} if states else None
    )
