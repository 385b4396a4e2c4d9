"""An ensemble is a model: it predicts what its members predict, combined."""

import json
import shutil
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import danseo
from danseo.data.find import load
from danseo.data.prediction_file import read_predictions
from danseo.ensembling.ensemble import EnsembleOptions, make_ensemble
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.models import ensemble
from danseo.models.base import Answers, LoadOptions
from danseo.models.registry import get_family, load_model
from danseo.records import Prediction
from danseo.runs.store import Run
from danseo.serve.server import serve_in_thread
from danseo.tasks import TASKS, get_task
from danseo.tasktypes.decoding import read_npz

from ..tiny import quick_config, read_split, tiny_encoder

CASES = [(task, "vote" if task == "wos" else "prob") for task in TASKS]
CASES += [("ner", "logit"), ("re", "logit"), ("dp", "vote"), ("mrc", "vote")]
SHORT = "memory is short: the members are loaded one after another, again for each batch"


class SavedModel:
    """Answers the dev set as its run did; the arrays are those that the run saved."""

    reads_pos = False
    loads: list[str] = []  # noqa: RUF012

    def __init__(self, run: Run) -> None:
        self.run = run
        self.loads.append(run.path.name)

    def predict(self, examples) -> Answers:
        path = self.run.predictions_path("dev")
        task = self.run.task
        return Answers(
            read_predictions(path, task, examples, skip=task.needs_probabilities), read_npz(path.with_suffix(".npz"))
        )


@pytest.fixture
def saved_models(monkeypatch) -> list[str]:
    """Replace the models of the members by their saved answers; return which were loaded."""
    monkeypatch.setattr(ensemble, "load_model", lambda run, *_, **__: SavedModel(run))
    SavedModel.loads.clear()
    return SavedModel.loads


def assert_same(found, expected) -> None:
    """Assert that answers and probabilities are equal."""
    assert [p.guid for p in found] == [p.guid for p in expected]
    assert [p.answer for p in found] == [p.answer for p in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert dict(ours.probabilities or {}) == pytest.approx(dict(theirs.probabilities or {}), abs=1e-9)


@pytest.mark.parametrize(("task", "method"), CASES)
def test_its_answers_are_the_combined_answers_of_the_members(three, sample, tmp_path, saved_models, task, method):
    run = make_ensemble(three[task], str(sample), tmp_path, EnsembleOptions(method, "1,2,3"))
    dev = read_split(sample, task, "dev")
    expected = read_predictions(run.predictions_path("dev"), run.task, dev, skip=run.task.needs_probabilities)
    model = load_model(run)
    answers = model.predict(dev)
    assert_same(answers, expected)
    assert saved_models == [path.name for path in three[task]]
    saved = read_npz(run.predictions_path("dev").with_suffix(".npz"))
    assert (answers.evidence is None) == (saved is None)
    for name, array in (saved or {}).items():
        assert np.array_equal(array, answers.evidence[name]), name
    assert list(model.predict([])) == []


@pytest.mark.parametrize("method", ["prob", "vote"])
def test_label_sets_keep_the_threshold_of_the_ensemble(sample, tmp_path, saved_models, method):
    rows = [{"text": f"글 {k}", "labels": ["a", "b", "c"][: k % 4]} for k in range(60)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    description = 'type = "multilabel"\ntrain = "data.jsonl"\ndev = 0.5\ntext = "text"\nlabel = "labels"\n'
    (tmp_path / "own.toml").write_text(description)
    task, paths = get_task(str(tmp_path / "own.toml")), []
    for seed in (1, 2):
        run = run_experiment(quick_config(str(tmp_path / "own.toml"), "majority", seed=seed), sample, tmp_path / "runs")
        dice = np.random.default_rng(seed)
        changed = [
            Prediction(e.guid, ("a",), {n: 0.4 * float(dice.random()) + 0.2 * (n in e.gold) for n in task.labels})
            for e in load(task, "dev", sample)
        ]
        run.write_predictions("dev", changed)
        paths.append(run.path)
    run = make_ensemble(paths, str(sample), tmp_path / "runs", EnsembleOptions(method))
    dev = load(task, "dev", sample)
    assert run.read_json("scores.json")["ensemble"]["threshold"] != 0.5
    assert_same(load_model(run).predict(dev), read_predictions(run.predictions_path("dev"), task, dev))


def test_short_memory_loads_members_one_after_another(three, sample, tmp_path, saved_models, monkeypatch):
    run, notes = make_ensemble(three["ner"], str(sample), tmp_path, EnsembleOptions()), []
    dev = read_split(sample, "ner", "dev")
    together = load_model(run).predict(dev)
    names = [path.name for path in three["ner"]]
    monkeypatch.setattr(ensemble, "read_free_memory", lambda device: -1.0)
    saved_models.clear()
    model = load_model(run, on_note=notes.append)
    assert not model.loaded
    assert notes == [f"loading member 1 of 3: {names[0]}", SHORT]
    saved_models.clear()
    apart = model.predict(dev)
    assert (saved_models, len(model.loaded)) == (names, 0)
    assert_same(apart, together)


def test_an_ensemble_of_ensembles_predicts(three, sample, tmp_path, saved_models, monkeypatch):
    inner = make_ensemble(three["ynat"][:2], str(sample), tmp_path, EnsembleOptions())
    run = make_ensemble([inner.path, three["ynat"][2]], str(sample), tmp_path, EnsembleOptions())
    opened = lambda run, *_, **__: (  # noqa: E731
        ensemble.EnsembleModel(run, run.task, LoadOptions()) if run.path == inner.path else SavedModel(run)
    )
    monkeypatch.setattr(ensemble, "load_model", opened)
    dev = read_split(sample, "ynat", "dev")
    assert_same(load_model(run).predict(dev), read_predictions(run.predictions_path("dev"), run.task, dev))


def edit_json(path: Path, change) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda run, member: shutil.rmtree(member), "is missing"),
        (lambda run, member: (member / "scores.json").unlink(), "unfinished"),
        (lambda run, member: (member / "predictions" / "dev.jsonl").write_text("{}"), "has changed since"),
        (
            lambda run, member: edit_json(run / "members.json", lambda d: d["members"][0].update(path=".")),
            "contains itself",
        ),
        (lambda run, member: edit_json(run / "members.json", lambda d: d["members"].pop()), "do not fit"),
        (lambda run, member: edit_json(run / "scores.json", lambda d: d.pop("ensemble")), "do not fit"),
        (
            lambda run, member: edit_json(
                run / "scores.json", lambda d: d["ensemble"]["members"][0].update(weight="x")
            ),
            "do not fit|not what danseo writes",
        ),
        (lambda run, member: (run / "members.json").unlink(), "has no model"),
    ],
)
def test_a_damaged_ensemble_is_one_line(three, sample, tmp_path, invoke, damage, complaint):
    paths = [Path(shutil.copytree(path, tmp_path / path.name)) for path in three["ynat"]]
    run = make_ensemble(paths, str(sample), tmp_path / "runs", EnsembleOptions())
    damage(run.path, paths[0])
    lines = tmp_path / "lines.txt"
    lines.write_text("코스피 상승\n", "utf-8")
    result = invoke("predict", run.path, lines)
    assert result.code == 2
    assert len(result.complaint) < 400
    with pytest.raises(DanseoError, match=complaint):
        load_model(run)


