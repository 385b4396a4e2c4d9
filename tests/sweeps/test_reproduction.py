"""danseo reproduce: official recipes with a tiny encoder, compared with made-up published scores."""

from pathlib import Path

import pytest

from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.sweeps.preparation import SweepOptions
from danseo.sweeps.reproduction import Reproduction, ScoreComparison, find_published_model, plan_reproduction, reproduce
from danseo.tables.published import PublishedScore
from tests.tiny import tiny_encoder

METRIC = "ner/entity_f1@official-1"


@pytest.mark.parametrize(
    ("value", "interval", "published", "reruns", "verdict"),
    [
        (83.66, (83.0, 84.3), 83.81, (83.66, 84.94), "inside"),
        (84.944, (84.0, 85.3), 83.81, (83.66, 84.94), "inside"),
        (83.65, (83.0, 84.3), 83.65, (83.66, 84.94), "below"),
        (84.95, (84.0, 85.3), 84.95, (83.66, 84.94), "above"),
        (86.0, (85.2, 86.8), 86.3, None, "inside"),
        (86.0, (85.2, 86.8), 86.9, None, "below"),
        (86.0, (85.2, 86.8), 85.0, None, "above"),
        (86.0, None, 86.0, None, "inside"),
        (86.0, (85.2, 86.8), None, None, None),
    ],
)
def test_the_verdict_goes_by_reruns_and_else_by_the_interval(value, interval, published, reruns, verdict):
    assert ScoreComparison("ner", METRIC, value, interval, (42,), published, reruns).verdict == verdict


def test_the_plan_has_the_official_recipe_of_every_task():
    sweep = plan_reproduction("klue/roberta-base", [], [42])
    assert len(sweep.grid["task"]) == 8
    configs = sweep.configs(lambda model, recipe, trust: None)
    assert {(each.recipe, each.train.select_on, each.seed) for each in configs} == {("official", "dev", 42)}
    assert plan_reproduction("mini", ["NER", "ner"], [1, 2, 1]).grid == {"task": ["ner"], "seed": [1, 2]}


@pytest.mark.parametrize("model", ["linear", "llm:folder", "server:x", "gliner:x", "spacy"])
def test_only_encoders_have_official_recipes(model):
    with pytest.raises(DanseoError, match="encoders"):
        plan_reproduction(model, [], [42])


def test_published_scores_are_found_by_id_name_or_option():
    by_id = find_published_model("klue/roberta-base", "")
    assert by_id == find_published_model("KLUE-RoBERTa-base", "") == find_published_model("folder", "klue/roberta-base")
    assert {score.reported_by for score in by_id} == {"authors", "rerun"}
    assert find_published_model("folder", "") == []
    with pytest.raises(DanseoError, match="klue/roberta-base"):
        find_published_model("folder", "klue/roberta-bas")


def publish(value: float, reported_by: str) -> PublishedScore:
    return PublishedScore(
        "Test", "test/model", "", "ner", METRIC, value, "dev", reported_by, "valid", "test", "version 1"
    )


def test_a_finished_run_is_compared_and_not_trained_again(little: Path, sample: Path, tmp_path: Path):
    model = str(tiny_encoder(tmp_path / "tiny", sample, layers=1))
    options = SweepOptions(little, tmp_path / "runs", slots=1, quiet=True, settings=("train.epochs=1",))
    sweep = plan_reproduction(model, ["ner"], [7])
    changed = {"task": "ner", "seed": 7, "train.epochs": 1.0}
    run_experiment(sweep.config(changed), little, tmp_path / "runs", device="cpu", quiet=True)

    def compare(*scores: PublishedScore) -> Reproduction:
        return reproduce(sweep, options, scores, "test/model")

    first = compare()
    (record,) = first.done
    assert (record.settings["encoder.architecture"], record.settings["recipe"]) == ("official", "official")
    assert "no published scores" in first.tables()[0].note
    entity, _ = first.comparisons
    assert (entity.metric, entity.seeds, entity.verdict) == (METRIC, (7,), None)
    written = (record.run.path / "scores.json").stat().st_mtime_ns
    for low, high, verdict in ((0, 100, "inside"), (-2, -1, "above"), (101, 102, "below")):
        found = compare(publish(50, "authors"), publish(low, "rerun"), publish(high, "rerun"))
        assert [each.verdict for each in found.comparisons] == [verdict, None]
    document = found.as_dict()
    assert (document["published_model"], document["comparable"]) == ("test/model", False)
    assert document["scores"][0]["published"] == 50
    differing = {each["what"] for each in document["differences"]}
    assert differing == {"model", "data", "settings", "seeds", "versions"}
    assert ["ner: train.epochs = 1.0" in each["here"] for each in document["differences"]].count(True) == 1
    assert (record.run.path / "scores.json").stat().st_mtime_ns == written
    assert "WARNING" in found.tables()[0].note


def test_the_command_estimates_the_time_and_refuses_bad_input(invoke, little: Path, tmp_path: Path):
    result = invoke("reproduce", "klue/roberta-base", "--tasks", "ner,ynat", "--data", little, "--dry-run", "--json")
    assert result.code == 0
    assert [run["state"] for run in result.json["runs"]] == ["new", "new"]
    assert result.json["makespan_seconds"] > 0
    assert not (tmp_path / "runs").exists()
    assert "no published scores" in invoke("reproduce", "mini", "--tasks", "ner", "--data", little, "--dry-run").err
    for arguments in (
        ["linear"],
        ["mini", "--as", "klue/robert-base"],
        ["mini", "--tasks", "nre"],
        ["mini", "--tasks", "ner", "--data", "nothing"],
        ["./nothing", "--data", str(little)],
        ["mini", "--set", "seed=1", "--data", str(little)],
    ):
        wrong = invoke("reproduce", *arguments)
        assert wrong.code == 2, arguments
        assert wrong.complaint


@pytest.mark.lengthy
@pytest.mark.nightly
def test_all_eight_tasks_are_trained_and_compared(danseo, sample: Path, tmp_path: Path):
    model = tiny_encoder(tmp_path / "tiny", sample, "roberta", layers=1)
    arguments = ["reproduce", model, "--as", "klue/roberta-base", "--data", sample, "--json"]
    arguments += ["--set", "train.epochs=1", "--set", "max_train_samples=16", "--set", "train.evals_per_epoch=1"]
    result = danseo(*arguments)
    assert result.code == 0, result.err
    scores = result.json["scores"]
    assert len(scores) == 14
    assert {each["verdict"] for each in scores} == {"below"}
    ranges = {each["metric"]: each["reruns"] for each in scores if each["reruns"]}
    assert ranges[METRIC] == [83.66, 84.94]
    assert ranges["dp/las@official-1"] == [87.23, 88.18]
    forecast = danseo(*arguments, "--dry-run").json
    assert {run["state"] for run in forecast["runs"]} == {"done"}
    assert forecast["makespan_seconds"] == 0
