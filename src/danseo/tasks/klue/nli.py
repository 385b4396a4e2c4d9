"""KLUE-NLI: does the premise entail the hypothesis, contradict it, or neither?"""

from collections.abc import Sequence
from pathlib import Path

from danseo.metrics.classification import accuracy, label_macro_f1
from danseo.metrics.statistic import Metric, Statistic, index_metrics
from danseo.records import Prediction, TextExample
from danseo.rows import Row, read_rows
from danseo.tasktypes import classification
from danseo.tasktypes.base import Task, answers_of, golds_of
from danseo.tasktypes.inputs import pair_input

LABELS = ("entailment", "contradiction", "neutral")
HUB_LABELS = ("entailment", "neutral", "contradiction")


def read(path: Path) -> list[TextExample]:
    return [
        TextExample(
            row.text("guid"),
            text=row.text("premise"),
            pair=row.text("hypothesis"),
            gold=row.label(_find_label_key(row), LABELS, HUB_LABELS),
            source=row.optional_text("genre" if "genre" in row.values else "source"),
        )
        for row in read_rows(path)
    ]


def _find_label_key(row: Row) -> str:
    """Return the name of the label field: gold_label in the official files, label on the Hub."""
    return "label" if "label" in row.values and "gold_label" not in row.values else "gold_label"


def measure(examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {"nli/accuracy@official-1": accuracy(golds, answers), "nli/macro_f1@plain-1": label_macro_f1(golds, answers)}


MEANINGS = {
    "entailment": "전제가 참이면 가설도 참이다 (함의)",
    "contradiction": "전제가 참이면 가설은 거짓이다 (모순)",
    "neutral": "전제만으로는 가설이 참인지 알 수 없다 (중립)",
}

TASK = Task(
    name="nli",
    short="NLI",
    title="natural language inference",
    type=classification.TYPE,
    folder="klue-nli-v1.1",
    extension=".json",
    official_rows={"train": 24998, "dev": 3000},
    read=read,
    labels=LABELS,
    meanings=MEANINGS,
    metrics=index_metrics(
        Metric("nli/accuracy@official-1", "share of right labels"),
        Metric("nli/macro_f1@plain-1", "mean F1 over the labels that occur", average="macro"),
    ),
    measure=measure,
    input=pair_input("premise", "hypothesis"),
    columns={"acc": "nli/accuracy@official-1"},
    parts=("premise", "hypothesis"),
    cluster=lambda example: example.text,
)
