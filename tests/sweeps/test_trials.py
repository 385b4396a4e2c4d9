"""Trials of a search as runs of a sweep, and the search space."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")

import optuna

from danseo.data.dev_split import split_indices
from danseo.data.find import load
from danseo.data.prediction_file import read_predictions
from danseo.errors import DanseoError
from danseo.runs.index import read_record
from danseo.runs.lock import RunLocks
from danseo.scoring.score import measure
from danseo.sweeps.driver import Driver, SweepLog
from danseo.sweeps.local_executor import LocalExecutor
from danseo.sweeps.plan import RuntimeEstimator
from danseo.sweeps.search_space import Choice, Range, read_space, sample_settings
from danseo.sweeps.sweep import SearchTrials
from danseo.sweeps.sweep_file import read_sweep
from danseo.tasks import TASKS

SEARCH = """
task = "ynat"
model = "majority"
epochs = 4
[search]
trials = {trials}
sampler = "random"
pruner = "{pruner}"
startup = 1
[search.space]
{space}
"""
RATES = "learning_rate = {low = 1e-5, high = 1e-3, log = true}"

# Pretends to train: four evaluations, whose score is the learning rate.
LEARNER = """
import json, time
from danseo.sweeps import worker

def pretend(order, run):
    run.start(worker_config(order))
    for epoch in range(1, 5):
        run.log({"step": epoch, "epoch": epoch, "score": order.settings["train.learning_rate"] * 1e5})
        time.sleep(0.4)
    run.write_json("scores.json", {})
    return "done", ""

def worker_config(order):
    from danseo.config.run import RunConfig
    from danseo.config.base import update_config
    return update_config(RunConfig(task="ynat", model="majority"), order.settings)

