"""Training examples in folds: groups stay together, and each fold has its share of every label."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from danseo.errors import DanseoError
from danseo.tasks.task import Task


def group_of(task: Task, example: Any) -> str:
    """What stays in one fold: the passage, premise or dialogue that examples share, else those of the same text."""
    return task.cluster(example) if task.cluster else str(getattr(example, "text", "") or example.guid)


def fold_numbers(task: Task, examples: Sequence[Any], folds: int) -> list[int]:
    """The fold of each example, the same at every call: rare labels first, each group where its labels lack most."""
    groups: dict[str, list[int]] = {}
    for position, example in enumerate(examples):
        groups.setdefault(group_of(task, example), []).append(position)
    if folds < 2 or folds > len(groups):
        raise DanseoError(f"folds = {folds}: should be from 2 to {len(groups)}, as many as there are texts in train")
    labels = [str(example.gold) if task.kind == "classify" else "" for example in examples]
    totals = Counter(labels)
    names = sorted(groups)
    random.Random(folds).shuffle(names)
    names.sort(key=lambda name: (min(totals[labels[position]] for position in groups[name]), -len(groups[name])))
    held: list[Counter[str]] = [Counter() for _ in range(folds)]
    numbers = [0] * len(examples)
    for name in names:
        wanted = Counter(labels[position] for position in groups[name])
        fold = min(range(folds), key=lambda k: (sum(held[k][one] * n for one, n in wanted.items()), held[k].total(), k))
        held[fold].update(wanted)
        for position in groups[name]:
            numbers[position] = fold
    return numbers


def parted(task: Task, examples: Sequence[Any], folds: int, fold: int) -> tuple[list[Any], list[Any]]:
    """The examples to learn from, and those of the fold that is held out."""
    if fold >= folds:
        raise DanseoError(f"fold = {fold}: with folds = {folds} they are numbered from 0 to {folds - 1}")
    numbers = fold_numbers(task, examples, folds)
    own = [example for example, number in zip(examples, numbers, strict=True) if number != fold]
    return own, [example for example, number in zip(examples, numbers, strict=True) if number == fold]
