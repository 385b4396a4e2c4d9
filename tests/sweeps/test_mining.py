"""danseo mine with a quick baseline, and training with the weights it wrote."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("sklearn")

from danseo.cli import cli
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.records import Prediction, TextExample
from danseo.runs.store import Run
from danseo.runs.training_data import read_weights
from danseo.sweeps.mining import MiningRule, judge_examples
from danseo.tasks import TASKS
from tests.tiny import quick_config, read_split, tiny_encoder

NEGATIVE, POSITIVE = "no_relation", "per:title"


def test_hard_examples_and_their_weights():
    golds = [NEGATIVE, NEGATIVE, NEGATIVE, NEGATIVE, "per:spouse", NEGATIVE, POSITIVE, NEGATIVE]
    numbers = [0.95, 0.4, 0.54, 0.56, 0.1, 0.05, 0.2, 0.6]
    examples = [TextExample(str(k), "글", gold) for k, gold in enumerate(golds)]
    answers = [Prediction(str(k), NEGATIVE, {NEGATIVE: p, POSITIVE: 1 - p}) for k, p in enumerate(numbers)]
    found = judge_examples(TASKS["re"], examples, answers, MiningRule(min_confidence=0.99))
    assert [k for k, each in enumerate(found) if each.weight > 1] == [1, 2, 5]
    assert [round(found[k].weight, 2) for k in (1, 2, 5)] == [2.75, 2.04, 4.0]
    assert not any(each.is_doubtful for each in found)
    judged = judge_examples(TASKS["re"], examples, answers, MiningRule(min_confidence=0.94))
    assert [(each.example.guid, each.weight) for each in judged if each.is_doubtful] == [("5", 1.0)]


def test_every_example_can_be_hard_without_a_label_for_nothing():
    examples = [TextExample("a", "글", "사회"), TextExample("b", "글", "정치")]
    answers = [Prediction(guid, "정치", {"사회": 0.3, "정치": 0.7}) for guid in ("a", "b")]
    assert [each.weight > 1 for each in judge_examples(TASKS["ynat"], examples, answers, MiningRule())] == [True, False]
    with pytest.raises(DanseoError, match="has no probabilities"):
        judge_examples(TASKS["ynat"], examples[:1], [Prediction("a", "정치")], MiningRule())


@pytest.fixture(scope="module")
def mined(sample: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mined")
    options = ["--data", sample, "--runs", folder / "runs", "--out", folder / "out", "--min-confidence", "0.3"]
    arguments = ["mine", "re", "-m", "linear", "--folds", "2", *options, "--set", "max_train_samples=150", "--json"]
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (folder / "result.json").write_text(result.stdout, "utf-8")
    return folder


def test_every_training_example_has_a_weight(mined, sample):
    result, train = json.loads((mined / "result.json").read_text("utf-8")), read_split(sample, "re", "train", 150)
    weights = read_weights(mined / "out" / "weights.csv")
    assert list(weights) == [example.guid for example in train]
    negatives = {example.guid for example in train if example.gold == NEGATIVE}
    assert result["looked_at"] == len(negatives)
    assert all(weight == 1 for guid, weight in weights.items() if guid not in negatives)
    assert sum(weight > 1 for weight in weights.values()) == result["hard"] > 0
    assert min(weights.values()) >= 1
    assert max(weights.values()) <= 4


def test_the_review_list_has_texts_and_confidences(mined):
    result = json.loads((mined / "result.json").read_text("utf-8"))
    rows = list(csv.DictReader((mined / "out" / "review.csv").read_text("utf-8-sig").splitlines()))
    assert len(rows) == result["to_review"] > 0
    assert [float(row["confidence"]) for row in rows] == sorted((float(r["confidence"]) for r in rows), reverse=True)
    for row in rows:
        assert row["gold"] == NEGATIVE != row["answer"]
        assert row["subject"].rpartition(" (")[0] in row["sentence"]
    page = (mined / "out" / "review.html").read_text("utf-8")
    assert rows[0]["guid"] in page
    assert rows[0]["answer"] in page


def test_the_folds_are_ordinary_runs(mined):
    runs = [Run(path.parent) for path in sorted((mined / "runs").glob("*/config.toml"))]
    assert sorted((run.config.n_folds, run.config.fold) for run in runs) == [(2, 0), (2, 1)]
    assert (mined / "runs" / "mine-re-linear.sweep.jsonl").is_file()


@pytest.mark.parametrize(
    ("task", "option", "complaint"),
    [
        ("sts", [], "one label per example, and sts is none"),
        ("re", ["--folds", 5000], "n_folds = 5000"),
        ("re", ["--boost", 5], "--boost 5 and --cap 4"),
    ],
)
def test_bad_input_is_one_line(task, option, complaint, sample, tmp_path, invoke):
    result = invoke("mine", task, "-m", "linear", "--data", sample, *option)
    assert result.code == 2
    assert complaint in result.complaint
    assert not (tmp_path / "runs").exists()


# Training with weights


@pytest.fixture(scope="module")
def encoder(sample: Path, tmp_path_factory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"), sample)


def test_weights_change_predictions_and_the_name_of_the_run(encoder, sample, tmp_path, mined):
    weights = mined / "out" / "weights.csv"
    moved = tmp_path / "moved.csv"
    moved.write_bytes(weights.read_bytes())
    configs = [
        quick_config("re", encoder, max_train_samples=60, example_weights=str(path)) for path in ("", weights, moved)
    ]
    runs = [run_experiment(config, sample, tmp_path / "runs", quiet=True, device="cpu") for config in configs]
    assert runs[0].path != runs[1].path == runs[2].path, "the content names a run, not the place"
    answers = [run.predictions_path("dev").read_text("utf-8") for run in runs[:2]]
    assert answers[0] != answers[1]


def test_unusable_weights_are_refused(encoder, sample, tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("guid,weight\nnobody,2\n", "utf-8")
    with pytest.raises(DanseoError, match="'nobody'"):
        run_experiment(quick_config("re", encoder, example_weights=str(path)), sample, tmp_path / "runs", quiet=True)
    with pytest.raises(DanseoError, match="linear takes every example once"):
        run_experiment(quick_config("re", "linear", example_weights=str(path)), sample, tmp_path / "runs", quiet=True)
    assert not list(tmp_path.glob("runs/*/config.toml"))
    first = [example.guid for example in read_split(sample, "re", "train", 20)]
    path.write_text("guid,weight\n" + "".join(f"{guid},0\n" for guid in first), "utf-8")
    config = quick_config("re", encoder, max_train_samples=20, example_weights=str(path))
    with pytest.raises(DanseoError, match="all training examples have weight 0"):
        run_experiment(config, sample, tmp_path / "runs", quiet=True, device="cpu")


def test_augmented_examples_are_trained_on_and_counted(encoder, sample, tmp_path):
    configs = [quick_config("re", encoder, max_train_samples=40, augment=ways) for ways in ("", "aeda,inverse")]
    runs = [run_experiment(config, sample, tmp_path / "runs", quiet=True, device="cpu") for config in configs]
    assert "made_examples" not in runs[0].read_json("environment.json")
    made = runs[1].read_json("environment.json")["made_examples"]
    assert set(made) <= {"aeda", "inverse"}
    assert 30 < made["aeda"] <= 40
    steps = [run.read_json("scores.json")["steps"] for run in runs]
    assert steps[1] >= 2 * steps[0] - 1
    guids = [
        [json.loads(line)["guid"] for line in run.predictions_path("dev").read_text("utf-8").splitlines()]
        for run in runs
    ]
    assert guids[0] == guids[1], "dev is unchanged"