worker._run = pretend
worker.main()
"""


def write_search(tmp_path: Path, trials: int = 3, pruner: str = "none", space: str = RATES) -> Path:
    path = tmp_path / "find.toml"
    path.write_text(SEARCH.format(trials=trials, pruner=pruner, space=space))
    return path


def load_study(runs: Path):
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return optuna.load_study(study_name="find", storage=JournalStorage(JournalFileBackend(str(runs / "find.study"))))


def test_a_space_is_read_and_sampled():
    table = {
        "learning_rate": {"low": 1e-5, "high": 1e-4, "log": True},
        "train": {"batch_size": {"low": 8, "high": 64, "step": 8}},
        "epochs": {"low": 1, "high": 3},
        "model": ["a", "b"],
        "patience": ["none", 3],
    }
    space = read_space(table)
    assert space["train.learning_rate"] == Range(1e-5, 1e-4, False, True)
    assert space["train.patience"] == Choice((None, 3))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    found = [sample_settings(study.ask(), space) for _ in range(50)]
    assert all(settings.keys() == space.keys() for settings in found)
    assert {settings["train.batch_size"] for settings in found} <= set(range(8, 65, 8))
    assert all(1e-5 <= settings["train.learning_rate"] <= 1e-4 for settings in found)
    assert sum(settings["train.learning_rate"] < 3.2e-5 for settings in found) > 12, "even on the log scale"
    assert {settings["model"] for settings in found} == {"a", "b"}
    assert {type(settings["train.epochs"]) for settings in found} == {float}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"lerning_rate": [1]}, "did you mean train.learning_rate"),
        ({"seed": []}, "an empty list"),
        ({"seed": 3}, "should be a list of choices, or"),
        ({"epochs": {"low": 1}}, "needs low and high"),
        ({"epochs": {"low": 3, "high": 1}}, "should be a number below"),
        ({"epochs": {"low": 1, "high": 3, "size": 1}}, "not 'size'"),
        ({"epochs": {"low": 1, "high": 3, "k" * 3000: 1}}, "not 'kkk"),
        ({"warmup_ratio": {"low": 0, "high": 1, "log": True}}, "true needs a low above 0"),
        ({"batch_size": {"low": 1, "high": 8, "step": 0.5}}, "is a whole number"),
        ({"warmup_ratio": {"low": 0, "high": 2}}, "should be from 0 to 1"),
        ({"lr_scheduler_type": {"low": 1, "high": 2}}, "is no number"),
    ],
)
def test_a_bad_space_is_refused(table, complaint):
    with pytest.raises(DanseoError, match=complaint) as refused:
        read_space(table)
    assert len(str(refused.value)) < 200


@pytest.mark.lengthy
def test_trials_are_runs_with_the_score_of_the_select_split(invoke, sample, tmp_path):
    space = 'model = ["majority", "linear"]\nseed = [1, 2]'
    path, runs = write_search(tmp_path, 2, space=space), tmp_path / "runs"
    result = invoke("sweep", path, "--data", sample, "--slots", 2, "--json")
    assert (result.code, result.json["failed"]) == (0, 0), result.err
    trials = load_study(runs).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 2
    task, dev = TASKS["ynat"], load(TASKS["ynat"], "dev", sample)
    positions = split_indices(task, dev, "select")
    values = set()
    for row in result.json["runs"]:
        predictions = read_predictions(Path(row["run"]) / "predictions" / "dev.jsonl", task, dev)
        chosen = [dev[position] for position in positions], [predictions[position] for position in positions]
        values.add(measure(task, *chosen)[task.headline].value())
        assert row["score"]["value"] not in values, "what is reported is not what was searched on"
    assert {trial.value for trial in trials} == values
    assert invoke("sweep", path, "--data", sample, "--json").code == 0
    assert len(load_study(runs).trials) == 2, "the same command finds nothing left to do"
    invoke("sweep", write_search(tmp_path, 3, space=space), "--data", sample, "--json")
    assert len(load_study(runs).trials) == 3


@pytest.mark.lengthy
def test_bad_trials_are_pruned(planner, tmp_path, monkeypatch):
    worker = tmp_path / "learner.py"
    worker.write_text(LEARNER)
    trials = SearchTrials(read_sweep(write_search(tmp_path, 6, "median")), planner)
    monkeypatch.setattr(trials, "score", lambda point: point.config.train.learning_rate)
    executor = LocalExecutor(["cpu"] * 2, [sys.executable, str(worker)])
    log = SweepLog(planner.runs / "find.sweep.jsonl")
    clock = RuntimeEstimator([], planner, "cpu")
    driver = Driver(trials, executor, RunLocks(planner.runs), clock, log, root=planner.root, quiet=True)
    queue = driver.run()
    states = [trial.state.name for trial in load_study(planner.runs).trials]
    assert len(states) == 6
    assert set(states) == {"COMPLETE", "PRUNED"}
    pruned = queue.in_state("pruned")
    assert len(pruned) == states.count("PRUNED")
    best = max(trial.value for trial in load_study(planner.runs).trials if trial.value is not None)
    for entry in pruned:
        record = read_record(driver.points[entry.name].run)
        assert (record.status, record.note[:14]) == ("pruned", "pruned at step")
        assert record.settings["train.learning_rate"] < best
    assert not executor.children


def test_trials_of_a_killed_process_are_adopted(planner, tmp_path, monkeypatch):
    path = write_search(tmp_path, 3)
    (left, other) = SearchTrials(read_sweep(path), planner).next_points(2)
    again = SearchTrials(read_sweep(path), planner)
    monkeypatch.setattr(again, "score", lambda point: 1.0)
    points = again.next_points(2)
    assert {point.name for point in points} == {left.name, other.name}
    (new,) = again.next_points(5)
    assert new.name not in (left.name, other.name), "the seed moves on, so that no point comes twice"
    assert again.is_exhausted
    for point in [*points, new]:
        again.report_end(point, "done")
    assert [trial.value for trial in load_study(planner.runs).trials] == [1.0] * 3


def test_two_trials_with_the_same_settings_are_one_run(planner, tmp_path, monkeypatch):
    trials = SearchTrials(read_sweep(write_search(tmp_path, 6, space="seed = [1, 2]")), planner)
    monkeypatch.setattr(trials, "score", lambda point: float(point.config.seed))
    points = trials.next_points(6)
    assert len(points) == 2
    for point in points:
        trials.report_end(point, "done")
    assert len(load_study(planner.runs).trials) == 6
    assert all(trial.value == trial.params["seed"] for trial in load_study(planner.runs).trials)


def test_a_study_of_another_space_is_refused(planner, tmp_path):
    SearchTrials(read_sweep(write_search(tmp_path)), planner)
    changed = write_search(tmp_path, space="learning_rate = {low = 1e-5, high = 1e-2, log = true}")
    with pytest.raises(DanseoError, match="searched with other settings or another space"):
        SearchTrials(read_sweep(changed), planner)
    changed.write_text(changed.read_text().replace("startup = 1", 'storage = "nosuchdb://x"'))
    with pytest.raises(DanseoError, match=r"\[search\] storage nosuchdb://x cannot be used"):
        SearchTrials(read_sweep(changed), planner)
