"""Texts with any number of labels: read, learnt, scored, blended, exported and used; odd ones are one line."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.data.guessing import describe_files
from danseo.errors import DanseoError
from danseo.models.scratch import Size, make_encoder
from danseo.predict.records import schema
from danseo.predictions.thresholds import label_threshold
from danseo.tasks import get_task

pytest.importorskip("torch")
pytest.importorskip("sklearn")

WORDS = {"맛": "맛있는 맛집 요리".split(), "값": "비싼 저렴한 가격".split(), "친절": "친절한 점원 인사".split()}
QUICK = ("precision=fp32", "attention=eager", "threads=1", "batch_size=16", "epochs=6", "learning_rate=5e-3")


def reviews(count: int, seed: int) -> list[tuple[str, list[str]]]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        labels = [label for label in sorted(WORDS) if rng.random() < 0.5]
        words = [rng.choice(WORDS[label]) for label in labels] + ["가게", str(number)]
        found.append((" ".join(rng.sample(words, len(words))), labels))
    return found


def as_lists(rows) -> str:
    return "".join(json.dumps({"text": text, "topics": labels}, ensure_ascii=False) + "\n" for text, labels in rows)


def as_cells(rows) -> str:
    return "text,tags\n" + "".join(f"{text},{';'.join(labels)}\n" for text, labels in rows)


def as_flags(rows) -> str:
    names = sorted(WORDS)
    lines = ["\t".join([text, *(str(int(name in labels)) for name in names)]) for text, labels in rows]
    return "\n".join(["\t".join(["text", *names]), *lines]) + "\n"


FORMS = {"lists.jsonl": as_lists, "cells.csv": as_cells, "flags.tsv": as_flags}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    for name, write in FORMS.items():
        for split, count in (("train", 120), ("dev", 60)):
            (folder / f"{split}-{name}").write_text(write(reviews(count, len(split))), "utf-8")
    texts = [" ".join([word for words in WORDS.values() for word in words] + ["가게", *map(str, range(120))])] * 3
    make_encoder(folder / "tiny", texts, "bert", Size(layers=1, hidden=32, heads=2, vocabulary=250, positions=40))
    return folder


@pytest.fixture
def danseo(folder, monkeypatch):
    monkeypatch.chdir(folder)

    def run(*arguments: object) -> str:
        found = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.output

    return run


def test_three_ways_of_writing_labels_are_the_same(danseo, folder):
    found = []
    for name in FORMS:
        task = f"{Path(name).stem}.toml"
        danseo("data", "describe", f"train-{name}", f"dev-{name}", "--out", task)
        assert "texts without any label" in danseo("data", "check", task)
        own = get_task(task)
        assert (own.kind, own.own.kind, own.headline) == ("labels", "labels", "labels/micro_f1@1")
        found.append([(e.text, e.gold) for e in own.read(folder / f"train-{name}")])
    assert found[0] == found[1] == found[2]
    assert [list(gold) for _, gold in found[0]] == [labels for _, labels in reviews(120, 5)]
    danseo("data", "stats", "lists.toml", "--plot", "lists.png")
    assert (folder / "lists.png").stat().st_size > 10_000


def trained(danseo, *words: str) -> str:
    return json.loads(danseo("train", "lists.toml", *words, "--json"))["run"]


def headline(run: str, split: str = "dev") -> float:
    scores = json.loads((Path(run) / "scores.json").read_text("utf-8"))
    return scores["scores"][split][0]["value"]


def test_several_labels_from_training_to_use(danseo, folder):
    describe = describe_files([folder / "train-lists.jsonl", folder / "dev-lists.jsonl"], folder / "lists.toml")
    (folder / "lists.toml").write_text(describe, "utf-8")
    settings = [word for setting in QUICK for word in ("--set", setting)]
    majority, linear = (trained(danseo, "-m", name) for name in ("majority", "linear"))
    runs = [trained(danseo, "-m", "tiny", "--seed", seed, *settings) for seed in ("1", "2")]
    assert headline(linear) > 95 > headline(runs[0]) > headline(majority) + 10
    assert "per number of gold labels" in danseo("eval", runs[0], "--details", "--errors", "2")
    assert danseo("compare", *runs, linear)
    assert danseo("runs", "--task", "lists")
    assert danseo("doctor", "lists.toml")
    made = [json.loads(danseo("ensemble", *runs, *words, "--json"))["run"] for words in ([], ["--method", "vote"])]
    made.append(json.loads(danseo("soup", *runs, "--json"))["run"])
    assert all(headline(run) > headline(majority) for run in made)
    assert json.loads((Path(made[0]) / "scores.json").read_text("utf-8"))["ensemble"]["threshold"] is not None
    danseo("report", "runs", "--out", "report.html")
    assert "missed" in (folder / "report.html").read_text("utf-8")
    danseo("export", runs[0], "--to", "onnx", "--out", "exported")
    danseo("export", runs[0], "--to", "card", "--out", "README.md")
    asked = ["맛있는 요리, 비싼 가격", "점원"]
    lines = "".join(json.dumps({"text": text, "id": k}) + "\n" for k, text in enumerate(asked))
    (folder / "asked").write_text(lines, "utf-8")
    answers = [[json.loads(a) for a in danseo("predict", r, "asked").splitlines()] for r in (runs[0], "exported")]
    for one, other in zip(*answers, strict=True):
        assert one["answer"] == other["answer"]
        assert set(one["confidence"]) == set(one["answer"])
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
    pytest.importorskip("jsonschema").validate(answers[0][0], schema())
    assert '"{""' in danseo("predict", runs[0], "asked", "--format", "csv"), "confidences in a cell"


def test_the_threshold_serves_the_metric():
    chances = np.array([[0.9, 0.3], [0.8, 0.2], [0.4, 0.1]])
    golds = np.array([[True, True], [True, False], [False, False]])
    assert label_threshold(chances, golds, "labels/micro_f1@1") == pytest.approx(0.25)
    assert label_threshold(chances, golds[:, ::-1], "labels/subset_accuracy@1") != pytest.approx(0.25)
    assert label_threshold(np.zeros((2, 2)), golds[:2], "labels/macro_f1@1") == pytest.approx(0.5)


TASK = 'kind = "labels"\ntrain = "t.csv"\ndev = 0.5\ntext = "text"\n'


@pytest.mark.parametrize(
    ("task", "train", "complaint"),
    [
        (TASK, "text,tags\n가,A\n", "name the column of the labels (label), or the columns that hold 0 or 1 (labels)"),
        (TASK + 'labels = ["A", "B"]\n', "text,A,B\n가,1,2\n", "line 2: column 'B' should be 0 or 1, not '2'"),
        (TASK + 'label = "tags"\n', "text,tags\n가,A\n나,\n", "A is the only label"),
        (TASK + 'label = "tags"\n', "text,tags\n가,\n나,\n", "there are no labels in it"),
        (TASK + 'label = "tags"\n', 'text,tags\n가,"[1, {}]"\n', "line 2: column 'tags' should hold labels, not {}"),
        (TASK + 'label = "tags"\nlabels = ["A", "B"]\n', "text,tags\n가,C\n", "unknown label 'C'; known: A, B"),
        (TASK + 'label = "tags"\nlabel_separator = ""\n', "text,tags\n가,A\n", "label_separator is empty"),
    ],
)
def test_bad_labels_are_one_line(tmp_path, task, train, complaint):
    (tmp_path / "own.toml").write_text(task, "utf-8")
    (tmp_path / "t.csv").write_text(train, "utf-8")
    with pytest.raises(DanseoError) as caught:
        get_task(str(tmp_path / "own.toml")).read(tmp_path / "t.csv")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("A", "should be a list of labels"),
        (["A", "C"], "unknown label 'C'"),
        (["A", "A"], "stands in the answer twice"),
    ],
)
def test_bad_answers_are_refused(tmp_path, answer, complaint):
    (tmp_path / "own.toml").write_text(TASK + 'label = "tags"\nlabels = ["B", "A"]\n', "utf-8")
    (tmp_path / "t.csv").write_text("text,tags\n가,A\n", "utf-8")
    task = get_task(str(tmp_path / "own.toml"))
    assert task.check_answer(None, ["A", "B"]) == ("B", "A")
    with pytest.raises(ValueError, match=complaint):
        task.check_answer(None, answer)
