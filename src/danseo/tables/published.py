"""Published scores on KLUE, each with its split, its metric and its source (published.csv)."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError, suggest
from danseo.files import quote
from danseo.tasktypes.base import Task


@dataclass(frozen=True)
class PublishedScore:
    """A score that somebody published."""

    model: str
    model_id: str
    """The model on the Hub; empty if it is not known, or if the model was changed."""
    size: str
    task: str
    metric: str
    """An id of danseo if the definition is the same, else the name that the source uses."""
    value: float
    split: str
    reported_by: str
    """authors (of KLUE or of the model), rerun (of the official code) or others."""
    status: str
    """valid, doubtful or invalid."""
    source: str
    note: str

    @property
    def is_valid(self) -> bool:
        return self.status == "valid"


@cache
def read_published() -> tuple[PublishedScore, ...]:
    """Return all published scores that come with danseo."""
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as file:
        return tuple(PublishedScore(**{**row, "value": float(row["value"])}) for row in csv.DictReader(file))  # type: ignore[arg-type]


def filter_published(task: Task | None = None, model: str = "", split: str = "") -> list[PublishedScore]:
    """Return the scores of a task, of models whose name or Hub id contains a text, and of a split; at least one."""
    scores = [score for score in read_published() if task is None or score.task == task.name]
    if not scores:
        raise DanseoError(f"no published scores for {task and task.name}; there are some for the eight tasks of KLUE")
    if split and split not in (splits := dict.fromkeys(score.split for score in scores)):
        raise DanseoError(f"no published scores on the split {quote(split)}; known: {'; '.join(splits)}")
    text = model.lower()
    found = [s for s in scores if text in f"{s.model}\n{s.model_id}".lower() and split in ("", s.split)]
    if not found:
        where = "".join((f" for {task.name}" if task else "", f" on {split}" if split else ""))
        hint = suggest(model, {name for score in scores for name in (score.model, score.model_id) if name})
        raise DanseoError(f"no published score of {quote(model)}{where}; {hint}`danseo published` lists all models")
    return found


def find_model_scores(name: str) -> list[PublishedScore]:
    """Return the valid scores of exactly this model, by its Hub id (with or without revision) or its name."""
    wanted, valid = name.split("@")[0].lower(), [score for score in read_published() if score.is_valid]
    ids = {score.model_id for score in valid if wanted in (score.model.lower(), score.model_id.lower())}
    return [score for score in valid if score.model.lower() == wanted or (score.model_id and score.model_id in ids)]


def find_comparable_scores(metric: str, split: str = "dev") -> list[PublishedScore]:
    """Return the valid scores of the same metric on the same split, best first."""
    found = [s for s in read_published() if s.is_valid and (s.metric, s.split) == (metric, split)]
    return sorted(found, key=lambda score: -score.value)


def make_published_table(scores: Sequence[PublishedScore]) -> Table:
    """Return the scores under a heading per metric and split, best first."""
    order = {key: position for position, key in enumerate(dict.fromkeys((s.task, s.metric, s.split) for s in scores))}
    ranked = sorted(scores, key=lambda s: (order[s.task, s.metric, s.split], -s.value))
    rows = [(_name_group(s), s.model, s.value, s.reported_by, _show_status(s), s.source, s.note) for s in ranked]
    columns = ("metric and split", "model", "score", "reported by", "status", "source", "note")
    note = "only scores of the same metric on the same split are comparable; metrics without an id are the source's own"
    return Table("published scores", columns, rows, note, keys=1, section="metric and split").without_empty()


def _name_group(score: PublishedScore) -> str:
    return f"{'' if '/' in score.metric else f'{score.task}: '}{score.metric}, {score.split}"


def _show_status(score: PublishedScore) -> str | None:
    return None if score.is_valid else score.status


def make_published_document(scores: Sequence[PublishedScore]) -> dict[str, Any]:
    """Return the scores for JSON."""
    return {"count": len(scores), "scores": [asdict(score) for score in scores]}
