"""Train a masked language model on rows of tokens; return checkpoints and held-out scores."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.config.train import OptimizationSettings
from danseo.mlm.training_length import CheckpointSteps
from danseo.models.mlm.objective import MlmNetwork, MlmObjective, compute_held_out_scores
from danseo.runs.progress_file import ProgressFile
from danseo.runs.store import Run
from danseo.training.distributed import Workers
from danseo.training.features import Features, Outputs
from danseo.training.optimizers import freeze, make_optimizer
from danseo.training.precision import choose_compute_config, configure_torch
from danseo.training.trainer import Progress, Trainer, Watcher, copy_weights, load_weights
from danseo.training.training_loop import BatchPlan, Engine, Step, compute_outputs, train_steps

_TRIAL_SECONDS = 15.0  # at most, to measure a step
_TRIAL_ROUNDS = 6
EvaluationHook = Callable[[int, float, dict[str, float]], dict[str, Any]]
"""Called after an evaluation with the step, the epoch and the scores; its result is added to the log."""


@dataclass
class RowBatchPlan(BatchPlan):
    """Batches of random rows: one permutation per epoch, eight bytes per row in memory."""

    steps: int = 0
    """Number of steps; 0 means that the epochs decide."""
    marks: frozenset[int] = frozenset()
    """Steps after which to evaluate."""

    @property
    def total(self) -> int:
        return self.steps or super().total

    def batch(self, step: int) -> list[int]:
        """Return the rows of a step, counted from 0."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order: Any = np.random.default_rng([self.seed & (2**63 - 1), epoch]).permutation(len(self.lengths))
            self._epoch = epoch
        size = self.config.batch_size
        rows: list[int] = self._order[position * size : (position + 1) * size].tolist()
        return rows

    def is_evaluation(self, done: int) -> bool:
        """Return whether to evaluate after this number of steps."""
        return done in self.marks or done == self.total


class MaskedTrainer:
    """Trains and evaluates one masked language model."""

    def __init__(
        self,
        network: MlmNetwork,
        objective: MlmObjective,
        config: OptimizationSettings,
        seed: int,
        workers: Workers,
        run: Run,
        on_note: Callable[[str], None] = lambda line: None,
        scores: Callable[[Sequence[Outputs]], dict[str, float]] = compute_held_out_scores,
    ) -> None:
        configure_torch(config, workers.device)
        self.objective, self.config, self.seed = objective, config, seed
        self.workers, self.run, self.scores = workers, run, scores
        if config.gradient_checkpointing:
            network.model.gradient_checkpointing_enable()
        self.network = network.to(workers.device)
        freeze(self.network, config.freeze)
        compute = choose_compute_config(self.network, config, workers, run, on_note)
        compute.apply_to(self.network)
        self.engine = Engine(self.network, objective, workers, compute, config.max_batch_tokens, on_note)

    def evaluate(
        self, held_out: Sequence[Features], on_part: Callable[[int], None] = lambda count: None
    ) -> dict[str, float]:
        """Return loss and accuracy at masks that are the same in every evaluation."""
        return self.scores(compute_outputs(self.engine, held_out, on_part))

    def measure_step(self, rows: Sequence[Features], seconds: float) -> float:
        """Estimate the seconds of a step from steps of one and two parts, and restore the weights."""
        part = max(1, self.engine.max_tokens // self.network.shape[1])
        part = self.workers.broadcast(part)  # other nodes may have other caches
        batch_size = self.config.batch_size
        sizes = sorted({min(batch_size, parts * part * self.workers.world) for parts in (1, 2)})
        before, started = copy_weights(self.network), time.perf_counter()
        times: list[list[float]] = [[] for _ in sizes]
        optimizer, lengths = make_optimizer(self.network, self.config), _get_lengths(rows)
        plans = [
            RowBatchPlan(lengths, self.config.model_copy(update={"batch_size": size}), self.seed, steps=10**6)
            for size in sizes
        ]
        trials = [train_steps(self.engine, rows, plan, optimizer, self.config) for plan in plans]
        for number in range(_TRIAL_ROUNDS):
            for steps, taken in zip(trials, times, strict=True):
                began = time.perf_counter()
                next(steps)
                self.engine.synchronize()
                taken.append(time.perf_counter() - began)
            if self.workers.broadcast(number > 0 and time.perf_counter() - started > min(_TRIAL_SECONDS, seconds)):
                break
        load_weights(self.network, before)
        small, large = (statistics.median(taken[1:]) for taken in (times[0], times[-1]))  # the first step warms up
        per_row = max(0.0, large - small) / max(1, sizes[-1] - sizes[0])
        measured: float = self.workers.broadcast(large + (batch_size - sizes[-1]) * per_row)
        return measured

    def train(
        self,
        rows: Sequence[Features],
        held_out: Sequence[Features],
        steps: CheckpointSteps,
        watcher: Watcher,
        on_evaluation: EvaluationHook,
    ) -> Progress:
        """Train to the end, from the latest checkpoint if there is one, and keep the best weights."""
        plan = RowBatchPlan(_get_lengths(rows), self.config, self.seed, steps=steps.total, marks=frozenset(steps.marks))
        trainer = Trainer(self.engine, rows, self.config, self.seed, self.run, plan)

        def evaluate() -> float:
            scores, step = self.evaluate(held_out), trainer.progress.step
            trainer.noted = {**scores, **on_evaluation(step, step / steps.steps_per_epoch, scores)}
            return self.objective.quality(scores, step)

        return trainer.train(evaluate, ProgressRecorder(watcher, self.run) if self.workers.is_first else watcher)


class ProgressRecorder:
    """Forwards the events of a training, and writes its progress file for other processes."""

    def __init__(self, watcher: Watcher, run: Run) -> None:
        self.watcher, self.file = watcher, ProgressFile(run.path)

    def step(self, step: Step, progress: Progress) -> None:
        """Forward a step."""
        self.watcher.step(step, progress)
        self.file.write(step.number, step.total, progress.seconds)

    def work_on(self, activity: str, total: int = 0) -> None:
        """Forward an activity."""
        self.watcher.work_on(activity, total)

    def report_evaluation(self, step: Step, progress: Progress, score: float | None) -> None:
        """Forward an evaluation."""
        self.watcher.report_evaluation(step, progress, score)
        self.file.write(step.number, step.total, progress.seconds)


def _get_lengths(rows: Any) -> Any:
    return rows.lengths() if hasattr(rows, "lengths") else [len(record) for record in rows]
