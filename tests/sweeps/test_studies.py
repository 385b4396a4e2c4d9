"""Studies that several processes open at once."""

import multiprocessing

import pytest

from danseo.errors import DanseoError
from danseo.sweeps import studies


def test_a_storage_whose_tables_are_just_being_made_is_tried_again(monkeypatch, tmp_path):
    monkeypatch.setattr(studies, "_PAUSES", (0.0, 0.0))
    troubles = [RuntimeError("table trials already exists"), RuntimeError("index ix already exists")]

    def storage():
        if troubles:
            raise troubles.pop()
        return studies.database(f"sqlite:///{tmp_path}/study.db")

    assert studies.opened(storage, "--storage x", "name", None).study_name == "name"
    assert not troubles


def test_other_trouble_and_lasting_trouble_are_one_line(monkeypatch):
    monkeypatch.setattr(studies, "_PAUSES", (0.0, 0.0))
    tries = []

    def storage(message):
        tries.append(message)
        raise RuntimeError(message)

    with pytest.raises(DanseoError, match=r"--storage x cannot be used: no route$"):
        studies.opened(lambda: storage("no\nroute"), "--storage x", "name", None)
    assert len(tries) == 1
    with pytest.raises(DanseoError, match="table already exists"):
        studies.opened(lambda: storage("table already exists"), "--storage x", "name", None)
    assert len(tries) == 4


def open_at_once(barrier, url):
    barrier.wait(60)
    studies.opened(lambda: studies.database(url), "--storage x", "name", None)


def test_processes_make_the_tables_of_one_database_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    workers = [context.Process(target=open_at_once, args=(barrier, f"sqlite:///{tmp_path}/study.db")) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(90)
    assert [worker.exitcode for worker in workers] == [0] * 4
