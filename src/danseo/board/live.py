"""What goes on just now: trainings with their progress, and sweeps with their queue."""

import time
from pathlib import Path
from typing import Any

from danseo.board.index import Snapshot
from danseo.display.progress import clock_time
from danseo.display.table import Table
from danseo.report.journals import JOURNAL, UNFINISHED, is_worked_on, sweep_name, sweep_states
from danseo.report.others import log_lines, masked_trainings
from danseo.report.task_page import read_log
from danseo.runs.index import Record
from danseo.runs.standing import Standing, StandingFile

_ALIVE = 120.0  # seconds since the last sign of life, after which a training is not said to go on
_RECENT = 7 * 86400.0  # seconds since the last word of a training or sweep, after which an unfinished one is not news
_MOST = 50


def live(snapshot: Snapshot, now: float | None = None) -> dict[str, Any]:
    """The trainings and sweeps of a folder, for the page that asks again and again."""
    now = time.time() if now is None else now
    unfinished = [record for record in snapshot.collection.records if record.status == "unfinished"]
    trainings = [fact for record in unfinished if (fact := training(snapshot, record, now))]
    collection = snapshot.collection
    masked = masked_trainings(collection.folders, collection.keys)
    trainings += [fact for name, path in masked if (fact := masked_training(name, path, now))]
    sweeps = [sweep(path, now) for path in sorted(snapshot.collection.folders[0].glob(f"*{JOURNAL}"))[:_MOST]]
    return {
        "version": snapshot.version,
        "running": [each for each in trainings if each["alive"] or each["seconds_since"] < _RECENT][:_MOST],
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
    facts = {"run": snapshot.collection.name(record), "page": snapshot.collection.key(record), "task": record.task}
    return facts | _went(record.run.path, standing, now) | {name: last.get(name) for name in ("score", "best", "loss")}


def masked_training(name: str, path: Path, now: float) -> dict[str, Any] | None:
    """How far a masked language model is; what it scores is a loss."""
    standing = StandingFile(path).read()
    if standing is None:
        return None
    losses = [line["loss"] for line in log_lines(path / "log.jsonl") if isinstance(line.get("loss"), int | float)]
    facts = {"run": name, "page": "masked", "task": "masked LM"}
    return facts | _went(path, standing, now) | {"score": None, "best": None, "loss": losses[-1] if losses else None}


def _went(path: Path, standing: Standing, now: float) -> dict[str, Any]:
    return {
        "step": standing.step,
        "total": standing.total,
        "percent": round(100 * standing.share, 1),
        "left_seconds": round(standing.left()),
        "alive": now - standing.time < _ALIVE and is_worked_on(path) is not False,
        "seconds_since": max(0, round((now - standing.time) / 10) * 10),
    }


def progress_table(facts: dict[str, Any]) -> Table:
    """How far a training is, in one row; the minutes since its last word where it has stopped."""
    went = f"{facts['step']:,} of {facts['total']:,} ({facts['percent']:g} %)"
    left = clock_time(facts["left_seconds"] if facts["alive"] else facts["seconds_since"])
    columns = ("steps", "time left" if facts["alive"] else "stopped since", "score", "best", "loss")
    scores = (facts[name] for name in ("score", "best", "loss"))
    return Table("progress", columns, [(went, left, *scores)]).without_empty()


def sweep(path: Path, now: float) -> dict[str, Any] | None:
    """How many runs of a sweep are in which state, while some are left; None where all ended, or long ago."""
    try:
        is_news = now - path.stat().st_mtime < _RECENT
    except OSError:
        return None
    states = sweep_states(path, now) if is_news else {}
    if not any(state in UNFINISHED for state in states):
        return None
    return {"sweep": sweep_name(path), "states": states, "alive": "running" in states}
