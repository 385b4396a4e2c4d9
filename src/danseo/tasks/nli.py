"""KLUE-NLI: does the premise entail the hypothesis, contradict it, or neither?"""

from collections.abc import Sequence
from pathlib import Path

from danseo.metrics.classification import accuracy, label_macro_f1
from danseo.metrics.statistic import Statistic
from danseo.records import Prediction, TextExample
from danseo.rows import Row, read_rows
from danseo.tasks.inputs import pair_input
from danseo.tasks.task import Task, answers_of, check_label, golds_of

LABELS = ("entailment", "contradiction", "neutral")
HUB_LABELS = ("entailment", "neutral", "contradiction")


def read(path: Path) -> list[TextExample]:
    return [
        TextExample(
            row.text("guid"),
            text=row.text("premise"),
            pair=row.text("hypothesis"),
            gold=row.label(_label_key(row), LABELS, HUB_LABELS),
            source=row.optional_text("genre" if "genre" in row.values else "source"),
        )
        for row in read_rows(path)
    ]


def _label_key(row: Row) -> str:
    """The raw files say gold_label, the Hub label."""
    return "label" if "label" in row.values and "gold_label" not in row.values else "gold_label"


def measure(examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {
        "nli/accuracy@official-1": accuracy(golds, answers),
        "nli/macro_f1@plain-1": label_macro_f1(golds, answers),
    }


MEANINGS = {
    "entailment": "전제가 참이면 가설도 참이다 (함의)",
    "contradiction": "전제가 참이면 가설은 거짓이다 (모순)",
    "neutral": "전제만으로는 가설이 참인지 알 수 없다 (중립)",
}

TASK = Task(
    name="nli",
    short="NLI",
    title="natural language inference",
    kind="classify",
    folder="klue-nli-v1.1",
    extension=".json",
    official_rows={"train": 24998, "dev": 3000},
    read=read,
    labels=LABELS,
    meanings=MEANINGS,
    metrics={
        "nli/accuracy@official-1": "share of right labels",
        "nli/macro_f1@plain-1": "mean F1 over the labels that occur",
    },
    measure=measure,
    check_answer=check_label(LABELS),
    form="pair",
    input=pair_input("premise", "hypothesis"),
    columns={"acc": "nli/accuracy@official-1"},
    parts=("premise", "hypothesis"),
    cluster=lambda example: example.text,
    sample="nli",
)
