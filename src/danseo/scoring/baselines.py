"""Answers that need no model: the ceiling and the floors that every score is read against."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from danseo.records import Prediction
from danseo.tasks.task import Task

NAMES = {
    "oracle": "the gold answers",
    "majority": "the most frequent answer, whatever the input",
    "random": "the gold answers of other examples, at random",
}


def baseline(name: str, task: Task, examples: Sequence[Any], *, seed: int = 0) -> list[Prediction]:
    """The predictions of a baseline named in NAMES."""
    makers: dict[str, Callable[[], list[Any]]] = {
        "oracle": lambda: oracle(task, examples),
        "majority": lambda: majority(task, examples),
        "random": lambda: shuffled(task, examples, random.Random(seed)),
    }
    answers = makers[name]()
    probabilities = label_shares(examples) if name == "majority" and task.needs_probabilities else None
    return [
        Prediction(example.guid, answer, probabilities or ({answer: 1.0} if task.needs_probabilities else None))
        for example, answer in zip(examples, answers, strict=True)
    ]


def oracle(task: Task, examples: Sequence[Any]) -> list[Any]:
    """The gold answers."""
    if task.kind == "answer":
        return [example.gold[0] if example.gold else "" for example in examples]
    return [example.gold for example in examples]


def majority(task: Task, examples: Sequence[Any]) -> list[Any]:
    """The most frequent answer among the golds of these examples, for each of them."""
    return majority_answers(task, examples, usual_gold(task, examples))


def usual_gold(task: Task, examples: Sequence[Any]) -> Any:
    """The most frequent label, labels or relation among the golds, or their mean; None where answers need neither."""
    golds = [example.gold for example in examples]
    if task.kind in ("classify", "labels"):
        return Counter(golds).most_common(1)[0][0]
    if task.kind == "score":
        return sum(golds) / len(golds)
    if task.kind == "parse":
        return Counter(relation for gold in golds for _, relation in gold).most_common(1)[0][0]
    return None


def majority_answers(task: Task, examples: Sequence[Any], most: Any) -> list[Any]:
    """The label or number given; no entity; the next word as head; no answer; an empty state."""
    if task.kind == "tag":
        return [("O",) * len(example.text) for example in examples]
    if task.kind == "parse":
        return [tuple((head, most) for head in (*range(2, len(e.words) + 1), 0)) for e in examples]
    fixed = {"answer": "", "track": ()}
    return [fixed.get(task.kind, most)] * len(examples)


def shuffled(task: Task, examples: Sequence[Any], rng: random.Random) -> list[Any]:
    """The gold answers dealt out to other examples; sequences are joined and cut anew to fit."""
    answers = oracle(task, examples)
    if task.kind == "tag":
        return _dealt([example.gold for example in rng.sample(examples, len(examples))], answers)
    if task.kind == "parse":
        relations = _dealt([[r for _, r in e.gold] for e in rng.sample(examples, len(examples))], answers)
        return [tuple((rng.randint(0, len(row)), relation) for relation in row) for row in relations]
    return rng.sample(answers, len(answers))


def _dealt(rows: Sequence[Sequence[Any]], shapes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The entries of all rows, one after the other, in rows of the given lengths."""
    entries = chain.from_iterable(rows)
    return [tuple(next(entries) for _ in shape) for shape in shapes]


def label_shares(examples: Sequence[Any]) -> dict[str, float]:
    """Each label that occurs in gold -> its share of the examples."""
    counts = Counter(label for example in examples for label in _labels(example.gold))
    return {label: count / len(examples) for label, count in counts.items()}


def _labels(gold: Any) -> tuple[str, ...]:
    return (gold,) if isinstance(gold, str) else gold
