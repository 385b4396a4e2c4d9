from io import StringIO
from types import SimpleNamespace

import pytest

from danseo.display.progress import TrainingProgress, Waiting


def test_speed_and_time_left_go_by_the_fitting_alone(capsys):
    """Whatever came before the first step, such as measuring, is no time of training."""
    shown = TrainingProgress("run")
    shown.note("measuring")
    step = SimpleNamespace(number=4, total=10, loss=1.0, rate=1e-3)
    shown.evaluated(step, SimpleNamespace(pieces=500, seconds=2.0, best=50.0), 50.0)
    assert capsys.readouterr().err.splitlines() == [
        "measuring",
        "run: step 4/10 loss 1.0000 rate 1.0e-03 250 pieces/s best 50.00 ETA 3 s",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_bar_leaves_out_what_does_not_fit_and_never_the_time_left(width):
    from rich.console import Console
    from rich.progress import Progress

    shown = TrainingProgress("ner--a-model-with-a-name-that-takes-a-whole-line-of-a-terminal--s42--9f31c0de")
    shown.bar = Progress(console=Console(file=StringIO(), width=width, force_terminal=True))
    step = SimpleNamespace(number=400, total=100000, loss=1.0, rate=1e-3)
    shown.step(step, SimpleNamespace(pieces=500_000, seconds=20.0, best=50.0))
    (task,) = shown.bar.tasks
    assert task.fields["state"].startswith("400/100000")
    assert len(task.fields["state"]) <= width - 22, "beside the bar"
    assert ("ETA 1 h 23 min" in task.fields["state"]) == (width > 40)
    assert ("25,000 pieces/s" in task.fields["state"]) == (width > 80)


def test_waiting_speaks_only_where_it_takes_long(capsys):
    with Waiting("resampling", after=60) as quick, Waiting("resampling", after=0, quiet=True) as quiet:
        for done in (0, 50, 100):
            quick(done, 100)
            quiet(done, 100)
    assert capsys.readouterr().err == ""
    with Waiting("resampling", after=0, every=60) as long:
        for done in (0, 25, 50, 100):
            long(done, 100)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("resampling: 25 %, ETA ")
