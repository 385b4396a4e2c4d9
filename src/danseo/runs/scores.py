"""The scores of a run: of the reported half and of all of dev, with the floors beside them."""

import math
from collections.abc import Sequence
from typing import Any

from danseo.data.halves import in_half
from danseo.records import Prediction
from danseo.scoring.score import baseline_scores, score
from danseo.tasks.task import Task


def score_halves(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], select_on: str, rounds: int = 1000
) -> dict[str, Any]:
    """Scores of the reported half and of all of dev, each under its name, with what answers without a model score."""
    skip = [] if all(p.probabilities is not None for p in predictions) else list(task.needs_probabilities)
    splits: dict[str, Any] = {}
    floors: dict[str, Any] = {}
    for name in ("report", "dev"):
        positions = in_half(task, examples, name)
        if positions:
            chosen = [examples[position] for position in positions], [predictions[position] for position in positions]
            splits[name] = [s.as_dict() for s in score(task, *chosen, rounds=rounds, skip=skip)]
            found = baseline_scores(task, chosen[0], skip, names=("majority", "random"))
            floors[name] = {floor: {id_: finite(value) for id_, value in by.items()} for floor, by in found.items()}
    return {
        "task": task.name,
        "headline": task.headline,
        "selected_on": select_on,
        "halves": task.halves,
        "reported_on": "dev" if select_on == "dev" else "report",
        "scores": splits,
        "floors": floors,
    }


def headline_of(scores: dict[str, Any], split: str | None = None) -> dict[str, Any] | None:
    """The headline score of a run, on the split that it reports."""
    listed = scores["scores"].get(split or scores["reported_on"]) or scores["scores"].get("dev", [])
    return next((s for s in listed if s["id"] == scores["headline"]), None)


def finite(number: float | None) -> float | None:
    """The number, where JSON has a word for it."""
    return number if number is not None and math.isfinite(number) else None
