from types import SimpleNamespace

from danseo.progress import TrainingProgress


def test_speed_and_time_left_go_by_the_fitting_alone(capsys):
    """Whatever came before the first step, such as measuring, is no time of training."""
    shown = TrainingProgress("run")
    shown.note("measuring")
    step = SimpleNamespace(number=4, total=10, loss=1.0, rate=1e-3)
    shown.step(step, SimpleNamespace(pieces=500, seconds=2.0, best=50.0, losses=[]))
    assert capsys.readouterr().err.splitlines() == [
        "measuring",
        "run: step 4/10 loss 1.0000 rate 1.0e-03 250 pieces/s best 50.00 ETA 3 s",
    ]
