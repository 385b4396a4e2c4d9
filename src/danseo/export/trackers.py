"""A run for experiment trackers: settings, curves, scores with intervals and files.

A tracker logs it in another process, so that its threads and prints stay out of danseo.
"""

import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, WorkFailed
from danseo.export.base import ExportOption, ExportRequest
from danseo.files import read_bytes
from danseo.launcher import PYTHON
from danseo.runs.index import Record, read_record
from danseo.runs.predictions import read_finished_record
from danseo.runs.provenance import describe_split
from danseo.runs.store import Run

DEFAULT_PROJECT = "danseo"
PROJECT = ExportOption("project", f"name of the project. [default: {DEFAULT_PROJECT}]", "NAME")
_FILES = ("config.toml", "environment.json", "scores.json", "log.jsonl", "predictions/dev.jsonl", "task.toml")
_POLL_SECONDS = 1.0  # between two looks at the log of a training
_COSTS = ("seconds", "peak_memory_gib", "parameters", "train_tokens_per_second")


@dataclass(frozen=True)
class TrackedRun:
    """The data of one run for a tracker; all of it can be JSON."""

    name: str
    path: str
    fingerprint: str
    """The same for the same run, so that it is logged once."""
    project: str
    position: str
    """A folder, or the address of a server."""
    task: str
    ended: float
    """The end of the run, in seconds since 1970."""
    seconds: float
    settings: dict[str, Any]
    tags: dict[str, str]
    curve: list[dict[str, float]]
    """The numbers of the log by step."""
    scores: dict[str, float]
    files: dict[str, str]
    """Name -> path."""
    parent: int = 0
    """The process that trains the run now; 0 for a finished run."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def read_time(self) -> float:
        """Return the time of what is logged: now, or the end of a finished run."""
        return time.time() if self.parent else self.ended

    def follow_curve(self) -> Iterator[dict[str, float]]:
        """Yield the lines of the curve; those of a training when they are written, until its end."""
        if not self.parent:
            yield from self.curve
            return
        run, last = Run(Path(self.path)), -1.0
        while True:
            is_finished = run.is_finished
            for line in _read_curve(run):
                if line["step"] > last:
                    last = line["step"]
                    yield line
            if is_finished:
                return
            if run.status != "unfinished" or os.getppid() != self.parent:
                raise WorkFailed(f"{self.name} ended without scores; the same command resumes it")
            time.sleep(_POLL_SECONDS)

    def read_results(self) -> "TrackedRun":
        """Return the run with its scores and files, after the end of its training."""
        if not self.parent:
            return self
        return describe_run(read_finished_record(Path(self.path)), self.position, self.project)


def make_tracked_run(request: ExportRequest, folder: str) -> TrackedRun:
    """Return the requested run for a tracker; folder is the target without --out."""
    record = request.record
    position = resolve_position(request.out or folder, record.run.path.parent)
    return describe_run(record, position, str(request.options.get("project") or DEFAULT_PROJECT))


def make_live_run(run: Run, position: str) -> TrackedRun:
    """Return a run that this process trains now, for a tracker that follows it."""
    return replace(describe_run(read_record(run), position, DEFAULT_PROJECT), parent=os.getpid())


def describe_run(record: Record, position: str, project: str) -> TrackedRun:
    """Return a run for a tracker: without scores while it is trained."""
    root = record.run.path.resolve()
    written = (root / "scores.json").stat().st_mtime if record.scores else time.time()
    return TrackedRun(
        name=root.name,
        path=str(root),
        fingerprint=compute_fingerprint(record),
        project=project,
        position=position,
        task=record.task,
        ended=written,
        seconds=float(record.surroundings.get("seconds") or 0.0),
        settings=dict(_list_settings(record)),
        tags=_list_tags(record),
        curve=list(_read_curve(record.run)),
        scores=dict(_list_scores(record)),
        files={name: str(root / name) for name in _FILES if (root / name).is_file()},
    )


def resolve_position(position: str, runs: Path) -> str:
    """Return an address, or an absolute folder; raise if it is among the runs: its copies would look like runs."""
    if "://" in position:
        return position
    folder = Path(position).resolve()
    if folder.is_relative_to(runs.resolve()):
        raise DanseoError(f"{folder} is in the folder of runs: copies would look like runs; name another --out")
    return str(folder)


def compute_fingerprint(record: Record) -> str:
    """Return the fingerprint in the run's name; for a renamed run, a hash of settings and predictions."""
    if record.is_under_own_name:
        return record.run.path.name[-8:]
    contents = (read_bytes(record.run.path / name) for name in ("config.toml", "predictions/dev.jsonl"))
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:8]


def _list_settings(record: Record) -> Iterator[tuple[str, Any]]:
    yield from ((name, value) for name, value in record.settings.items() if value is not None)
    yield from ((f"data.{name}", sha) for name, sha in (record.surroundings.get("data") or {}).items())


def _list_tags(record: Record) -> dict[str, str]:
    tags = {
        "danseo.task": record.task,
        "danseo.model": record.model,
        "danseo.headline": record.scores.get("headline"),
        "danseo.scored_on": describe_split(record) or "",
        "danseo.version": record.surroundings.get("danseo"),
        "danseo.family": record.surroundings.get("family"),
    }
    return {name: str(value) for name, value in tags.items() if value}


def _read_curve(run: Run) -> Iterator[dict[str, float]]:
    for line in run.read_log():
        numbers = {name: float(value) for name, value in line.items() if _is_number(value)}
        if "step" in numbers:
            yield numbers


def _list_scores(record: Record) -> Iterator[tuple[str, float]]:
    """Yield every defined score by split with its interval, then time, memory and parameters."""
    for split, listed in record.scores.get("scores", {}).items():
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


_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "WANDB_SILENT": "true"}
_MAX_REASON = 300  # characters of a tracker's message


def send_to_tracker(module: str, tracked: TrackedRun, environment: Mapping[str, str | None]) -> dict[str, Any]:
    """Call a module's `log_run` in another process and return its result; None unsets a variable."""
    ended = subprocess.run(
        make_command(module),
        input=json.dumps(tracked.as_dict()),
        capture_output=True,
        text=True,
        env=make_variables(environment),
    )
    if ended.returncode:
        raise WorkFailed(f"{module.rsplit('.', 1)[-1]} rejected {tracked.name}: {find_reason(ended.stderr)}")
    return dict(json.loads(ended.stdout))


def make_command(module: str) -> list[str]:
    """Return the command of a tracker's process, which reads a run from standard input."""
    return [*PYTHON, "-m", "danseo.export.trackers", module]


def make_variables(environment: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment variables of a tracker's process."""
    variables = {**os.environ, **_QUIET, **environment}
    return {name: value for name, value in variables.items() if value is not None}


def find_reason(printed: str) -> str:
    """Return the last line that a failed process printed."""
    words = [line for line in printed.strip().splitlines() if line.strip()]
    return " ".join((words or ["its process was ended"])[-1].split())[:_MAX_REASON]


def main() -> None:
    """Log a run in this process: prints go to standard error, only the result to standard output."""
    answer = os.dup(1)
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a tracker may close its run
    tracked = TrackedRun(**json.load(sys.stdin))
    result = importlib.import_module(sys.argv[1]).log_run(tracked)
    sys.stdout.flush()
    with os.fdopen(answer, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
