"""Plan a run: find its directory by everything that its results depend on."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from danseo.config.run import RunConfig
from danseo.data.find import data_hashes
from danseo.files import content_sha256
from danseo.hub import find_model_folder
from danseo.models.base import Family
from danseo.runs.naming import shorten_model
from danseo.runs.soft_targets import SUMMARY
from danseo.runs.store import Run, find_run_path, hash_folder
from danseo.tasks import get_task
from danseo.tasktypes.base import Task


@dataclass(frozen=True)
class RunPlan:
    """A run before its data is loaded."""

    config: RunConfig
    task: Task
    family: Family
    run: Run
    hashes: dict[str, str]
    """The hashes of the data files."""
    model: dict[str, str]
    """The name of the model and the hash of its folder."""
    started: float
    """The time of the plan (time.perf_counter)."""


def plan_run(config: RunConfig, root: Path, runs: Path, family: Family) -> RunPlan:
    """Find the directory of a run by everything that its results depend on."""
    started, task = time.perf_counter(), replace(get_task(config.task), dev_sample=config.dev_sample)
    hashes = data_hashes(task, root)
    identity = compute_identity(config, hashes, family)
    model = describe_model(config, family, identity.get("model"))
    return RunPlan(config, task, family, Run(find_run_path(runs, config, identity)), hashes, model, started)


def compute_identity(config: RunConfig, hashes: dict[str, str], family: Family) -> dict[str, str]:
    """Return the hashes of the data files and of everything else that the results depend on."""
    folder = find_model_folder(family.locate_checkpoint(config.model))
    custom, weights = get_task(config.task).custom, config.train.example_weights
    targets = config.train.distill_targets
    return {
        **hashes,
        **({"train.example_weights": content_sha256(Path(weights))} if weights else {}),  # wherever the file is
        **({"train.distill_targets": content_sha256(Path(targets) / SUMMARY)} if targets else {}),
        **({"model": hash_folder(folder)} if folder else {}),
        **({"task": custom.identity} if custom else {}),
    }


def describe_model(config: RunConfig, family: Family, sha256: str | None) -> dict[str, str]:
    """Return the name of the model and the hash of its folder, which may hold another model later."""
    if not sha256:
        return {"name": shorten_model(config.model)}
    location = family.locate_checkpoint(config.model)
    folder = str(Path(location).resolve())
    return {"name": shorten_model(config.model.removesuffix(location) + folder), "sha256": sha256}
