"""A ninth task in a few lines goes through every command: one file and one line is all that a task takes."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.metrics.classification import accuracy
from danseo.models.scratch import Size, make_encoder
from danseo.records import TextExample
from danseo.rows import read_rows
from danseo.tasks import TASKS
from danseo.tasks.inputs import text_input
from danseo.tasks.task import Task, answers_of, check_label, golds_of

pytest.importorskip("torch")
pytest.importorskip("sklearn")

LABELS = ("맑음", "비")
NINTH = Task(
    name="weather",
    short="WX",
    title="does it rain?",
    kind="classify",
    form="text",
    folder="weather-v1",
    extension=".json",
    official_rows={"train": 60, "dev": 40},
    read=lambda path: [
        TextExample(row.text("guid"), text=row.text("text"), gold=row.label("label", LABELS)) for row in read_rows(path)
    ],
    labels=LABELS,
    metrics={"weather/accuracy@1": "share of right labels"},
    measure=lambda examples, predictions: {"weather/accuracy@1": accuracy(golds_of(examples), answers_of(predictions))},
    check_answer=check_label(LABELS),
    input=text_input("text"),
    cluster=lambda example: example.text,
)
QUICK = ("precision=fp32", "attention=eager", "threads=1", "batch_size=16", "epochs=1", "learning_rate=1e-3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ninth")
    rng, words = random.Random(0), {"맑음": "해가 하늘 푸른 따뜻한", "비": "우산 젖은 구름 장마"}
    for split, count in NINTH.official_rows.items():
        rows = [
            {
                "guid": f"weather_{split}_{number}",
                "text": " ".join(rng.choices(words[label].split(), k=4)),
                "label": label,
            }
            for number in range(count)
            for label in [LABELS[number % 2]]
        ]
        path = folder / "data" / NINTH.folder / NINTH.file(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    make_encoder(
        folder / "tiny", words.values(), "bert", Size(layers=1, hidden=16, heads=1, vocabulary=80, positions=40)
    )
    return folder


@pytest.fixture
def danseo(folder, monkeypatch):
    monkeypatch.setitem(TASKS, NINTH.name, NINTH)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DANSEO_CACHE", str(folder / "cache"))

    def run(*arguments: object, stdin: str | None = None):
        found = CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.output

    return run


def test_a_ninth_task_goes_through_every_command(danseo, folder):
    data = ("--data", "data")
    assert "weather" in danseo("tasks")
    assert "official" in danseo("data", "check", "weather", *data)
    assert "맑음" in danseo("data", "stats", "weather", *data)
    encoder = ("-m", "tiny", *(word for setting in QUICK for word in ("--set", setting)))
    models = {
        "majority": ("-m", "majority"),
        "linear": ("-m", "linear"),
        "s1": encoder,
        "s2": (*encoder, "--seed", "2"),
    }
    runs = {
        name: json.loads(danseo("train", "weather", *words, *data, "--json"))["run"] for name, words in models.items()
    }
    found = json.loads(danseo("eval", runs["linear"], *data, "--json"))
    assert found["scores"][0]["id"] == "weather/accuracy@1"
    assert found["scores"][0]["value"] > 90
    gold, answers = folder / "data" / NINTH.folder / NINTH.file("dev"), Path(runs["s1"]) / "predictions" / "dev.jsonl"
    assert "weather/accuracy@1" in danseo("score", "weather", gold, answers)
    (folder / "lines.txt").write_text("젖은 우산\n", "utf-8")
    assert json.loads(danseo("predict", runs["linear"], "lines.txt"))["answer"] == "비"
    assert json.loads(danseo("predict", runs["s1"], "lines.txt"))["answer"] in LABELS
    made = json.loads(danseo("ensemble", runs["s1"], runs["s2"], *data, "--json"))
    assert len(made["scores"]["report"]) == 1
    assert danseo("runs", "--task", "weather").count("weather") >= 5
    assert "weather/accuracy@1" in danseo("compare", runs["linear"], runs["majority"], *data)
    assert "accuracy" in danseo("runs", "--table", "sweep", "--task", "weather")
