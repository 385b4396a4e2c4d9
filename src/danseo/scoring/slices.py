"""Scores of parts of the examples: by length, and by whether the entities were seen in training."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from danseo.display.table import Table
from danseo.metrics.tagging import spans_of
from danseo.records import Prediction
from danseo.scoring.score import measure
from danseo.tasks.task import Task

_PARTS = 4


def length_of(task: Task, example: Any) -> int:
    """Words of a sentence to parse, turns of a dialogue, else characters."""
    if task.kind == "parse":
        return len(example.words)
    if task.kind == "track":
        return len(example.turns)
    return len(example.text) + len(getattr(example, "pair", None) or "") + len(getattr(example, "question", "") or "")


def by_length(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> Table:
    """The headline in quarters of the examples, the shortest first; lengths that are equal stay together."""
    lengths = np.array([length_of(task, example) for example in examples])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, _PARTS + 1)[1:-1], method="lower"))
    positions = np.searchsorted(edges, lengths, side="left")
    rows: list[tuple[object, ...]] = []
    for part in np.unique(positions):
        mine = [int(k) for k in np.flatnonzero(positions == part)]
        shown = f"{lengths[mine].min()} – {lengths[mine].max()}"
        rows.append((shown, len(mine), _headline(task, [examples[k] for k in mine], [predictions[k] for k in mine])))
    unit = {"parse": "words", "track": "turns"}.get(task.kind, "characters")
    return Table("by length", (unit, "n", task.headline), rows)


def _headline(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> float | None:
    value = measure(task, examples, predictions)[task.headline].value()
    return None if np.isnan(value) else value


def by_seen(
    task: Task, train: Sequence[Any], examples: Sequence[Any], predictions: Sequence[Prediction]
) -> Table | None:
    """Seen and unseen entities apart; None for tasks that have none."""
    if task.kind == "tag":
        return _entities(train, examples, predictions)
    return _pairs(task, train, examples, predictions) if task.form == "relation" else None


def _entities(train: Sequence[Any], examples: Sequence[Any], predictions: Sequence[Prediction]) -> Table:
    """How many of the gold entities were found whole, by whether training had the same words with the same type."""
    known = {(example.text[a:b], kind) for example in train for a, b, kind in spans_of(example.gold)}
    counts = {True: [0, 0], False: [0, 0]}
    for example, prediction in zip(examples, predictions, strict=True):
        found = set(spans_of(prediction.answer))
        for span in spans_of(example.gold):
            seen = (example.text[span[0] : span[1]], span[2]) in known
            counts[seen][0] += 1
            counts[seen][1] += span in found
    rows: list[tuple[object, ...]] = [
        (name, counts[seen][0], 100 * counts[seen][1] / counts[seen][0] if counts[seen][0] else None)
        for name, seen in (("seen in training", True), ("not seen", False))
    ]
    return Table("by seen entities", ("gold entities", "n", "found whole %"), rows)


def _pairs(task: Task, train: Sequence[Any], examples: Sequence[Any], predictions: Sequence[Prediction]) -> Table:
    pairs = {(example.subject.word, example.object.word) for example in train}
    known = {word for pair in pairs for word in pair}
    names = ("none seen", "one seen", "both seen, not as this pair", "the pair seen in training")
    groups: dict[str, list[int]] = {name: [] for name in reversed(names)}
    for position, example in enumerate(examples):
        pair = (example.subject.word, example.object.word)
        groups[names[3 if pair in pairs else sum(word in known for word in pair)]].append(position)
    rows: list[tuple[object, ...]] = [
        (name, len(positions), _headline(task, [examples[k] for k in positions], [predictions[k] for k in positions]))
        for name, positions in groups.items()
        if positions
    ]
    return Table("by seen entities", ("entities", "n", task.headline), rows)
