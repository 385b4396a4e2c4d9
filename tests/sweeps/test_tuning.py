"""danseo tune with a target that pretends to train: pruning, sharing, resuming, results."""

import json
import multiprocessing
import os
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from danseo.config.base import read_settings, to_toml, update_config
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.runs.lock import Owner, RunLocks
from danseo.sweeps.optuna_study import OptunaStudy
from danseo.sweeps.search_space import read_space_file
from danseo.sweeps.tuning import TuneOptions, study_spec, study_tables, tune, write_results
from danseo.sweeps.tuning_targets import TrialResult
from tests.sweeps.conftest import wait_for

ELSEWHERE = {"host": "another", "pid": 1, "start": "1", "token": "t"}
SPACE = """
learning_rate = {low = 1e-5, high = 1e-3, log = true}
batch_size = {low = 8, high = 64, step = 8}
lr_scheduler_type = ["linear", "cosine"]
"""


@dataclass
class FakeTarget:
    """A target whose value is best for a learning rate of 1e-4; it records every start in a file."""

    folder: Path
    seconds: float = 0.0
    reports: list = field(default_factory=list)
    config: RunConfig = field(default_factory=lambda: RunConfig(task="ner", model="nothing"))
    command: str = "train"
    metric: str = "closeness"
    fails_above: float = 1.0

    @property
    def home(self):
        return self.folder

    def identity(self):
        return {}

    def run(self, settings, on_score):
        rate = settings["train.learning_rate"]
        with (self.folder / "starts.jsonl").open("a") as file:
            file.write(json.dumps(settings) + "\n")
        if rate > self.fails_above:
            raise DanseoError("the loss is nan")
        value = -abs(rate - 1e-4) * 1e5
        for step in range(1, 6):
            time.sleep(self.seconds / 5)
            on_score(step, value * (6 - step))
        return TrialResult(value, 5, str(self.folder))

    def report(self, result):
        self.reports.append(result)
        return {"on": "other examples", "scores": [{"id": "closeness", "value": 1.0}]}

    def best_config(self, settings):
        return to_toml(update_config(self.config, settings), without=("task", "model", "recipe"))


@pytest.fixture
def options(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE, "utf-8")

    def make(**more):
        return TuneOptions(**{"space": tmp_path / "space.toml", "trials": 6, **more})

    return make


@pytest.fixture(params=["file", "database"])
def storage(request, tmp_path):
    return "" if request.param == "file" else f"sqlite:///{tmp_path / 's.db'}"


def open_again(target, options):
    """Open the Optuna study as another process does."""
    return OptunaStudy(study_spec(target, options, read_space_file(options.space, RunConfig)), options.trials).study


def read_starts(folder):
    path = folder / "starts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_study_keeps_to_its_space_and_finds_the_better_settings(tmp_path, options):
    study = tune(FakeTarget(tmp_path), options(trials=25, pruner="none"))
    tried = read_starts(tmp_path)
    assert len(tried) == 25
    assert all(1e-5 <= settings["train.learning_rate"] <= 1e-3 for settings in tried)
    assert {settings["train.batch_size"] % 8 for settings in tried} == {0}
    assert {settings["train.lr_scheduler_type"] for settings in tried} == {"linear", "cosine"}
    closeness = [abs(settings["train.learning_rate"] - 1e-4) for settings in tried]
    assert abs(study.study.best_params["train.learning_rate"] - 1e-4) == min(closeness)
    assert sum(closeness[15:]) < sum(closeness[:10]), "the later trials should be the better ones"


def test_intermediate_values_prune_bad_trials(tmp_path, options):
    study = tune(FakeTarget(tmp_path), options(trials=15))
    states = [trial.state.name for trial in study.trials()]
    assert states.count("PRUNED") > 0
    assert states[:4] == ["COMPLETE"] * 4
    pruned = [trial for trial in study.trials() if trial.state.name == "PRUNED"]
    assert all(1 <= len(trial.intermediate_values) < 5 for trial in pruned)


def test_the_same_command_resumes(tmp_path, options):
    for trials in (3, 5, 5):
        tune(FakeTarget(tmp_path), options(trials=trials))
        assert len(read_starts(tmp_path)) == trials
    assert len({json.dumps(settings) for settings in read_starts(tmp_path)}) == 5


