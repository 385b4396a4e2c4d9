"""Log a run to MLflow: a database with a folder of artifacts, or a tracking server."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danseo.export.base import ExportFormat, ExportRequest
from danseo.export.trackers import PROJECT, TrackedRun, make_tracked_run, send_to_tracker

_TAG = "danseo.fingerprint"
_BATCH = 100  # parameters per request


def log_run(tracked: TrackedRun) -> dict[str, Any]:
    """Log a run to MLflow; keep a finished copy, replace an incomplete one."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=_make_tracking_uri(tracked.position))
    experiment = client.get_experiment_by_name(tracked.project)
    number = (
        experiment.experiment_id
        if experiment
        else client.create_experiment(tracked.project, _make_artifact_location(tracked))
    )
    known = client.search_runs([number], filter_string=f"tags.`{_TAG}` = '{tracked.fingerprint}'")
    for run in known:
        if run.info.status == "FINISHED":
            return {"run": run.info.run_id, "state": "was there already"}
        client.delete_run(run.info.run_id)
    return {"run": _write_run(client, number, tracked), "state": "written"}


def _make_tracking_uri(position: str) -> str:
    """Return the tracking URI; for a folder, that of a database in it."""
    if "://" in position:
        return position
    Path(position).mkdir(parents=True, exist_ok=True)
    return _make_database_uri(position)


def _make_artifact_location(tracked: TrackedRun) -> str | None:
    """Return the folder of artifacts beside the database; a server has its own."""
    return None if "://" in tracked.position else (Path(tracked.position) / "artifacts").as_uri()


def _write_run(client: Any, experiment: str, tracked: TrackedRun) -> str:
    start = round(1000 * (tracked.ended - tracked.seconds))
    tags = {_TAG: tracked.fingerprint, **tracked.tags}
    run: str = client.create_run(experiment, start_time=start, tags=tags, run_name=tracked.name).info.run_id
    try:
        _fill_run(client, run, tracked)
    except BaseException:
        client.set_terminated(run, "FAILED")
        raise
    return run


def _fill_run(client: Any, run: str, tracked: TrackedRun) -> None:
    from mlflow.entities import Metric, Param, RunTag

    settings = [Param(escape_name(name), str(value)[:6000]) for name, value in tracked.settings.items()]
    for position in range(0, len(settings), _BATCH):
        client.log_batch(run, params=settings[position : position + _BATCH])
    for line in tracked.follow_curve():
        step, moment = int(line["step"]), round(1000 * tracked.read_time())
        points = [
            Metric(f"train/{escape_name(name)}", value, moment, step) for name, value in line.items() if name != "step"
        ]
        client.log_batch(run, metrics=points)
    results = tracked.read_results()
    end = round(1000 * results.ended)
    scores = [Metric(escape_name(name), value, end, 0) for name, value in results.scores.items()]
    tags = {**results.tags, "danseo.run": tracked.name}
    client.log_batch(run, metrics=scores, tags=[RunTag(*tag) for tag in tags.items()])
    for name, path in results.files.items():
        client.log_artifact(run, path, str(Path(name).parent) if "/" in name else None)
    client.set_terminated(run, "FINISHED", end)


def escape_name(name: str) -> str:
    """Replace characters that MLflow rejects: ynat/macro_f1@official-1 becomes ynat/macro_f1.official-1."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("@", "."))


def get_default_position() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or "mlflow-runs"


def make_environment(position: str) -> Mapping[str, str | None]:
    return {}


def write_run(request: ExportRequest) -> dict[str, Any]:
    """Log a run to MLflow in another process."""
    tracked = make_tracked_run(request, get_default_position())
    result = send_to_tracker(__name__, tracked, make_environment(tracked.position))
    is_server = "://" in tracked.position
    look = {} if is_server else {"look": f"mlflow ui --backend-store-uri {_make_database_uri(tracked.position)}"}
    return {"out": tracked.position, "project": tracked.project, **result, **look}


def _make_database_uri(position: str) -> str:
    return f"sqlite:///{Path(position) / 'mlflow.db'}"


FORMAT = ExportFormat(
    "mlflow",
    "settings, curves, scores and files to MLflow (--out FOLDER or a tracking server's address)",
    write_run,
    packages=("mlflow-skinny", "sqlalchemy", "alembic"),
    options=(PROJECT,),
)
