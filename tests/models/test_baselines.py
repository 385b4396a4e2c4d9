import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from danseo.api.training import configure_training
from danseo.data.find import load
from danseo.errors import DanseoError
from danseo.models.baselines import make_baseline
from danseo.scoring.score import baseline, measure
from danseo.tasks import TASKS
from tests.forms import decompose_example

LINEAR = ("ynat", "sts", "nli", "re")
EVERY = [("majority", name) for name in TASKS] + [("linear", name) for name in LINEAR]


def fitted(baseline: str, task, train, seed=42):
    model = make_baseline(baseline, task, seed)
    model.learn(train)
    return model


def headline(task, examples, predictions) -> float:
    return measure(task, examples, predictions)[task.headline].value()


@pytest.fixture(scope="module")
def case(sample: Path):
    """A fitted model with its task, train and dev, made once each."""
    made = {}

    def get(baseline: str, name: str):
        if (baseline, name) not in made:
            task = TASKS[name]
            train, dev = load(task, "train", sample), load(task, "dev", sample)
            made[baseline, name] = fitted(baseline, task, train), task, train, dev
        return made[baseline, name]

    return get


@pytest.mark.parametrize(("baseline", "name"), EVERY)
def test_answers_are_fair_and_in_order(case, baseline, name):
    model, task, _, dev = case(baseline, name)
    predictions = model.predict(dev)
    assert [p.guid for p in predictions] == [e.guid for e in dev]
    for example, prediction in zip(dev, predictions, strict=True):
        assert task.check_answer(example, prediction.answer) == prediction.answer
    assert task.headline in measure(task, dev, predictions)


@pytest.mark.parametrize(("baseline", "name"), EVERY)
def test_gold_is_not_looked_at(case, baseline, name):
    model, _, _, dev = case(baseline, name)
    assert model.predict([replace(example, gold=None) for example in dev]) == model.predict(dev)


@pytest.mark.parametrize("name", LINEAR)
def test_decomposed_text_is_answered_as_the_composed(case, name):
    model, _, _, dev = case("linear", name)
    assert model.predict([*map(decompose_example, dev)]) == model.predict(dev)


@pytest.mark.parametrize(("baseline", "name"), EVERY)
def test_a_saved_model_answers_the_same(case, baseline, name, tmp_path: Path):
    model, task, _, dev = case(baseline, name)
    model.save(tmp_path / "model")
    again = make_baseline(baseline, task)
    again.load(tmp_path / "model")
    assert again.predict(dev) == model.predict(dev)
    assert {path.suffix for path in (tmp_path / "model").iterdir()} <= {".json", ".npz"}


@pytest.mark.parametrize("name", LINEAR)
def test_saved_arrays_need_no_pickle(case, name, tmp_path: Path):
    case("linear", name)[0].save(tmp_path)
    for path in tmp_path.glob("*.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            assert all(arrays[key].dtype.kind in "fiuU" for key in arrays.files)


@pytest.mark.parametrize(("baseline", "name"), EVERY)
def test_an_answer_does_not_depend_on_its_neighbours(case, baseline, name):
    model, _, _, dev = case(baseline, name)
    assert [p for example in dev[:5] for p in model.predict([example])] == model.predict(dev)[:5]


@pytest.mark.parametrize("name", LINEAR)
def test_linear_beats_majority(case, name):
    (linear, task, _, dev), majority = case("linear", name), case("majority", name)[0]
    baseline = headline(task, dev, majority.predict(dev))  # NaN for sts: a constant correlates with nothing
    assert headline(task, dev, linear.predict(dev)) > (0.0 if math.isnan(baseline) else baseline) + 15


@pytest.mark.parametrize("name", [name for name in LINEAR if name != "sts"])
def test_linear_has_a_probability_for_every_label(case, name):
    model, task, _, dev = case("linear", name)
    for prediction in model.predict(dev):
        assert tuple(prediction.probabilities) == task.labels
        assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-4)
        assert max(prediction.probabilities.values()) == prediction.probabilities[prediction.answer]


@pytest.mark.parametrize("name", ["ynat", "re"])
def test_linear_learns_from_two_labels(case, name):
    _, task, train, dev = case("majority", name)
    labels = list(dict.fromkeys(example.gold for example in train))[:2]
    predictions = fitted("linear", task, [e for e in train if e.gold in labels]).predict(dev)
    assert {p.answer for p in predictions} == set(labels)
    assert all(p.probabilities[label] == 0 for p in predictions for label in task.labels if label not in labels)


@pytest.mark.parametrize("name", TASKS)
def test_majority_learns_from_train_alone(case, name):
    model, task, train, dev = case("majority", name)
    answers, on_itself = model.predict(train), baseline("majority", task, train)
    for answer, expected in zip(answers, on_itself, strict=True):
        assert answer.answer == (pytest.approx(expected.answer) if task.type.name == "regression" else expected.answer)
    if task.type.has_single_label or task.type.name == "regression":
        assert len({prediction.answer for prediction in model.predict(dev)}) == 1


def test_settings_that_a_baseline_has_no_use_for_are_named():
    settings, notes = ("learning_rate=1e-3", "max_train_samples=5", "select_on=dev"), []
    configure_training(TASKS["ynat"], "majority", None, None, settings, {}, notes.append)
    assert notes == ["note: majority has no use for train.learning_rate"]


def test_blind_baselines_see_only_their_part(sample):
    pytest.importorskip("sklearn")
    task = TASKS["re"]
    train, dev = (task.read(sample / task.folder / task.file(split)) for split in ("train", "dev"))
    bags = {}
    for name in ("linear:entities", "linear:sentence"):
        baseline = make_baseline(name, task)
        baseline.learn(train)
        bags[name] = set(baseline.vectorizers)
        assert len(baseline.predict(dev)) == len(dev)
    assert bags == {"linear:entities": {"types_only", "names"}, "linear:sentence": {"text"}}
    with pytest.raises(DanseoError, match="ynat has none"):
        make_baseline("linear:entities", TASKS["ynat"])
