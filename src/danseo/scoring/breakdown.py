"""Where a score comes from: per label, entity type, relation, question type or slot, and what is confused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.display.table import Table
from danseo.files import to_finite
from danseo.language import _
from danseo.records import Prediction
from danseo.scoring.score import compute_headline
from danseo.tasktypes.base import Task


@dataclass(frozen=True)
class RankedErrors:
    """The wrong examples, the one most worth reading first."""

    positions: list[int]
    """The position of each among the examples."""
    parts: list[dict[str, str]]
    """The contents of each: part -> text."""
    order: str
    """A description of the order."""


def rank_errors(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> RankedErrors:
    """Return all wrong examples, by confidence if that is known, else by how much is wrong."""
    pairs = zip(examples, predictions, strict=True)
    described = [(task.type.describe_error(task, *pair), position) for position, pair in enumerate(pairs)]
    errors = [(error, position) for error, position in described if error]
    is_ranked = not task.type.ranks_by_confidence or all(each.probabilities for each in predictions)
    if is_ranked:
        errors.sort(key=lambda pair: -pair[0].severity)  # of equal ones the first of the file
    order = task.type.error_order if is_ranked else _("in the order of the file")
    return RankedErrors([position for _, position in errors], [error.parts for error, _ in errors], order)


def mistakes_table(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], most: int) -> Table:
    """Return the first of the wrong examples: one row per part of each."""
    ranked = rank_errors(task, examples, predictions)
    rows: list[tuple[object, ...]] = [
        (number, part, " ⏎ ".join(content.split("\n")))
        for number, (position, parts) in enumerate(zip(ranked.positions[:most], ranked.parts, strict=False), 1)
        for part, content in {"guid": examples[position].guid, **parts}.items()
    ]
    count = len(ranked.positions)
    note = _("{n} of {all} wrong examples, {order}").format(n=min(most, count), all=count, order=ranked.order)
    return Table("wrong examples", ("number", "part", "content"), rows, note)


def details(
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    whole: bool = True,
    errors: int = 0,
    train: Sequence[Any] = (),
) -> list[Table]:
    """Return the breakdown of the task type if `whole` is set, and that many of the wrong examples.

    With train, entities that train has are distinguished from others.
    """
    tables = task.type.breakdown(task, examples, predictions) if whole else []
    seen = task.type.breakdown_by_seen(task, train, examples, predictions) if whole and train else None
    tables = [*tables, seen] if seen else tables
    return [*tables, mistakes_table(task, examples, predictions, errors)] if errors else tables


_PARTS = 4


def by_length(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> Table:
    """Return the headline of quarters of the examples, the shortest first; equal lengths stay together."""
    lengths = np.array([task.type.measure_length(example) for example in examples])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, _PARTS + 1)[1:-1], method="lower"))
    positions = np.searchsorted(edges, lengths, side="left")
    rows: list[tuple[object, ...]] = []
    for part in np.unique(positions):
        mine = [int(k) for k in np.flatnonzero(positions == part)]
        limits = f"{lengths[mine].min()} – {lengths[mine].max()}"
        value = compute_headline(task, [examples[k] for k in mine], [predictions[k] for k in mine])
        rows.append((limits, len(mine), to_finite(value)))
    return Table("by length", (task.type.length_unit, "n", task.headline), rows)
