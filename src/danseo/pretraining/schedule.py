"""When a training evaluates and saves, and how long it is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from danseo.pretraining.config import SaveConfig


@dataclass(frozen=True)
class Schedule:
    """The length of a training in steps, and after which of them it evaluates."""

    steps_per_epoch: int
    total: int
    marks: tuple[int, ...]

    def as_dict(self) -> dict[str, int | list[int]]:
        return {"steps_per_epoch": self.steps_per_epoch, "total": self.total, "marks": list(self.marks)}


def epoch_steps(samples: int, batch: int) -> int:
    """Steps that see every sample once."""
    return math.ceil(samples / batch)


def planned(steps_per_epoch: int, total: int, save: SaveConfig) -> Schedule:
    """Evaluations as the settings want them, and always one at the end."""
    marks = sorted({mark for mark in _marks(steps_per_epoch, total, save) if 0 < mark < total} | {total})
    return Schedule(steps_per_epoch, total, tuple(marks))


def _marks(steps_per_epoch: int, total: int, save: SaveConfig) -> Iterator[int]:
    if save.checkpoints:
        interval = total / save.checkpoints
    elif save.every_steps:
        interval = float(save.every_steps)
    else:
        interval = save.every_epochs * steps_per_epoch
    yield from (round(k * interval) for k in range(1, math.floor(total / interval) + 1))
