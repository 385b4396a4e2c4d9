"""The steps after which a pre-training evaluates and saves."""

import math
from dataclasses import dataclass

from danseo.config.mlm import SaveSettings


@dataclass(frozen=True)
class CheckpointSteps:
    """The number of steps of a training, and those after which it evaluates and saves."""

    steps_per_epoch: int
    total: int
    marks: tuple[int, ...]


def count_epoch_steps(samples: int, batch: int) -> int:
    """Return the number of steps of one epoch."""
    return math.ceil(samples / batch)


def plan_checkpoints(steps_per_epoch: int, total: int, save: SaveSettings) -> CheckpointSteps:
    """Return the steps after which to save, as the settings say, and always the last one."""
    chosen = save.every_steps or save.every_epochs * steps_per_epoch
    interval = total / save.checkpoints if save.checkpoints else chosen
    marks = {round(k * interval) for k in range(1, math.floor(total / interval) + 1)}
    before_end = sorted(mark for mark in marks if 0 < mark < total)
    return CheckpointSteps(steps_per_epoch, total, (*before_end, total))
