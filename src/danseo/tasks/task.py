"""What a task is: its files, labels, reader, scores, and what a fair answer looks like."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from danseo.files import quote
from danseo.metrics.statistic import Statistic
from danseo.records import Prediction
from danseo.tasks.inputs import Input

Form = Literal["text", "pair", "choices", "relation", "words", "question", "dialogue"]
"""What an example looks like; the kind says what its answer is."""
Kind = Literal["classify", "labels", "score", "tag", "parse", "answer", "track"]

NEWEST_HALVES = 2
"""1: examples go to a half by their guid (dialogues as a whole); 2: whatever shares a cluster goes together."""


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
    form: Form
    input: Input
    """How a user's own lines become examples."""
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
    """What resampling and the halves of dev keep together: passage, premise, dialogue."""
    halves: int = NEWEST_HALVES
    """The rule by which dev is parted; a run's own where it is older."""
    scale: tuple[float, ...] = (0.0, 5.0)
    """The least and the greatest number of a task whose answers are numbers."""
    own: Any = None
    """The description of a task of the user's own."""
    address: str = ""
    """Where a task of the user's own is described, as settings name it."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Column of the benchmark's table -> metric id, in the benchmark's order."""
    shown_metrics: tuple[str, ...] = ()
    """Metrics that the table of a sweep has beside those."""
    parts: tuple[str, ...] = ("text",)
    """What the texts of an example are called."""
    label_word: str = "label"
    """What a label is called."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Label, or type of an entity -> what it means, in Korean words, for those who are asked to choose one."""
    nothing: str = ""
    """The label that says that there is nothing to find."""
    extra_fields: tuple[str, ...] = ()
    """Official fields that no reader needs, so that their absence shows only in a check."""
    sample: str = ""
    """The module of the built-in sample that makes its examples; "" where it has none."""

    @property
    def called(self) -> str:
        """How the settings of a run name the task: the file of a user's own, else its name."""
        return self.address or self.name

    @property
    def headline(self) -> str:
        return next(iter(self.metrics))

    @property
    def table_metrics(self) -> list[str]:
        """The metrics that tables of runs show: the benchmark's, else the first two."""
        official = [id_ for id_ in self.metrics if id_.endswith("@official-1")]
        return list(dict.fromkeys([*self.columns.values(), *official])) or list(self.metrics)[:2]

    def file(self, split: str) -> str:
        """The official name of a split's file."""
        return f"{self.folder}_{split}{self.extension}"


NO_LABEL = ""
"""The answer of a model that gave none, as where the reply of a language model cannot be read: always wrong."""


def check_label(labels: Sequence[str]) -> Callable[[Any, Any], str]:
    """A check that the answer is one of the labels, or none."""

    def check(example: Any, answer: Any) -> str:
        if not isinstance(answer, str) or answer not in (*labels, NO_LABEL):
            raise ValueError(f"unknown label {quote(answer)}; known: {', '.join(labels)}")
        return answer

    return check


def answers_of(predictions: Sequence[Prediction]) -> list[Any]:
    """The answers alone."""
    return [prediction.answer for prediction in predictions]


def golds_of(examples: Sequence[Any]) -> list[Any]:
    """The golds alone."""
    return [example.gold for example in examples]
