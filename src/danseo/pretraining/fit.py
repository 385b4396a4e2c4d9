"""Fitting a masked language model with the ordinary loop: rows in, checkpoints and held-out scores out."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from danseo.config import TrainConfig
from danseo.models.masked.kind import MaskedKind, MaskedNetwork, held_out_scores
from danseo.pretraining.schedule import Schedule
from danseo.runs.directory import Run
from danseo.runs.standing import StandingFile
from danseo.training.features import Features, Outputs
from danseo.training.fit import Fitting, Progress, Watcher, load_weights, weights_of
from danseo.training.loop import Engine, Step, outputs_of, train_steps
from danseo.training.numbers import settle
from danseo.training.optim import freeze, make_optimizer
from danseo.training.rows import RowPlan
from danseo.training.speed import settled_mode
from danseo.training.workers import Workers

_TRIAL_SECONDS = 15.0  # of measuring, at most
_TRIAL_ROUNDS = 6
Evaluated = Callable[[int, float, dict[str, float]], dict[str, Any]]
"""Called after an evaluation with the step, the epoch and the scores; what it returns goes to the log."""


class MaskedFit:
    """A masked language model with all that training it takes."""

    def __init__(
        self,
        network: MaskedNetwork,
        kind: MaskedKind,
        config: TrainConfig,
        seed: int,
        workers: Workers,
        run: Run,
        on_note: Callable[[str], None] = lambda line: None,
        scores: Callable[[Sequence[Outputs]], dict[str, float]] = held_out_scores,
        pieces: float = math.inf,
    ) -> None:
        settle(config, workers.device)
        self.kind, self.config, self.seed = kind, config, seed
        self.workers, self.run, self.scores = workers, run, scores
        if config.gradient_checkpointing:
            network.model.gradient_checkpointing_enable()
        self.network = network.to(workers.device)
        freeze(self.network, config.freeze)
        self.mode = settled_mode(self.network, config, workers, run, pieces, on_note)
        self.mode.engage(self.network)
        self.engine = Engine(self.network, kind, workers, self.mode, config.batch_tokens, on_note)

    def evaluate(self, held_out: Sequence[Features]) -> dict[str, float]:
        """Loss and accuracy at gaps that are the same every time."""
        return self.scores(outputs_of(self.engine, held_out))

    def seconds_per_step(self, rows: Sequence[Features], seconds: float) -> float:
        """The time of a step by steps of one part and of two, as whole ones may take long; weights are put back."""
        part = self.workers.agreed(max(1, self.engine.tokens // self.network.shape[1]))  # others may have other caches
        wanted = self.config.batch_size
        sizes = sorted({min(wanted, parts * part * self.workers.world) for parts in (1, 2)})
        before, started = weights_of(self.network), time.perf_counter()
        times: list[list[float]] = [[] for _ in sizes]
        runs = self._trial_steps(rows, sizes)
        for number in range(_TRIAL_ROUNDS):
            for steps, taken in zip(runs, times, strict=True):
                began = time.perf_counter()
                next(steps)
                self.engine.finish()
                taken.append(time.perf_counter() - began)
            if self.workers.agreed(number > 0 and time.perf_counter() - started > min(_TRIAL_SECONDS, seconds)):
                break
        load_weights(self.network, before)
        small, large = (statistics.median(taken[1:]) for taken in (times[0], times[-1]))  # the first warms up
        per_row = max(0.0, large - small) / max(1, sizes[-1] - sizes[0])
        measured: float = self.workers.agreed(large + (wanted - sizes[-1]) * per_row)
        return measured

    def _trial_steps(self, rows: Sequence[Features], sizes: Sequence[int]) -> list[Iterator[Step]]:
        optimizer, lengths = make_optimizer(self.network, self.config), _lengths(rows)
        plans = [RowPlan(lengths, replace(self.config, batch_size=size), self.seed, steps=10**6) for size in sizes]
        return [train_steps(self.engine, rows, plan, optimizer, self.config) for plan in plans]

    def fit(
        self,
        rows: Sequence[Features],
        held_out: Sequence[Features],
        schedule: Schedule,
        watcher: Watcher,
        on_evaluated: Evaluated,
    ) -> Progress:
        """Train to the end, or on to it from the latest checkpoint; the best weights remain."""
        plan = RowPlan(_lengths(rows), self.config, self.seed, steps=schedule.total, marks=frozenset(schedule.marks))
        fitting = Fitting(self.engine, rows, self.config, self.seed, self.run, plan)

        def evaluate() -> float:
            scores, step = self.evaluate(held_out), fitting.progress.step
            fitting.noted = {**scores, **on_evaluated(step, step / schedule.steps_per_epoch, scores)}
            return self.kind.quality(scores, step)

        return fitting.run_to_end(evaluate, Standings(watcher, self.run) if self.workers.is_first else watcher)


class Standings:
    """Passes on how a fitting goes, and keeps it where whoever watches from another process finds it."""

    def __init__(self, watcher: Watcher, run: Run) -> None:
        self.watcher, self.file = watcher, StandingFile(run.path)

    def step(self, step: Step, progress: Progress) -> None:
        self.watcher.step(step, progress)
        self.file.write(step.number, step.total, progress.seconds)

    def evaluated(self, step: Step, progress: Progress, score: float | None) -> None:
        self.watcher.evaluated(step, progress, score)
        self.file.write(step.number, step.total, progress.seconds)


def _lengths(rows: Any) -> Any:
    return rows.lengths() if hasattr(rows, "lengths") else [len(record) for record in rows]
