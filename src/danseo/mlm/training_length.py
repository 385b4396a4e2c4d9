"""The steps of a pre-training: their number, and after which of them it evaluates and saves."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from danseo.config.mlm import PretrainConfig, SaveSettings
from danseo.errors import DanseoError
from danseo.mlm.packing import PackedRows

if TYPE_CHECKING:
    from danseo.mlm.masked_trainer import MaskedTrainer


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


STEPS_FILE = "checkpoint_steps.json"
_TRIAL_SHARE = 0.05  # of the minutes, to measure a step
_LEAST_SHARE = 0.25  # of the minutes, for training after a long preparation
_END_SECONDS = 2.0  # to start Python, and to save the model and draw the curve at the end


def choose_checkpoint_steps(
    config: PretrainConfig,
    trainer: "MaskedTrainer",
    rows: PackedRows,
    evaluate: Callable[[], None],
    on_note: Callable[[str], None],
    started: float,
) -> CheckpointSteps:
    """Return the steps of an earlier start, or those of the settings; minutes are converted to steps once.

    The minutes count from `started` (time.perf_counter), so they include preparation and measuring.
    """
    run, workers = trainer.run, trainer.workers
    is_recorded = workers.is_first and (run.path / STEPS_FILE).is_file()
    if recorded := workers.broadcast(run.read_json(STEPS_FILE) if is_recorded else None):  # others may not see the disk
        return CheckpointSteps(recorded["steps_per_epoch"], recorded["total"], tuple(recorded["marks"]))
    per_epoch = count_epoch_steps(len(rows), config.train.batch_size)
    total = config.steps or max(1, round(per_epoch * config.train.epochs))
    if config.minutes:
        on_note("measuring how long a step and an evaluation take")
        total = _count_steps_in_minutes(config, per_epoch, trainer, rows, evaluate, started)
        spent = time.perf_counter() - started
        is_late = f"; preparing and measuring alone took {spent:.0f} s" if spent > 60 * config.minutes else ""
        on_note(f"--minutes {config.minutes:g}: {total:,} steps ({total / per_epoch:.2f} epochs){is_late}")
    planned = plan_checkpoints(per_epoch, total, config.save)
    if workers.is_first:
        run.write_json(STEPS_FILE, asdict(planned))
    return planned


def _count_steps_in_minutes(
    config: PretrainConfig,
    per_epoch: int,
    trainer: "MaskedTrainer",
    rows: PackedRows,
    evaluate: Callable[[], None],
    started: float,
) -> int:
    """Return how many steps, with their evaluations and the last save, fit into the minutes that are left."""
    checkpoints = config.save.checkpoints
    step = trainer.measure_step(rows, _TRIAL_SHARE * 60 * config.minutes)
    evaluate()  # the first evaluation also loads data, so only the second is measured
    before = time.perf_counter()
    evaluate()
    evaluation = trainer.workers.broadcast(time.perf_counter() - before)
    spent = trainer.workers.broadcast(time.perf_counter() - started)
    seconds = max(60 * config.minutes - spent - _END_SECONDS, _LEAST_SHARE * 60 * config.minutes)
    interval = config.save.every_steps or config.save.every_epochs * per_epoch
    total = int(
        (seconds - checkpoints * evaluation) / step if checkpoints else seconds / (step + evaluation / interval)
    )
    if total < max(1, checkpoints):
        raise DanseoError(
            f"{config.minutes:g} minutes are too short: preparing took {spent:.0f} s, a step takes {step:.1f} s and an "
            f"evaluation {evaluation:.1f} s; give more minutes, or set fewer checkpoints or max_held_out_sequences"
        )
    return total
