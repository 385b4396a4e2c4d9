"""Points of a sweep and their directories."""

import pytest

from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.sweeps.plan import read_state


def test_a_point_is_the_directory_that_train_would_make(planner, points):
    (point,) = points(5)
    assert read_state(point) == "new"
    run = run_experiment(point.config, planner.root, planner.runs, quiet=True)
    assert run.path == point.run.path
    assert read_state(point) == "done"


def test_a_file_in_the_way_is_refused(planner, points):
    (point,) = points(5)
    planner.runs.mkdir()
    point.run.path.write_text("")
    with pytest.raises(DanseoError, match="is a file, but a run folder"):
        points(5)
