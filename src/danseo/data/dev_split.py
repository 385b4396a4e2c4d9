"""Split dev into `select`, which chooses the checkpoint, and `report`, which is scored; split train into folds."""

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from danseo.errors import DanseoError
from danseo.tasktypes.base import Task


def assign_split(task: Task, example: Any) -> str:
    """Return select or report by a hash of the guid, or of the passage, premise or dialogue that examples share."""
    key = task.cluster(example) if task.cluster else example.guid
    return "select" if hashlib.sha256(key.encode()).digest()[0] % 2 == 0 else "report"


def split_indices(task: Task, examples: Sequence[Any], split: str) -> list[int]:
    """Return the positions of the examples of the select or report split, or of all for dev."""
    return [k for k, example in enumerate(examples) if split == "dev" or assign_split(task, example) == split]


def take_split(
    task: Task, examples: Sequence[Any], predictions: Sequence[Any], split: str
) -> tuple[list[Any], list[Any]]:
    """Return the examples of a split of dev, and their predictions."""
    positions = split_indices(task, examples, split)
    return [examples[position] for position in positions], [predictions[position] for position in positions]


def get_group(task: Task, example: Any) -> str:
    """Return what stays in one fold: the passage, premise or dialogue that examples share, else the text."""
    return task.cluster(example) if task.cluster else str(getattr(example, "text", "") or example.guid)


def assign_folds(task: Task, examples: Sequence[Any], n_folds: int) -> list[int]:
    """Return the fold of each example: groups with rare labels first, each into the fold that lacks its labels most."""
    groups: dict[str, list[int]] = {}
    for position, example in enumerate(examples):
        groups.setdefault(get_group(task, example), []).append(position)
    if not 2 <= n_folds <= len(groups):
        raise DanseoError(f"n_folds = {n_folds}: should be from 2 to {len(groups)}, the number of texts in train")
    labels = [str(example.gold) if task.type.has_single_label else "" for example in examples]
    totals = Counter(labels)
    names = sorted(groups)
    random.Random(n_folds).shuffle(names)
    names.sort(key=lambda name: (min(totals[labels[position]] for position in groups[name]), -len(groups[name])))
    folds: list[Counter[str]] = [Counter() for _ in range(n_folds)]
    numbers = [0] * len(examples)
    for name in names:
        counts = Counter(labels[position] for position in groups[name])
        overlaps = (sum(fold[label] * n for label, n in counts.items()) for fold in folds)
        _, _, number = min((overlap, folds[k].total(), k) for k, overlap in enumerate(overlaps))
        folds[number].update(counts)
        for position in groups[name]:
            numbers[position] = number
    return numbers


def split_fold(task: Task, examples: Sequence[Any], n_folds: int, fold: int) -> tuple[list[Any], list[Any]]:
    """Return the examples to train on, and those of the fold that is held out."""
    if fold >= n_folds:
        raise DanseoError(f"fold = {fold}: with n_folds = {n_folds} the folds are numbered from 0 to {n_folds - 1}")
    numbers = assign_folds(task, examples, n_folds)
    train = [example for example, number in zip(examples, numbers, strict=True) if number != fold]
    return train, [example for example, number in zip(examples, numbers, strict=True) if number == fold]
