"""How long a training is: steps, epochs, or minutes that become steps once."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from danseo.errors import DanseoError
from danseo.pretraining.config import PretrainConfig
from danseo.pretraining.packing import PackedRows
from danseo.pretraining.schedule import Schedule, epoch_steps, planned

if TYPE_CHECKING:
    from danseo.pretraining.fit import MaskedFit

SCHEDULE = "schedule.json"
_TRIAL_SHARE = 0.05  # of the minutes, spent on measuring a step


def planned_pieces(config: PretrainConfig, pieces: int) -> float:
    """How many pieces a training on a text of so many reads; minutes leave it open."""
    if config.minutes:
        return math.inf
    if config.steps:
        return float(config.steps * config.train.batch_size * config.text.seq_len)
    return config.train.epochs * pieces


def settled_schedule(
    config: PretrainConfig,
    fit: "MaskedFit",
    rows: PackedRows,
    evaluate: Callable[[], None],
    on_note: Callable[[str], None],
) -> Schedule:
    """The schedule of an earlier start, else from the settings; minutes become steps once, and are kept."""
    is_kept = fit.workers.is_first and (fit.run.path / SCHEDULE).is_file()
    if kept := fit.workers.agreed(fit.run.read_json(SCHEDULE) if is_kept else None):  # others may not see this disk
        return Schedule(kept["steps_per_epoch"], kept["total"], tuple(kept["marks"]))
    per_epoch = epoch_steps(len(rows), config.train.batch_size)
    total = config.steps or max(1, round(per_epoch * config.train.epochs))
    if config.minutes:
        on_note("measuring how long a step and an evaluation take")
        total = _steps_in(config, per_epoch, fit, rows, evaluate)
        on_note(f"{config.minutes:g} minutes are {total:,} steps here ({total / per_epoch:.2f} epochs)")
    schedule = planned(per_epoch, total, config.save)
    if fit.workers.is_first:
        fit.run.write_json(SCHEDULE, schedule.as_dict())
    return schedule


def _steps_in(
    config: PretrainConfig, per_epoch: int, fit: "MaskedFit", rows: PackedRows, evaluate: Callable[[], None]
) -> int:
    """How many steps fit into the minutes, evaluations included and the measuring not."""
    seconds, wanted = 60 * config.minutes, config.save.checkpoints
    step = fit.seconds_per_step(rows, _TRIAL_SHARE * seconds)
    evaluate()  # the first one also loads what the others find ready
    started = time.perf_counter()
    evaluate()
    evaluation = fit.workers.agreed(time.perf_counter() - started)
    interval = config.save.every_steps or config.save.every_epochs * per_epoch
    total = int((seconds - wanted * evaluation) / step if wanted else seconds / (step + evaluation / interval))
    if total < max(1, wanted):
        raise DanseoError(
            f"{config.minutes:g} minutes are too short: a step takes {step:.1f} s and an evaluation {evaluation:.1f} s "
            "here; give more, or set fewer checkpoints or held_out_rows"
        )
    return total
