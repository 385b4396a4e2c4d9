"""A finished run as trackers of experiments are told it: settings, curves, scores with their intervals, files."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.exports.format import Request
from danseo.files import read_bytes
from danseo.runs.index import Record, protocol

PROJECT = "danseo"
_FILES = ("config.toml", "environment.json", "scores.json", "log.jsonl", "predictions/dev.jsonl", "task.toml")
_COSTS = ("seconds", "peak_memory_gib", "parameters", "pieces_per_second")


@dataclass(frozen=True)
class Story:
    """What a tracker is told of one run; all of it goes through JSON."""

    name: str
    fingerprint: str
    """The same run has the same one, so that it is told once."""
    project: str
    position: str
    """A folder, or the address of a server."""
    task: str
    ended: float
    """When, in seconds since 1970."""
    seconds: float
    settings: dict[str, Any]
    tags: dict[str, str]
    curve: list[dict[str, float]]
    """By step: whatever numbers the log has."""
    scores: dict[str, float]
    files: dict[str, str]
    """Name -> path."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def story_of(request: Request, folder: str) -> Story:
    """The run that is asked for; folder is where it goes unless --out says otherwise."""
    record = request.record
    root = record.run.path.resolve()
    position = request.out or folder
    if "://" not in position:
        position = str(_apart(Path(position).resolve(), root))
    written = (root / "scores.json").stat().st_mtime
    return Story(
        name=root.name,
        fingerprint=fingerprint_of(record),
        project=str(request.options.get("project") or PROJECT),
        position=position,
        task=record.task,
        ended=written,
        seconds=float(record.surroundings.get("seconds") or 0.0),
        settings=dict(_settings(record)),
        tags=_tags(record),
        curve=list(_curve(record)),
        scores=dict(_scores(record)),
        files={name: str(root / name) for name in _FILES if (root / name).is_file()},
    )


def _apart(position: Path, run: Path) -> Path:
    """A folder for a tracker; among runs, its copies of their files would look like more runs."""
    if position.is_relative_to(run.parent):
        raise DanseoError(
            f"{position} lies in the folder of runs, where copies would look like runs; name another --out"
        )
    return position


def fingerprint_of(record: Record) -> str:
    """That of the run's name; where the folder has another name, a hash of settings and answers."""
    if record.is_under_own_name:
        return record.run.path.name[-8:]
    contents = (read_bytes(record.run.path / name) for name in ("config.toml", "predictions/dev.jsonl"))
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:8]


def _settings(record: Record) -> Iterator[tuple[str, Any]]:
    yield from ((name, value) for name, value in record.settings.items() if value is not None)
    yield from ((f"data.{name}", sha) for name, sha in (record.surroundings.get("data") or {}).items())


def _tags(record: Record) -> dict[str, str]:
    told = {
        "danseo.task": record.task,
        "danseo.model": record.model,
        "danseo.headline": record.scores["headline"],
        "danseo.scored_on": protocol(record) or "",
        "danseo.version": record.surroundings.get("danseo"),
        "danseo.family": record.surroundings.get("family"),
    }
    return {name: str(value) for name, value in told.items() if value}


def _curve(record: Record) -> Iterator[dict[str, float]]:
    for line in record.run.read_log():
        numbers = {name: float(value) for name, value in line.items() if _is_number(value)}
        if "step" in numbers:
            yield numbers


def _scores(record: Record) -> Iterator[tuple[str, float]]:
    """Every score that is defined, by half, with the ends of its interval, and what the run cost."""
    for split, listed in record.scores["scores"].items():
        for score in (score for score in listed if score["value"] is not None):
            yield f"{split}/{score['id']}", score["value"]
            if score["interval"]:
                yield f"{split}/{score['id']}/low", score["interval"][0]
                yield f"{split}/{score['id']}/high", score["interval"][1]
    for name in _COSTS:
        value = record.surroundings.get(name)
        if value is not None and _is_number(value):
            yield f"cost/{name}", float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
