"""Whoever watches from another process sees how far a masked language model is."""

from types import SimpleNamespace

from danseo.pretraining.fit import Standings
from danseo.runs.directory import Run
from danseo.runs.standing import StandingFile


class Heard:
    def __init__(self) -> None:
        self.said: list[tuple] = []

    def step(self, step, progress) -> None:
        self.said.append(("step", step.number))

    def evaluated(self, step, progress, score) -> None:
        self.said.append(("evaluated", step.number, score))


def test_a_fitting_is_passed_on_and_kept(tmp_path):
    heard, run = Heard(), Run(tmp_path)
    watched = Standings(heard, run)
    watched.step(SimpleNamespace(number=3, total=10), SimpleNamespace(seconds=1.5))
    found = StandingFile(run.path).read()
    assert (found.step, found.total, found.left()) == (3, 10, 3.5)
    watched.evaluated(SimpleNamespace(number=10, total=10), SimpleNamespace(seconds=5.0), -2.5)
    assert StandingFile(run.path).read().step == 10
    assert heard.said == [("step", 3), ("evaluated", 10, -2.5)]
