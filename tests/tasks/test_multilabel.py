"""Custom tasks with any number of labels: read, trained, scored, combined, exported and used; bad ones are one line."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from danseo.data.schema_inference import describe_files
from danseo.errors import DanseoError
from danseo.inference.output import read_record_schema
from danseo.tasks import get_task
from danseo.tasktypes.decoding import fit_label_threshold

from .conftest import encoder, make_tiny_encoder, run_json, write_lines

pytest.importorskip("torch")
pytest.importorskip("sklearn")

WORDS = {"맛": "맛있는 맛집 요리".split(), "값": "비싼 저렴한 가격".split(), "친절": "친절한 점원 인사".split()}


def reviews(count, seed):
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        labels = [label for label in sorted(WORDS) if rng.random() < 0.5]
        words = [rng.choice(WORDS[label]) for label in labels] + ["가게", str(number)]
        rows.append((" ".join(rng.sample(words, len(words))), labels))
    return rows


def write_lists(path, rows):
    write_lines(path, [{"text": text, "topics": labels} for text, labels in rows])


def write_cells(path, rows):
    path.write_text("text,tags\n" + "".join(f"{text},{';'.join(labels)}\n" for text, labels in rows), "utf-8")


def write_flags(path, rows):
    names = sorted(WORDS)
    lines = ["\t".join([text, *(str(int(name in labels)) for name in names)]) for text, labels in rows]
    path.write_text("\n".join(["\t".join(["text", *names]), *lines]) + "\n", "utf-8")


FORMATS = {"lists.jsonl": write_lists, "cells.csv": write_cells, "flags.tsv": write_flags}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("multilabel")
    for name, write in FORMATS.items():
        for split, count in (("train", 120), ("dev", 60)):
            write(folder / f"{split}-{name}", reviews(count, len(split)))
    words = [word for words in WORDS.values() for word in words]
    make_tiny_encoder(folder, [*words, "가게", *map(str, range(120))], hidden=32)
    return folder


def test_three_formats_of_labels_give_the_same_examples(danseo, folder):
    examples = []
    for name in FORMATS:
        task = f"{Path(name).stem}.toml"
        danseo("data", "describe", f"train-{name}", f"dev-{name}", "--out", task)
        assert "texts without any label" in danseo("data", "check", task)
        custom = get_task(task)
        assert (custom.type.name, custom.headline) == ("multilabel", "labels/micro_f1@1")
        examples.append([(e.text, e.gold) for e in custom.read(folder / f"train-{name}")])
    assert examples[0] == examples[1] == examples[2]
    assert [list(gold) for _, gold in examples[0]] == [labels for _, labels in reviews(120, 5)]
    danseo("data", "stats", "lists.toml", "--plot", "lists.png")
    assert (folder / "lists.png").stat().st_size > 10_000


def read_scores(run):
    return json.loads((Path(run) / "scores.json").read_text("utf-8"))


def headline(run):
    return read_scores(run)["scores"]["dev"][0]["value"]


def test_multilabel_from_training_to_predicting(danseo, folder):
    text = describe_files([folder / "train-lists.jsonl", folder / "dev-lists.jsonl"], folder / "lists.toml")
    (folder / "lists.toml").write_text(text, "utf-8")
    models = (["-m", "majority"], ["-m", "linear"], *(encoder(seed, 6, 5e-3) for seed in (1, 2)))
    majority, linear, *runs = (run_json("train", "lists.toml", *model)["run"] for model in models)
    assert headline(linear) > 95 > headline(runs[0]) > headline(majority) + 10
    assert "per number of gold labels" in danseo("eval", runs[0], "--details", "--errors", "2")
    assert danseo("compare", *runs, linear)
    assert danseo("runs", "--task", "lists")
    assert danseo("doctor", "lists.toml")
    ensemble = run_json("ensemble", *runs)["run"]
    combined = [ensemble, run_json("ensemble", *runs, "--method", "vote")["run"], run_json("soup", *runs)["run"]]
    assert all(headline(run) > headline(majority) for run in combined)
    assert read_scores(ensemble)["ensemble"]["threshold"] is not None
    danseo("report", "runs", "--out", "report.html")
    assert "missed" in (folder / "report.html").read_text("utf-8")
    danseo("export", runs[0], "--to", "onnx", "--out", "exported")
    danseo("export", runs[0], "--to", "card", "--out", "README.md")
    write_lines(folder / "new", [{"text": "맛있는 요리, 비싼 가격", "id": 0}, {"text": "점원", "id": 1}])
    answers = [[json.loads(a) for a in danseo("predict", r, "new").splitlines()] for r in (runs[0], "exported")]
    for one, other in zip(*answers, strict=True):
        assert one["answer"] == other["answer"]
        assert set(one["confidence"]) == set(one["answer"])
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
    pytest.importorskip("jsonschema").validate(answers[0][0], read_record_schema())
    assert '"{""' in danseo("predict", runs[0], "new", "--format", "csv"), "confidences in a cell"


def test_threshold_depends_on_the_metric():
    chances = np.array([[0.9, 0.3], [0.8, 0.2], [0.4, 0.1]])
    golds = np.array([[True, True], [True, False], [False, False]])
    assert fit_label_threshold(chances, golds, "") == pytest.approx(0.25)
    assert fit_label_threshold(chances, golds[:, ::-1], "subset") != pytest.approx(0.25)
    assert fit_label_threshold(np.zeros((2, 2)), golds[:2], "macro") == pytest.approx(0.5)


TASK = 'type = "multilabel"\ntrain = "t.csv"\ndev = 0.5\ntext = "text"\n'


@pytest.mark.parametrize(
    ("task", "train", "message"),
    [
        (TASK, "text,tags\n가,A\n", "(labels)"),
        (TASK + 'labels = ["A", "B"]\n', "text,A,B\n가,1,2\n", "line 2: column 'B' should be 0 or 1, not '2'"),
        (TASK + 'label = "tags"\n', "text,tags\n가,A\n나,\n", "A is the only label"),
        (TASK + 'label = "tags"\n', "text,tags\n가,\n나,\n", "there are no labels in it"),
        (TASK + 'label = "tags"\n', 'text,tags\n가,"[1, {}]"\n', "line 2: column 'tags' should hold labels, not {}"),
        (TASK + 'label = "tags"\nlabels = ["A", "B"]\n', "text,tags\n가,C\n", "unknown label 'C'; known: A, B"),
        (TASK + 'label = "tags"\nlabel_separator = ""\n', "text,tags\n가,A\n", "label_separator is empty"),
    ],
)
def test_bad_labels(tmp_path, task, train, message):
    (tmp_path / "own.toml").write_text(task, "utf-8")
    (tmp_path / "t.csv").write_text(train, "utf-8")
    with pytest.raises(DanseoError) as caught:
        get_task(str(tmp_path / "own.toml")).read(tmp_path / "t.csv")
    assert message in str(caught.value)
