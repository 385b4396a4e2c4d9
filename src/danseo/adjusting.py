"""Answers of a run adjusted after training, from their probabilities alone: another prior, or a mask by types."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danseo.config import RunConfig
from danseo.data.find import require_file
from danseo.data.halves import in_half
from danseo.errors import DanseoError
from danseo.predictions.evidence import Array
from danseo.predictions.priors import estimated_prior, label_prior, reweighted
from danseo.predictions.type_mask import learned_mask
from danseo.records import Prediction
from danseo.runs.directory import Run
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Adjusted:
    """Answers under a name of their own, and what is to be said of them."""

    name: str
    predictions: list[Prediction]
    note: str


def adjust(
    run: Run,
    task: Task,
    root: Path,
    examples: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    prior: str | None,
    type_mask: bool,
) -> Adjusted:
    """The answers with the mask first, then under the other prior."""
    if task.kind != "classify" or any(prediction.probabilities is None for prediction in predictions):
        raise DanseoError(f"--prior and --type-mask need a probability per label, which {run.path} does not have")
    config = run.config
    train = task.read(require_file(task, "train", root))[: config.limit or None]
    table, names, notes = _table(task, predictions), list[str](), list[str]()
    if type_mask:
        mask = learned_mask(task, train, least=config.head.type_count)
        outside = len(mask.outside(examples))
        table = mask.masked(table, examples)
        names.append("type-mask")
        notes.append(f"gold_outside_mask: {outside} of {len(examples)} examples have a gold label that it forbids")
    if prior:
        source = learned_prior(config, label_prior(train, task.labels))
        table = reweighted(table, source, _target(task, examples, train, table, source, prior))
        names.append(f"prior-{prior}")
        notes.append(_PRIORS[prior])
    answered = [
        Prediction(p.guid, task.labels[int(row.argmax())], dict(zip(task.labels, row.tolist(), strict=True)))
        for p, row in zip(predictions, table, strict=True)
    ]
    return Adjusted("+".join(names), answered, "; ".join(notes))


_PRIORS = {
    "em": "prior-em: the labels' shares were estimated from the answers (EM), without gold",
    "select": "prior-select: the labels' shares are those of the select half; scored on the report half",
    "train": "prior-train: as if trained under the shares of train",
}


def _target(
    task: Task, examples: Sequence[Any], train: Sequence[Any], table: Array, source: Array, prior: str
) -> Array:
    if prior == "em":
        return estimated_prior(table, source)
    if prior == "train":
        return label_prior(train, task.labels)
    positions = in_half(task, examples, "select")
    if not positions:
        raise DanseoError("--prior select: no example falls into the select half; use --prior em")
    return label_prior([examples[position] for position in positions], task.labels)


def learned_prior(config: RunConfig, train: Array) -> Array:
    """The prior that a model learned under: that of train, flattened by its loss."""
    shares = train
    if config.train.loss == "logit_adjusted":
        shares = train ** (1 - config.train.tau)
    elif config.train.class_weights == "balanced":
        shares = np.ones_like(train)
    elif config.train.loss == "class_balanced":
        raise DanseoError("--prior: the prior under a class-balanced loss depends on the counts; use another loss")
    normal: Array = shares / shares.sum()
    return normal


def _table(task: Task, predictions: Sequence[Prediction]) -> Array:
    rows = [[(p.probabilities or {}).get(label, 0.0) for label in task.labels] for p in predictions]
    return np.array(rows, dtype=float)
