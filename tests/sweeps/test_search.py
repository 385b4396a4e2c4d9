"""Searches: trials are ordinary runs, judged on the select half, pruned, adopted, and never too many."""

import json
import sys
from pathlib import Path

import pytest

optuna = pytest.importorskip("optuna")

from danseo.data.find import load  # noqa: E402
from danseo.data.halves import in_half  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.predictions.file import read_predictions  # noqa: E402
from danseo.runs.index import read_record  # noqa: E402
from danseo.runs.locks import Locks  # noqa: E402
from danseo.scoring.score import measure  # noqa: E402
from danseo.search.space import Choice, Range, read_space, sample  # noqa: E402
from danseo.sweeps.clock import Clock  # noqa: E402
from danseo.sweeps.driver import Driver, Journal  # noqa: E402
from danseo.sweeps.local import LocalExecutor  # noqa: E402
from danseo.sweeps.search import Trials  # noqa: E402
from danseo.sweeps.space import read_sweep  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402

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

# Writes an evaluation every fifth of a second: the score is the peak rate; good ones end after four of them.
LEARNER = """
import json, time
from danseo.sweeps import worker

def pretend(order, run):
    run.start(worker_config(order))
    for epoch in range(1, 5):
        run.log({"step": epoch, "epoch": epoch, "score": order.settings["train.learning_rate"] * 1e5})
        time.sleep(0.6)
    run.write_json("scores.json", {})
    return "done", ""

def worker_config(order):
    from danseo.config import RunConfig
    from danseo.settings.values import with_settings
    return with_settings(RunConfig(task="ynat", model="majority"), order.settings)

worker._run = pretend
worker.main()
"""


def write(tmp_path: Path, trials: int = 3, pruner: str = "none", space: str = RATES) -> Path:
    path = tmp_path / "find.toml"
    path.write_text(SEARCH.format(trials=trials, pruner=pruner, space=space))
    return path


def study(runs: Path):
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
    found = []
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    whole = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(50):
        found.append(sample(whole.ask(), space))
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
        ({"epochs": {"low": 1, "high": 3, "size": 1}}, "not size"),
        ({"warmup": {"low": 0, "high": 1, "log": True}}, "true needs a low above 0"),
        ({"batch_size": {"low": 1, "high": 8, "step": 0.5}}, "is a whole number"),
        ({"warmup": {"low": 0, "high": 2}}, "should be from 0 to 1"),
        ({"schedule": {"low": 1, "high": 2}}, "is no number"),
    ],
)
def test_a_bad_space_is_refused(table, complaint):
    with pytest.raises(DanseoError, match=complaint):
        read_space(table)


def test_trials_are_runs_and_the_select_half_decides(danseo, sample, tmp_path):
    space = 'model = ["majority", "linear"]\nseed = [1, 2]'
    path, runs = write(tmp_path, 3, space=space), tmp_path / "runs"
    result = danseo("sweep", path, "--data", sample, "--slots", 2, "--json")
    assert (result.code, result.json["failed"]) == (0, 0), result.err
    trials = study(runs).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    task, dev = TASKS["ynat"], load(TASKS["ynat"], "dev", sample)
    positions = in_half(task, dev, "select")
    values = set()
    for row in result.json["runs"]:
        predictions = read_predictions(Path(row["run"]) / "predictions" / "dev.jsonl", task, dev)
        chosen = [dev[position] for position in positions], [predictions[position] for position in positions]
        values.add(measure(task, *chosen)[task.headline].value())
        assert row["score"]["value"] not in values, "what is reported is not what was searched on"
    assert {trial.value for trial in trials} == values
    assert danseo("sweep", path, "--data", sample, "--json").code == 0
    assert len(study(runs).trials) == 3, "the same command finds nothing left to do"
    danseo("sweep", write(tmp_path, 5, space=space), "--data", sample, "--json")
    assert len(study(runs).trials) == 5


def test_hopeless_trials_are_stopped_and_marked(planner, tmp_path, monkeypatch):
    worker = tmp_path / "learner.py"
    worker.write_text(LEARNER)
    trials = Trials(read_sweep(write(tmp_path, 6, "median")), planner)
    monkeypatch.setattr(trials, "score", lambda point: point.config.train.learning_rate)
    executor = LocalExecutor(["cpu"] * 2, [sys.executable, str(worker)])
    journal = Journal(planner.runs / "find.sweep.jsonl")
    clock = Clock([], planner, "cpu")
    driver = Driver(trials, executor, Locks(planner.runs), clock, journal, root=planner.root, quiet=True)
    schedule = driver.run()
    states = [trial.state.name for trial in study(planner.runs).trials]
    assert len(states) == 6
    assert set(states) == {"COMPLETE", "PRUNED"}
    pruned = schedule.of("pruned")
    assert len(pruned) == states.count("PRUNED")
    best = max(trial.value for trial in study(planner.runs).trials if trial.value is not None)
    for entry in pruned:
        record = read_record(driver.points[entry.name].run)
        assert (record.status, record.note[:14]) == ("pruned", "pruned at step")
        assert record.settings["train.learning_rate"] < best
    assert not executor.children


def test_a_trial_that_a_killed_process_left_is_gone_on_with(planner, tmp_path, monkeypatch):
    path = write(tmp_path, 3)
    (left, other) = Trials(read_sweep(path), planner).more(2)
    again = Trials(read_sweep(path), planner)
    monkeypatch.setattr(again, "score", lambda point: 1.0)
    points = again.more(2)
    assert {point.name for point in points} == {left.name, other.name}
    (new,) = again.more(5)
    assert new.name not in (left.name, other.name), "the seed moves on, so that no point comes twice"
    assert again.is_dry
    for point in [*points, new]:
        again.ended(point, "done")
    assert [trial.value for trial in study(planner.runs).trials] == [1.0] * 3


def test_a_point_that_comes_twice_is_run_once_and_told_twice(planner, tmp_path, monkeypatch):
    trials = Trials(read_sweep(write(tmp_path, 6, space="seed = [1, 2]")), planner)
    monkeypatch.setattr(trials, "score", lambda point: float(point.config.seed))
    points = trials.more(6)
    assert len(points) == 2
    for point in points:
        trials.ended(point, "done")
    assert len(study(planner.runs).trials) == 6
    assert all(trial.value == trial.params["seed"] for trial in study(planner.runs).trials)


def test_a_study_of_another_space_is_refused(danseo, little, planner, tmp_path):
    Trials(read_sweep(write(tmp_path)), planner)
    changed = write(tmp_path, space="learning_rate = {low = 1e-5, high = 1e-2, log = true}")
    with pytest.raises(DanseoError, match="searched with other settings or another space"):
        Trials(read_sweep(changed), planner)
    changed.write_text(changed.read_text().replace("startup = 1", 'storage = "nosuchdb://x"'))
    with pytest.raises(DanseoError, match=r"\[search\] storage nosuchdb://x cannot be used"):
        Trials(read_sweep(changed), planner)


def test_a_database_is_a_storage_too(planner, tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text().replace("startup = 1", f"storage = {json.dumps(f'sqlite:///{tmp_path}/s.db')}"))
    (first,) = Trials(read_sweep(path), planner).more(1)
    (again,) = Trials(read_sweep(path), planner).more(1)
    assert first.name == again.name
