"""Score a run again: from its saved predictions, or by asking its model about other examples."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from danseo.adjusting import adjust
from danseo.data.find import data_root, load, require_file, split_sha256
from danseo.data.halves import in_half
from danseo.errors import DanseoError, DataError
from danseo.files import content_sha256
from danseo.metrics.statistic import Statistic
from danseo.models.families import load_model
from danseo.predictions.file import read_predictions
from danseo.records import Prediction
from danseo.runs.directory import Run
from danseo.runs.shapes import ENVIRONMENT, has_shape
from danseo.scoring.breakdown import details as detail_tables
from danseo.scoring.score import baseline_scores, example_clusters, measure, score
from danseo.scoring.tables import ScoreSheet
from danseo.tasks.task import Task


def open_run(path: Path) -> Run:
    """A run directory that exists."""
    if not (path / "config.toml").is_file():
        raise DanseoError(f"{path} is not a run directory (no config.toml); `danseo runs` lists them")
    return Run(path)


def evaluate_run(
    path: Path,
    split: str,
    file: Path | None,
    data_dir: str | None,
    *,
    details: bool = False,
    errors: int = 0,
    device: str | None = None,
    precision: str | None = None,
    trust_remote_code: bool = False,
    prior: str | None = None,
    type_mask: bool = False,
) -> ScoreSheet:
    """The score sheet of a run on a split or file; adjusted answers are scored beside the plain ones."""
    run = open_run(path)
    task = run.task
    root = data_root(data_dir)
    gold = file or require_file(task, split, root)
    examples = task.read(gold) if file else load(task, split, root)
    sha256 = content_sha256(gold) if file else split_sha256(task, split, root)
    predictions = None if precision else _saved(run, task, sha256, examples)
    source = run.predictions_path("dev") if predictions else run.path / "model"
    if predictions is None:
        model = load_model(run, device, precision, trust_remote_code=trust_remote_code)
        predictions = model.predict(examples).predictions
    skip = [] if all(p.probabilities is not None for p in predictions) else list(task.needs_probabilities)
    extra: dict[str, Statistic] = {}
    remark = task.remark(predictions)
    whole = len(examples)
    if prior or type_mask:
        adjusted = adjust(run, task, data_root(data_dir), examples, predictions, prior=prior, type_mask=type_mask)
        if prior == "select":  # whose label shares were looked at
            places = in_half(task, examples, "report")
            examples, predictions = [examples[k] for k in places], [predictions[k] for k in places]
            adjusted = replace(adjusted, predictions=[adjusted.predictions[k] for k in places])
        found = measure(task, examples, adjusted.predictions, skip)
        extra = {f"{id_}+{adjusted.name}": statistic for id_, statistic in found.items()}
        remark = "; ".join(filter(None, (remark, adjusted.note)))
    return ScoreSheet(
        task,
        gold,
        source,
        examples=whole,
        n=len(examples),
        clusters=len(set(example_clusters(task, examples))),
        scores=score(task, examples, predictions, skip=skip, extra=extra),
        baselines=baseline_scores(task, examples, skip),
        details=detail_tables(task, examples, predictions, whole=details, errors=errors),
        remark=remark,
    )


def _saved(run: Run, task: Task, sha256: str, examples: Sequence[Any]) -> list[Prediction] | None:
    """The saved predictions where they answer the file."""
    saved = run.predictions_path("dev")
    if saved.is_file() and sha256 == _dev_hash(run):
        return read_predictions(saved, task, examples, skip=task.needs_probabilities)
    return None


def _dev_hash(run: Run) -> str | None:
    """The hash of the dev file that the saved predictions answer."""
    if not (run.path / "environment.json").is_file():
        return None
    document = run.read_json("environment.json")
    if not has_shape(document, ENVIRONMENT):
        raise DataError(f"{run.path / 'environment.json'} is not what danseo writes; train the run anew")
    hashes: dict[str, str] = document.get("data", {})
    return next((sha for name, sha in hashes.items() if "dev" in name or "validation" in name), None)
