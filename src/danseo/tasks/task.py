"""What a task is: its files, labels, reader, scores, and what a fair answer looks like."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from danseo.files import quote
from danseo.metrics.statistic import Statistic
from danseo.records import Prediction

Kind = Literal["classify", "score", "tag", "parse", "answer", "track"]


@dataclass(frozen=True)
class Task:
    """Everything true of a task, nothing about models."""

    name: str
    short: str
    title: str
    kind: Kind
    folder: str
    extension: str
    official_rows: Mapping[str, int]
    read: Callable[[Path], list[Any]]
    metrics: Mapping[str, str]
    """Metric id -> what it is, in a few words; the first one is the headline."""
    measure: Callable[[Sequence[Any], Sequence[Prediction]], dict[str, Statistic]]
    check_answer: Callable[[Any, Any], Any]
    """The answer in its proper form; ValueError says what is wrong with it."""
    remark: Callable[[Sequence[Prediction]], str] = lambda predictions: ""
    """What is to be said of answers that are taken as they are, but odd."""
    labels: tuple[str, ...] = ()
    rows: Callable[[Sequence[Any]], int] = len
    """How many rows of the official file the examples make up."""
    companions: Mapping[str, int] = field(default_factory=dict)
    """Other official files of the task -> how many entries they hold."""
    needs_probabilities: tuple[str, ...] = ()
    """Metrics that rank probabilities."""
    cluster: Callable[[Any], str] | None = None
    """What resampling keeps together: the passage of a question, the dialogue of a turn."""

    @property
    def headline(self) -> str:
        return next(iter(self.metrics))

    def file(self, split: str) -> str:
        """The official name of a split's file."""
        return f"{self.folder}_{split}{self.extension}"


def check_label(labels: Sequence[str]) -> Callable[[Any, Any], str]:
    """A check that the answer is one of the labels."""

    def check(example: Any, answer: Any) -> str:
        if not isinstance(answer, str) or answer not in labels:
            raise ValueError(f"unknown label {quote(answer)}; known: {', '.join(labels)}")
        return answer

    return check


def answers_of(predictions: Sequence[Prediction]) -> list[Any]:
    """The answers alone."""
    return [prediction.answer for prediction in predictions]


def golds_of(examples: Sequence[Any]) -> list[Any]:
    """The golds alone."""
    return [example.gold for example in examples]
