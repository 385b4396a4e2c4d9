"""A run as trackio keeps it: a database in a folder that `trackio show` reads."""

from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.exports.format import Format, Request
from danseo.exports.story import Story, story_of
from danseo.exports.telling import tell

_KEY = "danseo.fingerprint"


def replay(story: Story) -> dict[str, Any]:
    """Tell trackio; a run that it knows already is left as it is, half of one is made anew."""
    import trackio

    if _is_whole(story):
        return {"run": story.name, "state": "was there already"}
    facts = {**story.settings, **story.tags, _KEY: story.fingerprint}
    off: dict[str, Any] = {"auto_log_gpu": False, "auto_log_cpu": False, "embed": False}
    run = trackio.init(project=story.project, name=story.name, group=story.task, config=facts, **off)
    for line in story.curve:
        run.log({f"train/{name}": value for name, value in line.items() if name != "step"}, step=int(line["step"]))
    files = trackio.Artifact(f"{story.name}-files", "danseo-run")
    for name, path in story.files.items():
        files.add_file(path, name)
    run.log_artifact(files)
    run.log(story.scores, step=_last(story))  # last: a run that has them is whole
    trackio.finish()
    return {"run": story.name, "state": "written"}


def _last(story: Story) -> int:
    return max((int(line["step"]) for line in story.curve), default=0)


def _is_whole(story: Story) -> bool:
    """Whether the run was told in full; what was cut off is removed."""
    from trackio.api import Api
    from trackio.sqlite_storage import SQLiteStorage

    try:
        known = list(Api().runs(story.project))
    except ValueError:
        return False  # the project is new
    for run in (run for run in known if (run.config or {}).get(_KEY) == story.fingerprint):
        logged = SQLiteStorage.get_logs(story.project, run.name, run_id=run.id)
        if any(story.scores.keys() <= line.keys() for line in logged):
            return True
        run.delete()
    return False


def write(request: Request) -> dict[str, Any]:
    """Tell trackio about a run."""
    story = story_of(request, "trackio-runs")
    if "://" in story.position:
        raise DanseoError(f"--out {story.position}: name a folder; `trackio sync` sends what is written there")
    Path(story.position).mkdir(parents=True, exist_ok=True)
    made = tell(__name__, story, {"TRACKIO_DIR": story.position, "TRACKIO_SPACE_ID": None, "TRACKIO_SERVER_URL": None})
    look = f"TRACKIO_DIR={story.position} trackio show --project {story.project}"
    return {"out": story.position, "project": story.project, **made, "look": look}


FORMAT = Format(
    "trackio",
    "settings, curves, scores and files to trackio (--out FOLDER)",
    write,
    packages=("trackio",),
    options=("project",),
)
