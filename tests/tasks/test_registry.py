"""A new task is one Task and one entry in the registry: every command then works with it."""

import json
import random
from pathlib import Path

import pytest

from danseo.metrics.classification import accuracy
from danseo.metrics.statistic import Metric, index_metrics
from danseo.records import TextExample
from danseo.rows import read_rows
from danseo.tasks import TASKS
from danseo.tasktypes import TASK_TYPES
from danseo.tasktypes.base import Task, answers_of, golds_of
from danseo.tasktypes.inputs import text_input

from .conftest import encoder, make_tiny_encoder, run_json

pytest.importorskip("torch")
pytest.importorskip("sklearn")

LABELS = ("맑음", "비")
WEATHER = Task(
    name="weather",
    short="WX",
    title="does it rain?",
    type=TASK_TYPES["classification"],
    folder="weather-v1",
    extension=".json",
    official_rows={"train": 60, "dev": 40},
    read=lambda path: [
        TextExample(row.text("guid"), text=row.text("text"), gold=row.label("label", LABELS)) for row in read_rows(path)
    ],
    labels=LABELS,
    metrics=index_metrics(Metric("weather/accuracy@1", "share of right labels")),
    measure=lambda examples, predictions: {"weather/accuracy@1": accuracy(golds_of(examples), answers_of(predictions))},
    input=text_input("text"),
    cluster=lambda example: example.text,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weather")
    rng, words = random.Random(0), {"맑음": "해가 하늘 푸른 따뜻한".split(), "비": "우산 젖은 구름 장마".split()}
    for split, count in WEATHER.official_rows.items():
        labels = [LABELS[number % 2] for number in range(count)]
        rows = [
            {"guid": f"weather_{split}_{number}", "text": " ".join(rng.choices(words[label], k=4)), "label": label}
            for number, label in enumerate(labels)
        ]
        path = folder / "data" / WEATHER.folder / WEATHER.file(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    make_tiny_encoder(folder, [word for label in LABELS for word in words[label]])
    return folder


def test_new_task_works_with_every_command(danseo, folder, monkeypatch):
    monkeypatch.setitem(TASKS, WEATHER.name, WEATHER)
    data = ("--data", "data")
    assert "weather" in danseo("tasks")
    assert "official" in danseo("data", "check", "weather", *data)
    assert "맑음" in danseo("data", "stats", "weather", *data)
    models = (["-m", "majority"], ["-m", "linear"], encoder(1), encoder(2))
    majority, linear, *runs = (run_json("train", "weather", *model, *data)["run"] for model in models)
    headline = run_json("eval", linear, *data)["scores"][0]
    assert headline["id"] == "weather/accuracy@1"
    assert headline["value"] > 90
    gold = folder / "data" / WEATHER.folder / WEATHER.file("dev")
    assert "weather/accuracy@1" in danseo("score", "weather", gold, Path(runs[0]) / "predictions" / "dev.jsonl")
    (folder / "lines.txt").write_text("젖은 우산\n", "utf-8")
    assert json.loads(danseo("predict", linear, "lines.txt"))["answer"] == "비"
    assert json.loads(danseo("predict", runs[0], "lines.txt"))["answer"] in LABELS
    assert len(run_json("ensemble", *runs, *data)["scores"]["report"]) == 1
    assert danseo("runs", "--task", "weather").count("weather") >= 5
    assert "weather/accuracy@1" in danseo("compare", linear, majority, *data)
    assert "accuracy" in danseo("runs", "--table", "sweep", "--task", "weather")
