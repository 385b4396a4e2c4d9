import pytest

from danseo.pretraining.config import SaveConfig
from danseo.pretraining.schedule import epoch_steps, planned


@pytest.mark.parametrize(
    ("samples", "batch", "per_epoch", "marks"),
    [
        (16699, 128, 131, (66, 131, 196, 262, 328, 393, 458, 524, 590, 655)),
        (14000, 128, 110, (55, 110, 165, 220, 275, 330, 385, 440, 495, 550)),
    ],
)
def test_half_epochs_are_rounded_over_the_whole_training(samples, batch, per_epoch, marks):
    assert epoch_steps(samples, batch) == per_epoch
    assert planned(per_epoch, 5 * per_epoch, SaveConfig()).marks == marks


def test_every_so_many_steps_and_at_the_end():
    assert planned(100, 25, SaveConfig(every_steps=10)).marks == (10, 20, 25)


def test_a_number_of_checkpoints_spreads_evenly():
    assert planned(1000, 10, SaveConfig(checkpoints=4)).marks == (2, 5, 8, 10)
    assert planned(1000, 3, SaveConfig(checkpoints=8)).marks == (1, 2, 3)


def test_less_than_half_an_epoch_still_has_an_end():
    assert planned(1000, 7, SaveConfig()).marks == (7,)
