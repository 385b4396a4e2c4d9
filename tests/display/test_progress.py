import time
from io import StringIO
from types import SimpleNamespace

import pytest

from danseo.display.progress import TrainingProgress, Waiting


def test_speed_and_time_left_go_by_the_fitting_alone(capsys):
    """Whatever came before the first step, such as measuring, is no time of training."""
    shown = TrainingProgress("run")
    shown.note("measuring")
    step = SimpleNamespace(number=4, total=10, loss=1.0, rate=1e-3)
    shown.report_evaluation(step, SimpleNamespace(tokens=500, seconds=2.0, best=50.0), 50.0)
    assert capsys.readouterr().err.splitlines() == [
        "measuring",
        "run: step 4/10 loss 1.0000 rate 1.0e-03 250 tokens/s best 50.00 ETA 3 s",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_bar_leaves_out_what_does_not_fit_and_never_the_time_left(width):
    from rich.console import Console
    from rich.progress import Progress

    shown = TrainingProgress("ner--a-model-with-a-name-that-takes-a-whole-line-of-a-terminal--s42--9f31c0de")
    shown.bar = Progress(console=Console(file=StringIO(), width=width, force_terminal=True))
    step = SimpleNamespace(number=400, total=100000, loss=1.0, rate=1e-3)
    shown.step(step, SimpleNamespace(tokens=500_000, seconds=20.0, best=50.0))
    (task,) = shown.bar.tasks
    assert task.fields["state"].startswith("400/100000")
    assert len(task.fields["state"]) <= width - 22, "beside the bar"
    assert ("ETA 1 h 23 min" in task.fields["state"]) == (width > 40)
    assert ("25,000 tokens/s" in task.fields["state"]) == (width > 80)


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


def test_waiting_speaks_although_nothing_is_counted(capsys):
    """Loading a model reports no share of its work."""
    with Waiting("loading", after=0.0, every=60) as waiting:
        until(lambda: waiting.reminder.first is None)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("loading: ")


def test_a_training_is_never_silent_for_long(capsys, monkeypatch):
    """Between steps, a line says what is being done, and how much of it is done."""
    monkeypatch.setattr("danseo.display.progress.MOST_SILENT", 0.3)
    lines = []
    with TrainingProgress("run") as shown:
        shown.work_on("predicting 400 dev examples", 400)
        shown.advance(100)
        until(lambda: lines.extend(capsys.readouterr().err.splitlines()) or lines)
        time.sleep(0.4)
        step = SimpleNamespace(number=4, total=10, loss=1.0, rate=1e-3)
        shown.step(step, SimpleNamespace(tokens=500, seconds=2.0, best=50.0))
    lines += capsys.readouterr().err.splitlines()
    assert lines[0].startswith("predicting 400 dev examples: 25 %, ETA ")
    assert any(line.startswith("run: step 4/10 loss") for line in lines)


def test_work_after_some_silence_is_named_at_once(capsys, monkeypatch):
    """A library that saves a large tokenizer lets no thread print meanwhile."""
    with TrainingProgress("run") as shown:
        shown.note("step 1/1")
        shown.work_on("predicting")
        monkeypatch.setattr("danseo.display.progress.get_last_print_time", lambda: time.monotonic() - 4)
        shown.work_on("saving the model")
        shown.reminder.stop()
    assert capsys.readouterr().err.splitlines() == ["step 1/1", "saving the model: 0 s so far"]


def until(is_so) -> None:
    """Wait until something holds, for some seconds at most."""
    for _ in range(100):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("nothing happened for ten seconds")
