"""A run as MLflow keeps it: in a database and a folder of artefacts, or at a tracking server."""

import re
from pathlib import Path
from typing import Any

from danseo.exports.format import Format, Request
from danseo.exports.story import Story, story_of
from danseo.exports.telling import tell

_TAG = "danseo.fingerprint"
_AT_ONCE = 100  # parameters, which MLflow takes in batches


def replay(story: Story) -> dict[str, Any]:
    """Tell MLflow; a run that it knows already is left as it is, half of one is made anew."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=_address(story.position))
    experiment = client.get_experiment_by_name(story.project)
    number = experiment.experiment_id if experiment else client.create_experiment(story.project, *_artefacts(story))
    known = client.search_runs([number], filter_string=f"tags.`{_TAG}` = '{story.fingerprint}'")
    for run in known:
        if run.info.status == "FINISHED":
            return {"run": run.info.run_id, "state": "was there already"}
        client.delete_run(run.info.run_id)
    return {"run": _told(client, number, story), "state": "written"}


def _address(position: str) -> str:
    """The address of the tracker; in a folder it is a database, as MLflow advises."""
    if "://" in position:
        return position
    Path(position).mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{Path(position) / 'mlflow.db'}"


def _artefacts(story: Story) -> tuple[str, ...]:
    """Where files go: beside the database; a server knows itself."""
    return () if "://" in story.position else ((Path(story.position) / "artifacts").as_uri(),)


def _told(client: Any, experiment: str, story: Story) -> str:
    from mlflow.entities import Metric, Param, RunTag

    end = round(1000 * story.ended)
    start = end - round(1000 * story.seconds)
    tags = {_TAG: story.fingerprint, **story.tags}
    run: str = client.create_run(experiment, start_time=start, tags=tags, run_name=story.name).info.run_id
    settings = [Param(allowed(name), str(value)[:6000]) for name, value in story.settings.items()]
    for position in range(0, len(settings), _AT_ONCE):
        client.log_batch(run, params=settings[position : position + _AT_ONCE])
    for line in story.curve:
        step = int(line["step"])
        points = [Metric(f"train/{allowed(name)}", value, end, step) for name, value in line.items() if name != "step"]
        client.log_batch(run, metrics=points)
    scores = [Metric(allowed(name), value, end, 0) for name, value in story.scores.items()]
    client.log_batch(run, metrics=scores, tags=[RunTag("danseo.run", story.name)])
    for name, path in story.files.items():
        client.log_artifact(run, path, str(Path(name).parent) if "/" in name else None)
    client.set_terminated(run, "FINISHED", end)
    return run


def allowed(name: str) -> str:
    """The name with the signs that MLflow takes: ynat/macro_f1@official-1 becomes ynat/macro_f1.official-1."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("@", "."))


def write(request: Request) -> dict[str, Any]:
    """Tell MLflow about a run."""
    import os

    story = story_of(request, os.environ.get("MLFLOW_TRACKING_URI") or "mlflow-runs")
    made = tell(__name__, story, {})
    shown = "" if "://" in story.position else f"mlflow ui --backend-store-uri {_shown(story.position)}"
    return {"out": story.position, "project": story.project, **made, **({"look": shown} if shown else {})}


def _shown(position: str) -> str:
    return f"sqlite:///{Path(position) / 'mlflow.db'}"


FORMAT = Format(
    "mlflow",
    "settings, curves, scores and files to MLflow (--out FOLDER or a tracking server's address)",
    write,
    packages=("mlflow-skinny", "sqlalchemy", "alembic"),
    options=("project",),
)
