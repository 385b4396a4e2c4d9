"""KLUE-STS: how similar are two sentences, from 0 to 5?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.files import quote
from danseo.metrics.regression import pearson, threshold_f1
from danseo.metrics.statistic import Statistic
from danseo.records import Prediction, TextExample
from danseo.rows import Row, read_rows
from danseo.tasks.inputs import pair_input
from danseo.tasks.task import Task, answers_of, golds_of


def read(path: Path) -> list[TextExample]:
    """The gold is real-label, the exact mean of the votes; label is that mean rounded to one decimal."""
    return [
        TextExample(
            row.text("guid"),
            text=row.text("sentence1"),
            pair=row.text("sentence2"),
            gold=_gold(row.child("labels")),
            source=row.optional_text("source"),
        )
        for row in read_rows(path)
    ]


def _gold(labels: Row) -> float:
    mean = labels.number("real-label")
    if not 0 <= mean <= 5:
        raise labels.error(f"field 'real-label' should be from 0 to 5, not {mean}")
    return mean


def remark(predictions: Sequence[Prediction]) -> str:
    """What is to be said of answers that a regression took a little beyond the scale."""
    count = sum(not 0 <= prediction.answer <= 5 for prediction in predictions)
    return f"{count} of {len(predictions)} answers lie outside 0 to 5" if count else ""


def check_answer(example: TextExample, answer: Any) -> float:
    if isinstance(answer, bool) or not isinstance(answer, int | float) or not -5 <= answer <= 10:
        raise ValueError(f"the answer should be a number from 0 to 5, not {quote(answer)}")
    return float(answer)


def measure(examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {
        "sts/pearson@official-1": pearson(golds, answers),
        "sts/f1@official-1": threshold_f1(golds, answers),
    }


TASK = Task(
    name="sts",
    short="STS",
    title="semantic textual similarity",
    kind="score",
    folder="klue-sts-v1.1",
    extension=".json",
    official_rows={"train": 11668, "dev": 519},
    read=read,
    metrics={
        "sts/pearson@official-1": "correlation with the mean vote, times 100",
        "sts/f1@official-1": "F1 of the pairs at 3.0 or above",
    },
    measure=measure,
    check_answer=check_answer,
    remark=remark,
    form="pair",
    input=pair_input("sentence1", "sentence2"),
    columns={"r": "sts/pearson@official-1", "F1": "sts/f1@official-1"},
    parts=("sentence 1", "sentence 2"),
    label_word="score",
    extra_fields=("annotations",),
    sample="sts",
)
