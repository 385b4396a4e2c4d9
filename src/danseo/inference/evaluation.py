"""Evaluate a run: score saved or new predictions, also adjusted to another prior or by a type mask."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from danseo.config.run import RunConfig
from danseo.data.dev_split import split_indices
from danseo.data.find import data_root, find_dev_hash, find_file, load, require_file, split_sha256
from danseo.data.prediction_file import read_predictions
from danseo.display.table import Table
from danseo.errors import DanseoError, DataError
from danseo.files import content_sha256
from danseo.language import _
from danseo.models.base import LoadOptions
from danseo.models.encoder.onnx_model import SETTINGS, is_exported, load_exported
from danseo.models.registry import load_model
from danseo.records import Prediction
from danseo.runs.schemas import ENVIRONMENT, matches_schema
from danseo.runs.store import Run
from danseo.scoring.compare import compare
from danseo.scoring.score import measure
from danseo.scoring.tables import ScoreResult, make_difference_cells, score_answers, select_answered
from danseo.tasks.klue.re import learn_type_mask
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import Array

_ROUNDS, _TOLERANCE = 1000, 1e-9
_MIN_SHARE = 1e-6  # of a label that does not occur


@dataclass(frozen=True)
class AdjustedPredictions:
    """Adjusted predictions with the name and note of the adjustment."""

    name: str
    predictions: list[Prediction]
    note: str


def adjust_predictions(
    run: Run,
    task: Task,
    root: Path,
    examples: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    prior: str | None,
    type_mask: bool,
) -> AdjustedPredictions:
    """Return the predictions after the type mask, then under the other prior."""
    if not task.type.has_single_label or any(prediction.probabilities is None for prediction in predictions):
        raise DanseoError(f"no probability per label: {run.path}; leave out --prior and --type-mask")
    config = run.config
    train = task.read(require_file(task, "train", root))[: config.max_train_samples or None]
    table, names, notes = _make_probability_table(task, predictions), list[str](), list[str]()
    if type_mask:
        mask = learn_type_mask(task, train, min_count=config.encoder.type_mask_min_count)
        outside = len(mask.find_forbidden(examples))
        table = mask.apply(table, examples)
        names.append("type-mask")
        notes.append(f"gold_outside_mask: {outside} of {len(examples)} examples have a gold label that it forbids")
    if prior:
        source = compute_model_prior(config, compute_label_prior(train, task.labels))
        table = reweight(table, source, _choose_prior(task, examples, train, table, source, prior))
        names.append(f"prior-{prior}")
        notes.append(_PRIORS[prior])
    adjusted = [
        Prediction(p.guid, task.labels[int(row.argmax())], dict(zip(task.labels, row.tolist(), strict=True)))
        for p, row in zip(predictions, table, strict=True)
    ]
    return AdjustedPredictions("+".join(names), adjusted, "; ".join(notes))


_PRIORS = {
    "em": "prior-em: the labels' shares were estimated from the answers (EM), without gold",
    "select": "prior-select: the labels' shares are those of the select split; scored on the report split",
    "train": "prior-train: as if trained under the shares of train",
}


def _choose_prior(
    task: Task, examples: Sequence[Any], train: Sequence[Any], table: Array, source: Array, prior: str
) -> Array:
    if prior == "em":
        return estimate_prior(table, source)
    if prior == "train":
        return compute_label_prior(train, task.labels)
    positions = split_indices(task, examples, "select")
    if not positions:
        raise DanseoError("--prior select: no example is in the select split; use --prior em")
    return compute_label_prior([examples[position] for position in positions], task.labels)


def compute_model_prior(config: RunConfig, train: Array) -> Array:
    """Return the prior of a trained model: that of train, flattened by its loss."""
    shares = train
    if config.encoder.loss == "logit_adjusted":
        shares = train ** (1 - config.encoder.logit_adjustment_tau)
    elif config.encoder.class_weights == "balanced":
        shares = np.ones_like(train)
    elif config.encoder.loss == "class_balanced":
        raise DanseoError("--prior: the prior under a class-balanced loss depends on the counts; use another loss")
    normal: Array = shares / shares.sum()
    return normal


def _make_probability_table(task: Task, predictions: Sequence[Prediction]) -> Array:
    rows = [[(p.probabilities or {}).get(label, 0.0) for label in task.labels] for p in predictions]
    return np.array(rows, dtype=float)


# Priors


def compute_label_prior(examples: Sequence[Any], labels: Sequence[str]) -> Array:
    """Return the shares of the labels among examples."""
    counts = Counter(example.gold for example in examples)
    shares = np.array([max(counts[label] / max(1, len(examples)), _MIN_SHARE) for label in labels])
    normal: Array = shares / shares.sum()
    return normal


def reweight(table: Array, source: Array, target: Array) -> Array:
    """Return probabilities under another prior than that of the model."""
    scaled = table * (target / source)
    normal: Array = scaled / scaled.sum(axis=1, keepdims=True)
    return normal


def estimate_prior(table: Array, source: Array) -> Array:
    """Estimate the prior of the examples without gold, by Saerens' EM from the model's prior."""
    target = source.copy()
    for _round in range(_ROUNDS):
        found = np.maximum(reweight(table, source, target).mean(axis=0), 1e-12)
        if np.abs(found - target).max() < _TOLERANCE:
            break
        target = found
    normal: Array = target / target.sum()
    return normal


def open_run(path: Path) -> Run:
    """Return an existing run directory."""
    if not (path / "config.toml").is_file():
        raise DanseoError(
            _("not a run directory: {path} has no config.toml; `danseo runs` lists the runs").format(path=path)
        )
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
    on_note: Callable[[str], None] = lambda line: None,
    fix_particles: bool = False,
) -> ScoreResult:
    """Score a run on a split or file, and adjusted predictions beside the plain ones."""
    if is_exported(path) and (prior or type_mask):
        raise DanseoError(f"{path} is an exported model; --prior and --type-mask need the run itself")
    run, root = Run(path / SETTINGS) if is_exported(path) else open_run(path), data_root(data_dir)
    task, tables = run.task, list[Table]()
    fixer = task.type.make_particle_fixer(task) if fix_particles else None
    gold = file or require_file(task, split, root)
    examples = task.read(gold) if file else load(task, split, root)
    sha256 = content_sha256(gold) if file else split_sha256(task, split, root)
    predictions, source = _get_predictions(
        path, run, examples, sha256, LoadOptions(device, precision, trust_remote_code, on_note)
    )
    more: dict[str, Any] = {
        "skip": list_undefined_metrics(task, predictions),
        "train": load(task, "train", root) if details and find_file(task, "train", root) else (),
    }
    if prior or type_mask:
        adjusted = adjust_predictions(run, task, root, examples, predictions, prior=prior, type_mask=type_mask)
        if prior == "select":  # its label shares were used
            positions = split_indices(task, examples, "report")
            predictions = [predictions[k] for k in positions]
            adjusted = replace(adjusted, predictions=[adjusted.predictions[k] for k in positions])
        found = measure(task, select_answered(examples, predictions), adjusted.predictions, more["skip"])
        more |= {"extra": {f"{id_}+{adjusted.name}": each for id_, each in found.items()}, "note": adjusted.note}
    elif fixer:
        fixed = fixer(examples, predictions)
        found = measure(task, examples, fixed, more["skip"])
        more["extra"] = {f"{id_}+{fixer.name}": each for id_, each in found.items()}
        splits = ("select", "report", "dev") if split == "dev" and not file else ("",)
        tables = [compare_fixed(task, examples, predictions, fixed, fixer.name, splits)]
    result = score_answers(task, examples, predictions, gold, source, details=details, errors=errors, **more)
    return replace(result, details=[*tables, *result.details])


def compare_fixed(
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Prediction],
    fixed: Sequence[Prediction],
    name: str,
    splits: Sequence[str],
) -> Table:
    """Return what corrected predictions gain in the headline, by a paired test on each split; "" is all examples."""
    rows = list[tuple[object, ...]]()
    skip = [id_ for id_ in task.metrics if id_ != task.headline]
    for split in splits:
        chosen = split_indices(task, examples, split) if split in ("select", "report") else range(len(examples))
        if not chosen:
            continue
        mine = {system: [answers[k] for k in chosen] for system, answers in (("run", predictions), (name, fixed))}
        compared = compare(task, [examples[k] for k in chosen], mine, skip=skip)
        changed = sum(a.answer != b.answer for a, b in zip(*mine.values(), strict=True))
        (difference,), values = compared.differences, compared.values[task.headline]
        rows.append((split or "all", len(chosen), changed, *values.values(), *make_difference_cells(difference)[1:4]))
    columns = ("split", "n", "changed", "run", name, "difference", "95 % interval", "p")
    title = _("{metric}: {name} against the run").format(metric=task.headline, name=name)
    return Table(title, columns, rows, _("paired; changed: examples with a new answer"))


def _get_predictions(
    path: Path, run: Run, examples: Sequence[Any], sha256: str, loading: LoadOptions
) -> tuple[list[Prediction], Path]:
    """Return saved predictions of the same file (without --precision), else those of the model."""
    if is_exported(path):
        return load_exported(path, loading)[0].predict(examples).predictions, path
    saved = None if loading.precision else read_saved(run, sha256, examples)
    if saved is not None:
        return saved, run.predictions_path("dev")
    trust, on_note = loading.trust_remote_code, loading.on_note
    model = load_model(run, loading.device, loading.precision, trust_remote_code=trust, on_note=on_note)
    return model.predict(examples).predictions, run.path / "model"


def list_undefined_metrics(task: Task, predictions: Sequence[Prediction]) -> list[str]:
    """Return the metrics that need probabilities if a prediction has none."""
    return [] if all(p.probabilities is not None for p in predictions) else list(task.needs_probabilities)


def read_saved(run: Run, sha256: str, examples: Sequence[Any]) -> list[Prediction] | None:
    """Return the saved predictions if they are of the same file, else None."""
    saved = run.predictions_path("dev")
    if saved.is_file() and sha256 == read_data_hashes(run)[1]:
        return read_predictions(saved, run.task, examples, skip=run.task.needs_probabilities)
    return None


def read_data_hashes(run: Run) -> tuple[str | None, str | None]:
    """Return the hashes of the train file, and of the dev file of the saved predictions."""
    if not (run.path / "environment.json").is_file():
        return None, None
    document = run.read_json("environment.json")
    if not matches_schema(document, ENVIRONMENT):
        raise DataError(f"{run.path / 'environment.json'} has another layout; train the run again")
    hashes = document.get("data", {})
    return next((sha for name, sha in hashes.items() if "train" in name), None), find_dev_hash(hashes)
