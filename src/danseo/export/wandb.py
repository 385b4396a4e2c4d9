"""Log a run to Weights & Biases: an offline run for `wandb sync`, or a training that is sent with an API key."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.export.base import ExportFormat, ExportRequest
from danseo.export.trackers import PROJECT, TrackedRun, make_tracked_run, send_to_tracker
from danseo.files import write_atomically

_MARK = "danseo.json"  # written last: a folder without it is incomplete


def log_run(tracked: TrackedRun) -> dict[str, Any]:
    """Write the folder of a run; keep a complete copy, replace an incomplete one."""
    import wandb

    folder, mode = Path(tracked.position), os.environ.get("WANDB_MODE", "offline")
    pattern = f"wandb/*run-*-{tracked.fingerprint}"
    for earlier in sorted(folder.glob(pattern)):
        if (earlier / _MARK).is_file():
            return {"run": str(earlier), "state": "was there already"}
        shutil.rmtree(earlier)
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=tracked.project,
        id=tracked.fingerprint,
        name=tracked.name,
        group=tracked.task,
        tags=[tracked.task],
        config={**tracked.settings, **tracked.tags},
        dir=folder,
        mode=mode,
        resume="allow" if mode == "online" else None,
        settings=wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True),
    )
    for line in tracked.follow_curve():
        run.log({f"train/{name}": value for name, value in line.items() if name != "step"}, step=int(line["step"]))
    results = tracked.read_results()
    run.config.update(results.tags, allow_val_change=True)
    run.summary.update(results.scores)
    files = wandb.Artifact(f"{tracked.name}-files".replace("/", "-"), "danseo-run")
    for name, path in results.files.items():
        files.add_file(path, name)
    run.log_artifact(files)
    run.finish()
    position = next(folder.glob(pattern))
    write_atomically(position / _MARK, json.dumps({"run": tracked.name, "fingerprint": tracked.fingerprint}) + "\n")
    return {"run": str(position), "state": "written"}


def get_default_position() -> str:
    return "wandb-runs"


def make_environment(position: str) -> Mapping[str, str | None]:
    """Return the folders of wandb and its mode: it sends a training over the network only with an API key."""
    positions = {"WANDB_DATA_DIR": "data", "WANDB_CACHE_DIR": "cache", "WANDB_CONFIG_DIR": "config"}
    folders = {name: str(Path(position) / "wandb" / folder) for name, folder in positions.items()}
    mode = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
    return {**folders, "WANDB_MODE": mode, "WANDB_ERROR_REPORTING": "false"}


def write_run(request: ExportRequest) -> dict[str, Any]:
    """Write the offline run in another process."""
    tracked = make_tracked_run(request, get_default_position())
    if "://" in tracked.position:
        raise DanseoError(f"--out {tracked.position}: name a folder; `wandb sync` sends what is written there")
    result = send_to_tracker(__name__, tracked, {**make_environment(tracked.position), "WANDB_MODE": "offline"})
    return {"out": tracked.position, "project": tracked.project, **result, "send": f"wandb sync {result['run']}"}


FORMAT = ExportFormat(
    "wandb",
    "settings, curves, scores and files as an offline run of Weights & Biases (--out FOLDER)",
    write_run,
    packages=("wandb",),
    options=(PROJECT,),
)
