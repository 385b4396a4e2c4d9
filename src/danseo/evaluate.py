"""Score a run again: from its saved predictions, or by asking its model about other examples."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from danseo.adjusting import adjust
from danseo.data.find import data_root, find_file, load, require_file, split_sha256
from danseo.data.halves import in_half
from danseo.errors import DanseoError, DataError
from danseo.files import content_sha256
from danseo.models.exported import SETTINGS, is_exported, load_exported
from danseo.models.families import load_model
from danseo.models.protocol import Loading, Model
from danseo.predictions.file import read_predictions
from danseo.records import Prediction
from danseo.runs.directory import Run
from danseo.runs.shapes import ENVIRONMENT, has_shape
from danseo.scoring.score import measure
from danseo.scoring.tables import ScoreResult, only_answered, score_answers
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
) -> ScoreResult:
    """The scores of a run on a split or file; adjusted answers are scored beside the plain ones."""
    if is_exported(path) and (prior or type_mask):
        raise DanseoError(f"{path} is an exported model; --prior and --type-mask need the run itself")
    run, root = Run(path / SETTINGS) if is_exported(path) else open_run(path), data_root(data_dir)
    task = run.task
    gold = file or require_file(task, split, root)
    examples = task.read(gold) if file else load(task, split, root)
    sha256 = content_sha256(gold) if file else split_sha256(task, split, root)
    scored, source = _answers(path, run, examples, sha256, Loading(device, precision, trust_remote_code))
    more: dict[str, Any] = {"skip": _undefined(task, scored), "train": _train(task, root) if details else ()}
    if prior or type_mask:
        adjusted = adjust(run, task, root, examples, scored, prior=prior, type_mask=type_mask)
        if prior == "select":  # whose label shares were looked at
            positions = in_half(task, examples, "report")
            scored = [scored[k] for k in positions]
            adjusted = replace(adjusted, predictions=[adjusted.predictions[k] for k in positions])
        found = measure(task, only_answered(examples, scored), adjusted.predictions, more["skip"])
        more |= {"extra": {f"{id_}+{adjusted.name}": each for id_, each in found.items()}, "note": adjusted.note}
    return score_answers(task, examples, scored, gold, source, details=details, errors=errors, **more)


def _answers(
    path: Path, run: Run, examples: Sequence[Any], sha256: str, loading: Loading
) -> tuple[list[Prediction], Path]:
    """The saved predictions where they answer the file and nobody asks for another precision, else the model's."""
    if is_exported(path):
        return load_exported(path, loading)[0].predict(examples).predictions, path
    saved = None if loading.precision else _saved(run, run.task, sha256, examples)
    if saved is not None:
        return saved, run.predictions_path("dev")
    return _model(run, loading).predict(examples).predictions, run.path / "model"


def _undefined(task: Task, predictions: Sequence[Prediction]) -> list[str]:
    """The metrics that need probabilities, where some prediction has none."""
    return [] if all(p.probabilities is not None for p in predictions) else list(task.needs_probabilities)


def _train(task: Task, root: Path) -> Sequence[Any]:
    """The training examples, where they are here."""
    return load(task, "train", root) if find_file(task, "train", root) else ()


def _model(run: Run, loading: Loading) -> Model:
    """The saved model of a run."""
    return load_model(run, loading.device, loading.precision, trust_remote_code=loading.trust_remote_code)


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
