"""Studies that several processes open at once."""

import multiprocessing
from dataclasses import replace

import pytest

pytest.importorskip("optuna")

from danseo.errors import DanseoError
from danseo.search import study as studies
from danseo.search.study import Study, open_study

ASKED = Study("name", "sqlite:///nowhere.db", "lr 1 to 2", "the study 'name' is about something else", "--storage x")


def test_a_storage_whose_tables_are_just_being_made_is_tried_again(monkeypatch, tmp_path):
    monkeypatch.setattr(studies, "_PAUSES", (0.0, 0.0))
    troubles = [RuntimeError("table trials already exists"), RuntimeError("index ix already exists")]
    true_storage = studies.open_storage

    def storage(*asked):
        if troubles:
            raise troubles.pop()
        return true_storage(*asked)

    monkeypatch.setattr(studies, "open_storage", storage)
    assert open_study(replace(ASKED, storage=f"sqlite:///{tmp_path}/study.db")).study_name == "name"
    assert not troubles


def test_other_trouble_and_lasting_trouble_are_one_line(monkeypatch):
    monkeypatch.setattr(studies, "_PAUSES", (0.0, 0.0))
    tries = []

    def failing(message):
        def storage(*asked):
            tries.append(message)
            raise RuntimeError(message)

        return storage

    monkeypatch.setattr(studies, "open_storage", failing("no\nroute"))
    with pytest.raises(DanseoError, match=r"--storage x cannot be used: no route$"):
        open_study(ASKED)
    assert len(tries) == 1
    monkeypatch.setattr(studies, "open_storage", failing("table already exists"))
    with pytest.raises(DanseoError, match="table already exists"):
        open_study(ASKED)
    assert len(tries) == 4


@pytest.mark.parametrize("storage", ["sqlite:///{}/study.db", "{}/deep/study.journal"])
@pytest.mark.parametrize(("sampler", "pruner"), [("tpe", "median"), ("random", "halving"), ("qmc", "hyperband")])
def test_a_study_goes_on_in_any_storage_and_only_about_the_same(tmp_path, storage, sampler, pruner):
    asked = replace(ASKED, storage=storage.format(tmp_path), sampler=sampler, pruner=pruner)
    study = open_study(asked)
    first = study.ask({"x": studies.load_optuna().distributions.FloatDistribution(0, 1)})
    study.tell(first, 0.5)
    again = open_study(asked)
    assert [trial.params for trial in again.trials] == [first.params]
    second = again.ask({"x": studies.load_optuna().distributions.FloatDistribution(0, 1)})
    assert second.params != first.params, "the seed moves with the trials that are there"
    with pytest.raises(DanseoError, match="about something else"):
        open_study(replace(asked, identity="lr 1 to 3"))


def open_at_once(barrier, url):
    barrier.wait(600)
    open_study(replace(ASKED, storage=url))


def test_processes_make_the_tables_of_one_database_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    workers = [context.Process(target=open_at_once, args=(barrier, f"sqlite:///{tmp_path}/study.db")) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    assert [worker.exitcode for worker in workers] == [0] * 4
