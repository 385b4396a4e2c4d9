"""Studies: trials, pruning, sharing, resuming and reporting, with a target that only pretends to train."""

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

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.runs.locks import Locks, Owner
from danseo.search.space import read_space_file
from danseo.search.study import open_study
from danseo.settings.values import with_settings
from danseo.settings.written import read_settings, to_toml
from danseo.tuning.study import TuneOptions, asked_for, counted, tune
from danseo.tuning.tables import study_tables, write_results
from danseo.tuning.targets import Outcome

ELSEWHERE = {"host": "another", "pid": 1, "born": "1", "token": "t"}
SPACE = """
learning_rate = {low = 1e-5, high = 1e-3, log = true}
batch_size = {low = 8, high = 64, step = 8}
schedule = ["linear", "cosine"]
"""


@dataclass
class Pretence:
    """The closer the rate is to 1e-4 the better; it evaluates five times and notes every start in a file."""

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
        return Outcome(value, 5, str(self.folder))

    def report(self, outcome):
        self.reports.append(outcome)
        return {"on": "other examples", "scores": [{"id": "closeness", "value": 1.0}]}

    def best_config(self, settings):
        return to_toml(with_settings(self.config, settings), without=("task", "model", "recipe"))


@pytest.fixture
def options(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE, "utf-8")

    def make(**more):
        return TuneOptions(**{"space": tmp_path / "space.toml", "trials": 6, **more})

    return make


@pytest.fixture(params=["file", "database"])
def storage(request, tmp_path):
    """Both sorts of storages: what several processes do must not depend on it."""
    return "" if request.param == "file" else f"sqlite:///{tmp_path / 's.db'}"


def asked(target, options):
    return open_study(asked_for(target, options, read_space_file(options.space, RunConfig)))


def starts(folder):
    path = folder / "starts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_study_keeps_to_its_space_and_finds_the_better_settings(tmp_path, options):
    study = tune(Pretence(tmp_path), options(trials=25, pruner="none"))
    tried = starts(tmp_path)
    assert len(tried) == 25
    assert all(1e-5 <= settings["train.learning_rate"] <= 1e-3 for settings in tried)
    assert {settings["train.batch_size"] % 8 for settings in tried} == {0}
    assert {settings["train.schedule"] for settings in tried} == {"linear", "cosine"}
    closeness = [abs(settings["train.learning_rate"] - 1e-4) for settings in tried]
    assert abs(study.best_params["train.learning_rate"] - 1e-4) == min(closeness)
    assert sum(closeness[15:]) < sum(closeness[:10]), "the later trials should be the better ones"


def test_intermediate_values_prune_bad_trials(tmp_path, options):
    study = tune(Pretence(tmp_path), options(trials=15))
    states = [trial.state.name for trial in study.trials]
    assert states.count("PRUNED") > 0
    assert states[:4] == ["COMPLETE"] * 4
    pruned = [trial for trial in study.trials if trial.state.name == "PRUNED"]
    assert all(1 <= len(trial.intermediate_values) < 5 for trial in pruned)


def test_the_same_command_goes_on_and_then_does_nothing(tmp_path, options):
    target = Pretence(tmp_path)
    tune(target, options(trials=3))
    tune(target, options(trials=5))
    assert len(starts(tmp_path)) == 5
    tune(target, options(trials=5))
    assert len(starts(tmp_path)) == 5
    assert len({json.dumps(settings) for settings in starts(tmp_path)}) == 5


