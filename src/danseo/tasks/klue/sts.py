"""KLUE-STS: how similar are two sentences, from 0 to 5?"""

from collections.abc import Sequence
from pathlib import Path

from danseo.metrics.regression import pearson, threshold_f1
from danseo.metrics.statistic import Metric, Statistic, index_metrics
from danseo.records import Prediction, TextExample
from danseo.rows import Row, read_rows
from danseo.tasktypes import regression
from danseo.tasktypes.base import Task, answers_of, golds_of
from danseo.tasktypes.inputs import pair_input


def read(path: Path) -> list[TextExample]:
    """Return the examples; gold is real-label, the exact mean of the votes, not label, the rounded one."""
    return [
        TextExample(
            row.text("guid"),
            text=row.text("sentence1"),
            pair=row.text("sentence2"),
            gold=_read_gold(row.child("labels")),
            source=row.optional_text("source"),
        )
        for row in read_rows(path)
    ]


def _read_gold(labels: Row) -> float:
    mean = labels.number("real-label")
    if not 0 <= mean <= 5:
        raise labels.error(f"field 'real-label' should be from 0 to 5, not {mean}")
    return mean


def describe_outliers(predictions: Sequence[Prediction]) -> str:
    """Return how many answers are outside of the scale; "" if none are."""
    count = sum(not 0 <= prediction.answer <= 5 for prediction in predictions)
    return f"{count} of {len(predictions)} answers are outside 0 to 5" if count else ""


def measure(examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {"sts/pearson@official-1": pearson(golds, answers), "sts/f1@official-1": threshold_f1(golds, answers)}


TASK = Task(
    name="sts",
    short="STS",
    title="semantic textual similarity",
    type=regression.TYPE,
    folder="klue-sts-v1.1",
    extension=".json",
    official_rows={"train": 11668, "dev": 519},
    read=read,
    metrics=index_metrics(
        Metric("sts/pearson@official-1", "correlation with the mean vote, times 100"),
        Metric("sts/f1@official-1", "F1 of the pairs at 3.0 or above"),
    ),
    measure=measure,
    remark=describe_outliers,
    input=pair_input("sentence1", "sentence2"),
    columns={"r": "sts/pearson@official-1", "F1": "sts/f1@official-1"},
    parts=("sentence 1", "sentence 2"),
    label_word="score",
    extra_fields=("annotations",),
)
