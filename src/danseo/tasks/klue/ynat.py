"""KLUE-TC (YNAT): the topic of a news headline."""

from collections.abc import Sequence
from pathlib import Path

from danseo.metrics.classification import accuracy, label_macro_f1
from danseo.metrics.statistic import Metric, Statistic, index_metrics
from danseo.records import Prediction, TextExample
from danseo.rows import read_rows
from danseo.tasktypes import classification
from danseo.tasktypes.base import Task, answers_of, golds_of
from danseo.tasktypes.inputs import text_input

LABELS = ("정치", "경제", "사회", "생활문화", "세계", "IT과학", "스포츠")
HUB_LABELS = ("IT과학", "경제", "사회", "생활문화", "세계", "스포츠", "정치")


def read(path: Path) -> list[TextExample]:
    return [
        TextExample(row.text("guid"), text=row.text("title"), gold=row.label("label", LABELS, HUB_LABELS))
        for row in read_rows(path)
    ]


def measure(examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {
        "ynat/macro_f1@official-1": label_macro_f1(golds, answers),
        "ynat/accuracy@plain-1": accuracy(golds, answers),
    }


MEANINGS = {
    "정치": "정부, 국회, 정당, 외교, 북한",
    "경제": "기업, 금융, 시장, 부동산",
    "사회": "사건, 교육, 노동, 지역 소식",
    "생활문화": "날씨, 건강, 여행, 책, 공연",
    "세계": "다른 나라의 일",
    "IT과학": "정보 기술, 통신, 과학, 게임",
    "스포츠": "경기와 선수",
}

TASK = Task(
    name="ynat",
    short="TC",
    title="topic classification",
    type=classification.TYPE,
    folder="ynat-v1.1",
    extension=".json",
    official_rows={"train": 45678, "dev": 9107},
    read=read,
    labels=LABELS,
    meanings=MEANINGS,
    metrics=index_metrics(
        Metric("ynat/macro_f1@official-1", "mean F1 over the topics that occur", average="macro"),
        Metric("ynat/accuracy@plain-1", "share of right topics"),
    ),
    measure=measure,
    input=text_input("text", "title"),
    columns={"F1": "ynat/macro_f1@official-1"},
    parts=("title",),
    label_word="topic",
    extra_fields=("predefined_news_category", "annotations", "url", "date"),
)
