"""Storages of studies: files that killed processes wrote to, and databases that older versions began."""

import sqlite3
from dataclasses import replace

import pytest

optuna = pytest.importorskip("optuna")

from danseo.search.storage import begun_earlier, default_storage, open_storage  # noqa: E402
from danseo.search.study import Study, open_study  # noqa: E402

ASKED = Study("name", "", "lr 1 to 2", "the study 'name' is about something else", "--storage x")


def test_a_line_that_a_killed_process_did_not_finish_is_cut(tmp_path):
    path = tmp_path / "name.study"
    asked = replace(ASKED, storage=str(path))
    open_study(asked).ask()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":4,"worker')
    for _ in range(2):
        open_study(asked).ask()
    assert len(open_study(asked).trials) == 3
    assert path.read_bytes().startswith(whole)


def test_a_study_that_an_older_version_began_is_found_by_its_name(tmp_path):
    assert begun_earlier("mine", tmp_path) is None
    assert not list(tmp_path.iterdir()), "looking makes no database"
    url = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(study_name="mine", storage=open_storage(url, {}))
    assert begun_earlier("mine", tmp_path) == url
    assert begun_earlier("another", tmp_path) is None


def test_a_database_of_something_else_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("CREATE TABLE plants (name TEXT)")
    before = (tmp_path / "study.db").read_bytes()
    assert begun_earlier("mine", tmp_path) is None
    assert (tmp_path / "study.db").read_bytes() == before


def test_studies_lie_beside_their_runs(tmp_path):
    assert default_storage(tmp_path, "find") == str(tmp_path / "find.study")
