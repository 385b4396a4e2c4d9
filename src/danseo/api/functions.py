"""The functions of `import danseo`."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from danseo.api.results import OpenRun, RunList, Scores, SystemComparison
from danseo.data.find import data_root, read_gold
from danseo.data.find import load as load_split
from danseo.data.prediction_file import match_predictions, read_predictions
from danseo.errors import DanseoError
from danseo.language import _
from danseo.records import Prediction
from danseo.runs.index import find_runs
from danseo.runs.store import Run
from danseo.scoring.tables import (
    compare_answers,
    find_skipped_metrics,
    find_uncompared_metrics,
    name_systems,
    score_answers,
)
from danseo.tasks import get_task
from danseo.tasktypes.base import Task

PathOrText = str | PathLike[str]
Gold = PathOrText | Sequence[Any]
"""dev or train of the data folder, a file, or examples."""
Predictions = PathOrText | Sequence[Any]
"""A file, or predictions: objects or dicts with guid and answer, or one bare answer per example."""


def load(task: str, split: str = "dev", *, data: PathOrText | None = None) -> list[Any]:
    """Return the examples of a task; data is a folder or "sample", by default $DANSEO_DATA or the cache."""
    return load_split(get_task(task), split, _find_root(data))


def score(
    task: str,
    gold: Gold,
    predictions: Predictions,
    *,
    data: PathOrText | None = None,
    details: bool = False,
    partial: bool = False,
    skip: Sequence[str] = (),
    resamples: int = 1000,
    seed: int = 0,
) -> Scores:
    """Score predictions with every metric of the task, with intervals and baselines."""
    found = get_task(task)
    path, examples = _read_gold(found, gold, data)
    answers = _read_predictions(predictions, found, examples, partial, find_skipped_metrics(found, skip))
    source = Path(predictions) if isinstance(predictions, str | PathLike) else Path("predictions")
    result = score_answers(
        found, examples, answers, path, source, details=details, skip=skip, rounds=resamples, seed=seed
    )
    return Scores(found.name, found.headline, result.n, {s.id: s for s in result.scores}, result.baselines, result)


def compare(
    *systems: Any,
    task: str | None = None,
    gold: Gold = "dev",
    names: Sequence[str] = (),
    data: PathOrText | None = None,
    over: Literal["seeds"] | None = None,
    on: Literal["report", "dev"] = "report",
    partial: bool = False,
    skip: Sequence[str] = (),
    resamples: int = 2000,
    seed: int = 0,
) -> SystemComparison:
    """Compare runs, or with a task predictions (files or lists), with paired tests."""
    if task is None:
        from danseo.tables.comparison import compare_runs

        paths = [run.path if isinstance(run, OpenRun) else Path(run) for run in systems]
        folder = None if data is None else str(data)
        runs_result = compare_runs(paths, folder, on=on, over=over, skip=skip, rounds=resamples, seed=seed)
        return SystemComparison(runs_result.task.name, runs_result.task.headline, runs_result.differences, runs_result)
    found = get_task(task)
    path, examples = _read_gold(found, gold, data)
    skipped = find_uncompared_metrics(found, skip, headline_only=False)
    answered = [_read_predictions(system, found, examples, partial, skipped) for system in systems]
    files = _name_systems(systems, names)
    by_name = dict(zip(files, answered, strict=True))
    result = compare_answers(found, examples, by_name, path, files, skip=skipped, rounds=resamples, seed=seed)
    return SystemComparison(found.name, found.headline, result.differences, result)


def train(
    task: str,
    model: str,
    *,
    data: PathOrText | None = None,
    runs: PathOrText = "runs",
    recipe: str | None = None,
    config: PathOrText | None = None,
    settings: Mapping[str, Any] | None = None,
    device: str | None = None,
    force: bool = False,
    quiet: bool = True,
    trust_remote_code: bool = False,
    **named: Any,
) -> OpenRun:
    """Fine-tune, keep the best checkpoint, predict and score; the same call resumes, or returns the finished run.

    Settings are named as on the command line: epochs=1, seed=7, or settings={"train.learning_rate": 3e-5}.
    """
    from danseo.api.training import configure_training
    from danseo.experiment import run_experiment

    options = {**(settings or {}), **named, "trust_remote_code": trust_remote_code}
    file = Path(config) if config else None
    run = run_experiment(
        configure_training(get_task(task), model, recipe, file, (), options),
        _find_root(data),
        Path(runs),
        device=device,
        quiet=quiet,
        force=force,
    )
    return OpenRun(run.path, device, trust_remote_code=trust_remote_code)


def open(
    run: PathOrText, *, device: str | None = None, precision: str | None = None, trust_remote_code: bool = False
) -> OpenRun:
    """Open a run directory; its model is loaded at the first prediction."""
    path = Path(run)
    if not (path / "config.toml").is_file():
        raise DanseoError(
            _("not a run directory: {path} has no config.toml; danseo.runs(folder) lists the runs").format(path=path)
        )
    return OpenRun(Run(path).path, device, precision, trust_remote_code)


def runs(folder: PathOrText = "runs", *, task: str | None = None) -> RunList:
    """Return every run below a folder, or those of one task."""
    records = find_runs(Path(folder))
    is_known = any(record.task == task for record in records)  # custom tasks are known by their runs
    name = task if is_known or not task else get_task(task).name
    records = [record for record in records if name in (None, record.task)]
    return RunList(tuple(OpenRun(record.run.path) for record in records))


def _find_root(data: PathOrText | None) -> Path:
    return data_root(None if data is None else str(data))


def _read_gold(task: Task, gold: Gold, data: PathOrText | None) -> tuple[Path, list[Any]]:
    if not isinstance(gold, str | PathLike):
        return Path("gold"), list(gold)
    return read_gold(task, str(gold), None if data is None else str(data))


def _read_predictions(
    given: Predictions, task: Task, examples: Sequence[Any], partial: bool, skip: Sequence[str]
) -> list[Prediction]:
    if isinstance(given, str | PathLike):
        return read_predictions(Path(given), task, examples, partial=partial, skip=skip)
    return match_predictions(given, task, examples, partial=partial, skip=skip)


def _name_systems(systems: Sequence[Any], names: Sequence[str]) -> dict[str, Path]:
    """Return the systems' names: the given ones, those of their files, or A, B and so on."""
    if names:
        if len(set(names)) != len(systems):
            raise DanseoError(f"{len(set(names))} names for {len(systems)} systems; name each once")
        return {name: Path(name) for name in names}
    if all(isinstance(system, str | PathLike) for system in systems):
        return name_systems([Path(system) for system in systems])
    letters = [chr(ord("A") + position) for position in range(len(systems))]
    return {letter: Path(letter) for letter in letters}