def test_trials_have_the_same_numbers_everywhere(tmp_path, options):
    target, notes = FakeTarget(tmp_path), []
    document = write_results(tune(target, options(trials=5, pruner="none"), notes.append), target, tmp_path / "out")
    numbers = [re.match(r"trial (\d+) \((\d) of 5\): learning_rate", note) for note in notes]
    assert [found.groups() for found in numbers if found] == [(str(n), str(n)) for n in range(1, 6)]
    best = max(document["trials"], key=lambda row: row["value"])
    assert [row["trial"] for row in document["trials"]] == [1, 2, 3, 4, 5]
    assert document["best"]["trial"] == document["report"]["trial"] == best["trial"]
    assert "4 to go, ETA" in notes[1]
    trials, report = study_tables(document)
    assert trials.rows[0][0] == best["trial"]
    assert report.title.startswith(f"trial {best['trial']} on")
    assert "trials have the best value" not in trials.note
    for row in document["trials"]:
        row["value"] = best["value"]
    assert "5 trials have the best value" in study_tables(document)[0].note
    rows = (tmp_path / "out" / "trials.csv").read_text("utf-8").splitlines()
    assert [row.split(",")[0] for row in rows] == ["trial", "1", "2", "3", "4", "5"]


def test_failed_trials_count(tmp_path, options):
    study = tune(FakeTarget(tmp_path, fails_above=2e-4), options(trials=12, pruner="none"))
    failed = [trial for trial in study.trials() if trial.state.name == "FAIL"]
    assert {trial.user_attrs["error"] for trial in failed} == {"the loss is nan"}
    assert study.count() == len(study.trials()) == 12
    target = FakeTarget(tmp_path, fails_above=0)
    with pytest.raises(DanseoError, match="the last one failed: the loss is nan"):
        write_results(tune(target, options(trials=2, study="other")), target, tmp_path / "out")


def test_results_are_written_and_the_best_trial_reported_once(tmp_path, options):
    target = FakeTarget(tmp_path)
    for _ in range(2):
        document = write_results(tune(target, options(trials=8)), target, tmp_path / "out")
    assert len(target.reports) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("best.toml", "trials.csv", "history.png", "importance.png", "result.json")
    }
    best = read_settings(tmp_path / "out" / "best.toml", RunConfig)
    assert best["train.learning_rate"] == document["best"]["settings"]["train.learning_rate"]
    assert sum(document["importance"].values()) == pytest.approx(1)


def work(folder, options, seconds):
    tune(FakeTarget(folder, seconds=seconds), options)


@pytest.mark.lengthy
def test_two_processes_create_and_share_a_study(tmp_path, options):
    storage = f"sqlite:///{tmp_path / 's.db'}"
    chosen = options(trials=6, pruner="none", study="shared", storage=storage)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(tmp_path, chosen, 0.3)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert 6 <= len(read_starts(tmp_path)) <= 7  # both may take the last one at the same moment
    assert tune(FakeTarget(tmp_path), chosen).count() == len(read_starts(tmp_path))


def test_a_killed_trial_is_tried_again_at_once(tmp_path, options):
    chosen = options(trials=2, pruner="none", study="killed")  # silent for 40 s: too long to wait for
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(tmp_path, chosen, 60))
    worker.start()
    wait_for(lambda: read_starts(tmp_path))
    worker.kill()
    worker.join(10)
    assert worker.exitcode == -signal.SIGKILL
    study = tune(FakeTarget(tmp_path), chosen)
    first, *others = read_starts(tmp_path)
    assert len(others) == 2
    assert first in others
    assert [trial.state.name for trial in study.trials()].count("COMPLETE") == 2


def test_a_trial_without_an_owner_is_tried_again(tmp_path, options, storage):
    chosen = options(trials=2, pruner="none", study="unsigned", heartbeat=(1, 1), storage=storage)
    open_again(FakeTarget(tmp_path), chosen).ask()  # and dies
    study = tune(FakeTarget(tmp_path), chosen)
    assert [trial.state.name for trial in study.trials()].count("COMPLETE") == 2
    assert not [trial for trial in study.trials() if trial.state.name == "RUNNING"]


@pytest.mark.parametrize("is_file", [True, False])
def test_a_trial_of_another_machine_has_a_heartbeat(is_file, tmp_path, options):
    storage = "" if is_file else f"sqlite:///{tmp_path / 's.db'}"
    chosen = options(trials=2, pruner="none", study="elsewhere", storage=storage)
    trial = open_again(FakeTarget(tmp_path), chosen).ask()
    lock = RunLocks(tmp_path).acquire("elsewhere.trial-1", Owner(**ELSEWHERE))
    trial.set_user_attr("owner", ELSEWHERE)
    study = tune(FakeTarget(tmp_path), chosen)
    assert sorted(trial.state.name for trial in study.trials()) == ["COMPLETE", "RUNNING"]
    if is_file:
        os.utime(lock.path, (0, 0))  # no heartbeat for long
        study = tune(FakeTarget(tmp_path), chosen)
        assert sorted(trial.state.name for trial in study.trials()) == ["COMPLETE", "COMPLETE", "FAIL"]
