import time
from types import SimpleNamespace

import pytest

from danseo.config.mlm import PretrainConfig, SaveSettings
from danseo.mlm.training_length import choose_checkpoint_steps, count_epoch_steps, plan_checkpoints
from danseo.runs.store import Run


@pytest.mark.parametrize(
    ("samples", "batch", "per_epoch", "marks"),
    [
        (16699, 128, 131, (66, 131, 196, 262, 328, 393, 458, 524, 590, 655)),
        (14000, 128, 110, (55, 110, 165, 220, 275, 330, 385, 440, 495, 550)),
    ],
)
def test_half_epochs_are_rounded_over_the_whole_training(samples, batch, per_epoch, marks):
    assert count_epoch_steps(samples, batch) == per_epoch
    assert plan_checkpoints(per_epoch, 5 * per_epoch, SaveSettings()).marks == marks


@pytest.mark.parametrize(
    ("per_epoch", "total", "save", "marks"),
    [
        (100, 25, SaveSettings(every_steps=10), (10, 20, 25)),
        (1000, 10, SaveSettings(checkpoints=4), (2, 5, 8, 10)),
        (1000, 3, SaveSettings(checkpoints=8), (1, 2, 3)),
        (1000, 7, SaveSettings(), (7,)),
    ],
)
def test_checkpoints_follow_the_settings_and_include_the_end(per_epoch, total, save, marks):
    assert plan_checkpoints(per_epoch, total, save).marks == marks


@pytest.mark.parametrize(("spent", "seconds"), [(0, 58), (38, 20), (1000, 15)])
def test_minutes_include_preparation_and_leave_a_share_for_training(spent, seconds, tmp_path):
    workers = SimpleNamespace(is_first=True, broadcast=lambda value: value)
    trainer = SimpleNamespace(workers=workers, run=Run(tmp_path), measure_step=lambda rows, most: 0.1)
    started = time.perf_counter() - spent
    config, notes = PretrainConfig(minutes=1.0), list[str]()
    steps = choose_checkpoint_steps(config, trainer, range(10_000), lambda: None, notes.append, started)
    assert steps.total == pytest.approx(10 * seconds, rel=0.05)
    assert ("alone took" in notes[-1]) == (spent > 60), "the user learns why the command takes longer"
