"""A run as Weights & Biases keeps it offline: a folder that `wandb sync` sends."""

import json
import shutil
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.exports.format import Format, Request
from danseo.exports.story import Story, story_of
from danseo.exports.telling import tell
from danseo.files import write_atomically

_MARK = "danseo.json"  # written last: a folder without it was cut off


def replay(story: Story) -> dict[str, Any]:
    """Write the offline folder of a run; one that is there already is left as it is."""
    import wandb

    folder = Path(story.position)
    for earlier in sorted(folder.glob(f"wandb/offline-run-*-{story.fingerprint}")):
        if (earlier / _MARK).is_file():
            return {"run": str(earlier), "state": "was there already"}
        shutil.rmtree(earlier)
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=story.project,
        id=story.fingerprint,
        name=story.name,
        group=story.task,
        tags=[story.task],
        config={**story.settings, **story.tags},
        dir=folder,
        mode="offline",
        settings=wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True),
    )
    for line in story.curve:
        run.log({f"train/{name}": value for name, value in line.items() if name != "step"}, step=int(line["step"]))
    run.summary.update(story.scores)
    files = wandb.Artifact(f"{story.name}-files".replace("/", "-"), "danseo-run")
    for name, path in story.files.items():
        files.add_file(path, name)
    run.log_artifact(files)
    run.finish()
    position = next(folder.glob(f"wandb/offline-run-*-{story.fingerprint}"))
    write_atomically(position / _MARK, json.dumps({"run": story.name, "fingerprint": story.fingerprint}) + "\n")
    return {"run": str(position), "state": "written"}


def write(request: Request) -> dict[str, Any]:
    """Write a run as wandb's offline mode does."""
    story = story_of(request, "wandb-runs")
    if "://" in story.position:
        raise DanseoError(f"--out {story.position}: name a folder; `wandb sync` sends what is written there")
    kept = Path(story.position) / "wandb"
    positions = {"WANDB_DATA_DIR": "data", "WANDB_CACHE_DIR": "cache", "WANDB_CONFIG_DIR": "config"}
    environment = {name: str(kept / folder) for name, folder in positions.items()}
    made = tell(__name__, story, {**environment, "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"})
    return {"out": story.position, "project": story.project, **made, "send": f"wandb sync {made['run']}"}


FORMAT = Format(
    "wandb",
    "settings, curves, scores and files as an offline run of Weights & Biases (--out FOLDER)",
    write,
    packages=("wandb",),
    options=("project",),
)