def test_members_of_another_task_and_prediction_files_are_refused(three, sample, tmp_path):
    run = make_ensemble(three["ynat"], str(sample), tmp_path, EnsembleOptions())
    edit_json(run.path / "members.json", lambda d: d["members"][0].update(path=str(three["nli"][0])))
    with pytest.raises(DanseoError, match="is a run of nli, not ynat"):
        load_model(run)
    foreign = tmp_path / "foreign.jsonl"
    shutil.copy(three["ynat"][0] / "predictions" / "dev.jsonl", foreign)
    run = make_ensemble([foreign, *three["ynat"][1:]], str(sample), tmp_path, EnsembleOptions("vote"))
    with pytest.raises(DanseoError, match=r"foreign.jsonl is a prediction file without a model"):
        load_model(run)


def test_an_ensemble_is_not_trained(invoke, three, sample, tmp_path):
    run = make_ensemble(three["ynat"], str(sample), tmp_path, EnsembleOptions())
    assert get_family(run.config.model).name == "ensemble"
    result = invoke("train", "ynat", "-m", run.config.model, "--data", sample)
    assert (result.code, "danseo ensemble" in result.complaint) == (2, True)


# With encoders


@pytest.fixture(scope="module")
def encoder_runs(sample, tmp_path_factory) -> list[Path]:
    """Two taggers with different tokenizers."""
    folder = tmp_path_factory.mktemp("encoders")
    encoders = [tiny_encoder(folder / f"e{size}", sample, vocabulary=size) for size in (1500, 1000)]
    settings = {"max_train_samples": 16, "evals_per_epoch": 1, "max_length": 96}
    configs = [quick_config("ner", encoder, seed=1, **settings) for encoder in encoders]
    return [run_experiment(config, sample, folder / "runs", quiet=True).path for config in configs]


def test_encoders_answer_as_their_saved_predictions_combined(encoder_runs, sample, tmp_path):
    run = make_ensemble(encoder_runs, str(sample), tmp_path, EnsembleOptions())
    dev = read_split(sample, "ner", "dev")
    saved = read_predictions(run.predictions_path("dev"), run.task, dev)
    assert [p.answer for p in load_model(run, "cpu").predict(dev)] == [p.answer for p in saved]


def test_every_command_accepts_an_ensemble(encoder_runs, sample, tmp_path, invoke):
    run = make_ensemble(encoder_runs, str(sample), tmp_path / "runs", EnsembleOptions())
    text = "김 대리는 어제 부산 지사에 갔다."
    (tmp_path / "lines.txt").write_text(text + "\n", "utf-8")
    result = invoke("predict", run.path, tmp_path / "lines.txt", "--tags")
    predicted = json.loads(result.out)
    assert result.code == 0
    assert len(predicted["tags"]) == len(text)
    assert all(tag["confidence"] is not None for tag in predicted["tags"] if tag["character"].strip())
    opened = danseo.open(run.path, device="cpu").predict(text)
    assert list(opened[0].answer) == predicted["answer"]
    file = TASKS["ner"].file("dev")
    shutil.copy(sample / TASKS["ner"].folder / file, tmp_path / "other.tsv")
    evaluated = [
        invoke("eval", run.path, *more, "--data", sample, "--json").json
        for more in ((), ("--file", tmp_path / "other.tsv", "--precision", "fp32"))
    ]
    assert evaluated[0]["scores"] == evaluated[1]["scores"]
    bundle = tmp_path / "bundle.zip"
    assert invoke("export", run.path, "--to", "bundle", "--out", bundle).code == 0
    assert invoke("score", "--bundle", bundle, "--data", sample).code == 0
    assert "not an encoder" in invoke("export", run.path, "--to", "onnx").complaint
    with serve_in_thread(run.path) as server:
        body = json.dumps({"text": text}).encode()
        request = urllib.request.Request(f"{server.address}predict", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            served = json.loads(response.read())
    assert predicted["answer"] in (served.get("answer"), *(r["answer"] for r in served.get("predictions", ())))
