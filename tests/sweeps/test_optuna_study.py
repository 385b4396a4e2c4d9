"""Optuna studies in files and databases, shared by processes."""

from dataclasses import replace

import pytest

pytest.importorskip("optuna")

from danseo.errors import DanseoError
from danseo.sweeps.optuna_study import OptunaStudy, StudySpec, load_optuna, open_study

SPEC = StudySpec("name", "sqlite:///nowhere.db", "lr 1 to 2", "the study 'name' is about other settings", "--storage x")


def test_an_unusable_storage_is_one_line(tmp_path):
    for storage in ("nosuchdb://x", str(tmp_path)):
        with pytest.raises(DanseoError, match="--storage x cannot be used") as refused:
            open_study(replace(SPEC, storage=storage))
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("storage", "sampler", "pruner"),
    [
        ("sqlite:///{}/study.db", "tpe", "median"),
        ("{}/deep/study.journal", "random", "halving"),
        ("{}/deep/study.journal", "qmc", "hyperband"),
    ],
)
def test_a_study_resumes_in_any_storage(tmp_path, storage, sampler, pruner):
    spec = replace(SPEC, storage=storage.format(tmp_path), sampler=sampler, pruner=pruner)
    study, space = open_study(spec), {"x": load_optuna().distributions.FloatDistribution(0, 1)}
    first = study.ask(space)
    study.tell(first, 0.5)
    again = open_study(spec)
    assert [trial.params for trial in again.trials] == [first.params]
    second = again.ask(space)
    assert second.params != first.params, "the seed moves with the trials that are there"
    with pytest.raises(DanseoError, match="about other settings"):
        open_study(replace(spec, identity="lr 1 to 3"))


def test_a_partial_line_of_a_killed_process_is_removed(tmp_path):
    path = tmp_path / "name.study"
    spec = replace(SPEC, storage=str(path))
    open_study(spec).ask()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":4,"worker')
    for _ in range(2):
        open_study(spec).ask()
    assert len(open_study(spec).trials) == 3
    assert path.read_bytes().startswith(whole)


def test_only_trials_that_began_count(tmp_path):
    study = OptunaStudy(replace(SPEC, storage=str(tmp_path / "name.study")), 2)
    study.ask()  # and its process dies before it chooses settings
    assert study.adopt({"x": None}) == []
    assert (study.count(), study.is_full) == (0, False)
    taken = [study.ask(), study.ask()]
    assert study.is_full
    assert study.ask() is None
    taken[0].set_user_attr("run", "a")
    study.tell(taken[0].number)
    study.tell(taken[1].number, 0.5)
    assert study.is_full, "a run that failed counts"
    assert [row["state"] for row in study.rows()] == ["fail", "fail", "complete"]
