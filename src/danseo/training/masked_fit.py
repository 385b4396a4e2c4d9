"""Fitting a masked language model with the ordinary loop: rows in, checkpoints and held-out scores out."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from danseo.config import TrainConfig
from danseo.models.encoder.kind import Features, Outputs
from danseo.models.masked import MaskedKind, MaskedNetwork, held_out_scores
from danseo.pretraining.schedule import Schedule
from danseo.runs.directory import Run
from danseo.training.fit import Fitting, Progress, load_weights, weights_of
from danseo.training.loop import Engine, Step, outputs_of, train_steps
from danseo.training.optim import freeze, make_optimizer
from danseo.training.rows import RowPlan
from danseo.training.speed import settled_gear
from danseo.training.workers import Workers

_TRIAL_SECONDS = 15.0  # of measuring, at most
_TRIAL_STEPS = 12
Evaluated = Callable[[int, float, dict[str, float]], dict[str, Any]]
"""Called after an evaluation with the step, the epoch and the scores; what it returns goes to the log."""


class MaskedFit:
    """A masked language model with all that training it takes."""

    def __init__(
        self,
        model: Any,
        kind: MaskedKind,
        config: TrainConfig,
        seed: int,
        workers: Workers,
        run: Run,
        seq_len: int,
        on_note: Callable[[str], None] = lambda line: None,
        scores: Callable[[Sequence[Outputs]], dict[str, float]] = held_out_scores,
    ) -> None:
        if config.threads:
            torch.set_num_threads(config.threads)
        self.config, self.seed, self.workers, self.run, self.scores = config, seed, workers, run, scores
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        self.network = MaskedNetwork(model, seq_len).to(workers.device)
        freeze(self.network, config.freeze)
        self.gear = settled_gear(self.network, config, workers, run)
        self.gear.engage(self.network)
        self.engine = Engine(self.network, kind, workers, self.gear, config.batch_tokens, on_note)

    def evaluate(self, held_out: Sequence[Features]) -> dict[str, float]:
        """Loss and accuracy at gaps that are the same every time."""
        return self.scores(outputs_of(self.engine, held_out))

    def seconds_per_step(self, rows: Sequence[Features], seconds: float) -> float:
        """The time of a step, measured on the first ones; weights are put back afterwards."""
        before, started = weights_of(self.network), time.perf_counter()
        plan = RowPlan(_lengths(rows), self.config, self.seed, steps=_TRIAL_STEPS + 1)
        times = [started]
        for _ in train_steps(self.engine, rows, plan, make_optimizer(self.network, self.config), self.config):
            times.append(time.perf_counter())
            if times[-1] - started > min(_TRIAL_SECONDS, seconds) and len(times) > 2:
                break
        load_weights(self.network, before)
        measured: float = self.workers.agreed((times[-1] - times[1]) / max(1, len(times) - 2))
        return measured

    def fit(
        self,
        rows: Sequence[Features],
        held_out: Sequence[Features],
        schedule: Schedule,
        on_step: Callable[[Step, Progress], None],
        on_evaluated: Evaluated,
    ) -> Progress:
        """Train to the end, or on to it from the latest checkpoint; the weights of the least held-out loss remain."""
        plan = RowPlan(_lengths(rows), self.config, self.seed, steps=schedule.total, marks=frozenset(schedule.marks))
        fitting = Fitting(self.engine, rows, self.config, self.seed, self.run, plan)

        def evaluate() -> float:
            scores, step = self.evaluate(held_out), fitting.progress.step
            fitting.noted = {**scores, **on_evaluated(step, step / schedule.steps_per_epoch, scores)}
            return -scores["held_out_loss"]

        return fitting.run_to_end(evaluate, on_step)


def _lengths(rows: Any) -> Any:
    return rows.lengths() if hasattr(rows, "lengths") else [len(record) for record in rows]