def test_trials_have_the_same_numbers_everywhere(tmp_path, options):
    """Once the notes counted from 1 and the table from 0."""
    target, notes = Pretence(tmp_path), []
    document = write_results(tune(target, options(trials=5, pruner="none"), notes.append), target, tmp_path / "out")
    heard = [re.match(r"trial (\d+) \((\d) of 5\): learning_rate", note) for note in notes]
    assert [found.groups() for found in heard if found] == [(str(n), str(n)) for n in range(1, 6)]
    best = max(document["trials"], key=lambda row: row["value"])
    assert [row["trial"] for row in document["trials"]] == [1, 2, 3, 4, 5]
    assert document["best"]["trial"] == document["report"]["trial"] == best["trial"]
    told = next(note for note in notes if note.startswith(f"trial {best['trial']}: "))
    assert f"{best['value']:.4g}" in told
    trials, report = study_tables(document)
    assert trials.rows[0][0] == best["trial"]
    assert report.title.startswith(f"trial {best['trial']} on")
    written = (tmp_path / "out" / "trials.csv").read_text("utf-8").splitlines()
    assert [line.split(",")[0] for line in written] == ["trial", "1", "2", "3", "4", "5"]
    assert "4 to go, ETA" in notes[1]


def test_a_tie_is_said_to_be_one(tmp_path, options):
    target = Pretence(tmp_path)
    document = write_results(tune(target, options(trials=3, pruner="none")), target, tmp_path / "out")
    assert "trials have the best value" not in study_tables(document)[0].note
    for row in document["trials"]:
        row["value"] = document["best"]["value"]
    assert "3 trials have the best value" in study_tables(document)[0].note


def test_a_failed_trial_counts_and_the_others_go_on(tmp_path, options):
    study = tune(Pretence(tmp_path, fails_above=2e-4), options(trials=12, pruner="none"))
    failed = [trial for trial in study.trials if trial.state.name == "FAIL"]
    assert failed
    assert all(trial.user_attrs["error"] == "the loss is nan" for trial in failed)
    assert counted(study) == len(study.trials) == 12


def test_no_finished_trial_is_one_line(tmp_path, options):
    target = Pretence(tmp_path, fails_above=0)
    with pytest.raises(DanseoError, match="no trial finished; the last one failed: the loss is nan"):
        write_results(tune(target, options(trials=2)), target, tmp_path / "out")


def test_results_are_written_and_the_other_examples_looked_at_once(tmp_path, options):
    target = Pretence(tmp_path)
    for _ in range(2):
        document = write_results(tune(target, options(trials=8)), target, tmp_path / "out")
    assert len(target.reports) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("best.toml", "trials.csv", "history.png", "importance.png", "result.json"),
    }
    best = read_settings(tmp_path / "out" / "best.toml", RunConfig)
    assert best["train.learning_rate"] == document["best"]["settings"]["train.learning_rate"]
    assert len((tmp_path / "out" / "trials.csv").read_text("utf-8").splitlines()) == 9
    assert sum(document["importance"].values()) == pytest.approx(1)
    assert [table.title for table in study_tables(document)][1].endswith("which no trial was judged by")


def test_a_study_of_other_settings_is_refused(tmp_path, options):
    tune(Pretence(tmp_path), options(trials=1, name="mine"))
    other = Pretence(tmp_path, config=RunConfig(task="ner", model="another"))
    with pytest.raises(DanseoError, match="'mine' is about other settings"):
        tune(other, options(trials=2, name="mine"))
    tune(other, options(trials=1))
    assert len(starts(tmp_path)) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[space]", "no settings to choose"),
        ("learning_rat = [1]", "did you mean train.learning_rate"),
        ("learning_rate = {low = 2, high = 1}", "should be a number below high"),
        ("schedule = {low = 1, high = 2}", "is no number"),
        ("learning_rate = [", "not valid TOML"),
    ],
)
def test_a_bad_space_is_one_line(tmp_path, options, text, complaint):
    (tmp_path / "space.toml").write_text(text, "utf-8")
    with pytest.raises(DanseoError, match=complaint) as caught:
        tune(Pretence(tmp_path), options())
    assert str(caught.value).startswith(str(tmp_path / "space.toml"))


