"""The scores of a run on the report split and on the whole dev set, with baselines."""

from collections.abc import Mapping, Sequence
from typing import Any

from danseo.data.dev_split import take_split
from danseo.display.table import Table
from danseo.files import to_finite
from danseo.records import Prediction
from danseo.scoring.score import baseline_scores, score
from danseo.tasktypes.base import Task


def score_splits(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], select_on: str, rounds: int = 1000
) -> dict[str, Any]:
    """Return the scores on the report split and on the whole dev set, with the baselines."""
    skip = [] if all(p.probabilities is not None for p in predictions) else list(task.needs_probabilities)
    scores: dict[str, Any] = {}
    baselines: dict[str, Any] = {}
    for split in ("report", "dev"):
        chosen = take_split(task, examples, predictions, split)
        if chosen[0]:
            scores[split] = [s.as_dict() for s in score(task, *chosen, rounds=rounds, skip=skip)]
            constant = baseline_scores(task, chosen[0], skip, names=("majority", "random"))
            baselines[split] = {
                name: {id_: to_finite(value) for id_, value in values.items()} for name, values in constant.items()
            }
    return {
        "task": task.name,
        "headline": task.headline,
        "selected_on": select_on,
        "reported_on": "dev" if select_on == "dev" else "report",
        "scores": scores,
        "baselines": baselines,
    }


def read_extra_tables(scores: Mapping[str, Any]) -> list[Table]:
    """Return the tables that the family of the model added to the scores of a run."""
    return [
        Table(each["title"], tuple(each["columns"]), [tuple(row) for row in each["rows"]], each.get("note", ""))
        for each in scores.get("extra_tables", ())
        if all(len(row) == len(each["columns"]) for row in each["rows"])
    ]


def get_headline(scores: dict[str, Any], split: str | None = None) -> dict[str, Any] | None:
    """Return the headline score of a run on its reported split."""
    listed = scores["scores"].get(split or scores["reported_on"]) or scores["scores"].get("dev", [])
    return next((s for s in listed if s["id"] == scores["headline"]), None)
