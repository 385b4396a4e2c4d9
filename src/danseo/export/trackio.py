"""Log a run to trackio: a database in a folder, for `trackio show`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.export.base import ExportFormat, ExportRequest
from danseo.export.trackers import PROJECT, TrackedRun, make_tracked_run, send_to_tracker

_KEY = "danseo.fingerprint"
_ENDING = "cost/seconds"  # a score of every finished run


def log_run(tracked: TrackedRun) -> dict[str, Any]:
    """Log a run to trackio; keep a complete copy, replace an incomplete one."""
    Path(tracked.position).mkdir(parents=True, exist_ok=True)
    import trackio

    if _is_complete(tracked):
        return {"run": tracked.name, "state": "was there already"}
    facts = {**tracked.settings, **tracked.tags, _KEY: tracked.fingerprint}
    off: dict[str, Any] = {"auto_log_gpu": False, "auto_log_cpu": False, "embed": False}
    run = trackio.init(project=tracked.project, name=tracked.name, group=tracked.task, config=facts, **off)
    for line in tracked.follow_curve():
        run.log({f"train/{name}": value for name, value in line.items() if name != "step"}, step=int(line["step"]))
    results = tracked.read_results()
    files = trackio.Artifact(f"{tracked.name}-files", "danseo-run")
    for name, path in results.files.items():
        files.add_file(path, name)
    run.log_artifact(files)
    last_step = max((int(line["step"]) for line in results.curve), default=0)
    run.log(results.scores, step=last_step)  # last: a run with scores is complete
    trackio.finish()
    return {"run": tracked.name, "state": "written"}


def _is_complete(tracked: TrackedRun) -> bool:
    """Return whether trackio has the complete run; delete incomplete copies."""
    from trackio.api import Api
    from trackio.sqlite_storage import SQLiteStorage

    try:
        known = list(Api().runs(tracked.project))
    except ValueError:
        return False  # the project is new
    for run in (run for run in known if (run.config or {}).get(_KEY) == tracked.fingerprint):
        logged = SQLiteStorage.get_logs(tracked.project, run.name, run_id=run.id)
        if any(_ENDING in line for line in logged):
            return True
        run.delete()
    return False


def get_default_position() -> str:
    return "trackio-runs"


def make_environment(position: str) -> Mapping[str, str | None]:
    return {"TRACKIO_DIR": position, "TRACKIO_SPACE_ID": None, "TRACKIO_SERVER_URL": None}


def write_run(request: ExportRequest) -> dict[str, Any]:
    """Log a run to trackio in another process."""
    tracked = make_tracked_run(request, get_default_position())
    if "://" in tracked.position:
        raise DanseoError(f"--out {tracked.position}: name a folder; `trackio sync` sends what is written there")
    result = send_to_tracker(__name__, tracked, make_environment(tracked.position))
    look = f"TRACKIO_DIR={tracked.position} trackio show --project {tracked.project}"
    return {"out": tracked.position, "project": tracked.project, **result, "look": look}


FORMAT = ExportFormat(
    "trackio",
    "settings, curves, scores and files to trackio (--out FOLDER)",
    write_run,
    packages=("trackio",),
    options=(PROJECT,),
)