def test_a_storage_that_cannot_be_used_is_one_line(tmp_path, options):
    with pytest.raises(DanseoError, match="--storage nosuchdb://x cannot be used"):
        tune(Pretence(tmp_path), options(storage="nosuchdb://x"))
    with pytest.raises(DanseoError, match=f"--storage {tmp_path} cannot be used"):
        tune(Pretence(tmp_path), options(storage=str(tmp_path)))


def test_a_study_lies_beside_its_runs_as_that_of_a_sweep_does(tmp_path, options):
    study = tune(Pretence(tmp_path), options(trials=1))
    assert (tmp_path / f"{study.study_name}.study").is_file()
    assert not (tmp_path / ".locks").exists(), "the trial's lock is gone with it"


def test_a_study_that_an_older_version_began_in_study_db_goes_on_there(tmp_path, options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = tune(Pretence(tmp_path), options(trials=2, storage="sqlite:///study.db"))
    study = tune(Pretence(tmp_path), options(trials=3))
    assert study.study_name == begun.study_name
    assert len(study.trials) == len(starts(tmp_path)) == 3
    assert not list(tmp_path.glob("*.study"))


def work(folder, options, seconds):
    tune(Pretence(folder, seconds=seconds), options)


def test_two_processes_share_a_study(tmp_path, options, storage):
    chosen = options(trials=8, pruner="none", name="shared", storage=storage)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(tmp_path, chosen, 0.3)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert 8 <= len(starts(tmp_path)) <= 9  # both may take the last one at the same moment
    assert counted(tune(Pretence(tmp_path), chosen)) == len(starts(tmp_path))


def test_a_killed_trial_is_tried_again_at_once_with_the_same_settings(tmp_path, options, storage):
    chosen = options(trials=2, pruner="none", name="killed", storage=storage)  # silent for 40 s: too long to wait for
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(tmp_path, chosen, 60))
    worker.start()
    deadline = time.monotonic() + 600
    while not starts(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    worker.kill()
    worker.join(10)
    assert worker.exitcode == -signal.SIGKILL
    study = tune(Pretence(tmp_path), chosen)
    first, *others = starts(tmp_path)
    assert len(others) == 2
    assert first in others
    assert [trial.state.name for trial in study.trials].count("COMPLETE") == 2


def test_a_trial_that_was_cut_off_before_it_was_signed_is_waited_for_and_tried_again(tmp_path, options, storage):
    chosen = options(trials=2, pruner="none", name="unsigned", heartbeat=(1, 1), storage=storage)
    asked(Pretence(tmp_path), chosen).ask()  # and dies
    study = tune(Pretence(tmp_path), chosen)
    assert [trial.state.name for trial in study.trials].count("COMPLETE") == 2
    assert not [trial for trial in study.trials if trial.state.name == "RUNNING"]


def test_a_trial_of_another_machine_is_left_to_its_heartbeat(tmp_path, options):
    chosen = options(trials=2, pruner="none", name="elsewhere", storage=f"sqlite:///{tmp_path / 's.db'}")
    trial = asked(Pretence(tmp_path), chosen).ask()
    trial.set_user_attr("owner", ELSEWHERE)
    study = tune(Pretence(tmp_path), chosen)
    assert sorted(trial.state.name for trial in study.trials) == ["COMPLETE", "RUNNING"]


def test_in_a_file_a_lock_beats_for_a_trial_of_another_machine(tmp_path, options):
    chosen = options(trials=2, pruner="none", name="elsewhere")
    trial = asked(Pretence(tmp_path), chosen).ask()
    lock = Locks(tmp_path).acquire("elsewhere.trial-1", Owner(**ELSEWHERE))
    trial.set_user_attr("owner", ELSEWHERE)
    study = tune(Pretence(tmp_path), chosen)
    assert sorted(trial.state.name for trial in study.trials) == ["COMPLETE", "RUNNING"]
    os.utime(lock.path, (0, 0))  # silent for long
    study = tune(Pretence(tmp_path), chosen)
    assert sorted(trial.state.name for trial in study.trials) == ["COMPLETE", "COMPLETE", "FAIL"]
