"""Train a network: steps, evaluations, averaged weights, the best weights, and checkpoints to resume from."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from danseo.config.train import OptimizationSettings
from danseo.errors import DanseoError
from danseo.runs.store import BEST, WEIGHTS, Run
from danseo.training.distributed import Workers
from danseo.training.features import Features
from danseo.training.optimizers import (
    Average,
    allocate_moments,
    copy_optimizer_state,
    list_states,
    load_optimizer_state,
    make_optimizer,
)
from danseo.training.sharding import Shards, is_sharded, load_tensors, save_tensors
from danseo.training.training_loop import BatchPlan, Engine, Step, Stopwatch, train_steps

_CHECKPOINT_SECONDS = 300.0  # at most between two checkpoints: a kill costs no more


@dataclass
class Progress:
    """The state of a training besides its tensors; saved with every checkpoint."""

    step: int = 0
    best: float = -math.inf
    best_step: int = 0
    stale: int = 0
    """Number of evaluations since the last improvement."""
    tokens: int = 0
    seconds: float = 0.0
    log_lines: int = 0
    max_batch_tokens: int = 0
    averaged: int = 0
    kept: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Scores and steps of best_raw and best_swa, where weights are averaged."""
    losses: list[Any] = field(default_factory=list)
    """Losses since the last evaluation; tensors on a GPU, because reading them would wait for it."""
    scaler: dict[str, Any] = field(default_factory=dict)
    """State of the loss scaling, in fp16."""

    def as_dict(self) -> dict[str, Any]:
        self.losses = read_losses(self.losses)
        return {**asdict(self), "best": None if math.isinf(self.best) else self.best}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Progress":
        return cls(**{**state, "best": -math.inf if state["best"] is None else state["best"]})


class Watcher(Protocol):
    """Receives the events of a training."""

    def step(self, step: Step, progress: Progress) -> None:
        """Called after an optimizer step without an evaluation."""

    def work_on(self, activity: str, total: int = 0) -> None:
        """Called when other work than steps begins, with the number of examples if it is known."""

    def report_evaluation(self, step: Step, progress: Progress, score: float | None) -> None:
        """Called after a step and its evaluation; the score is None if undefined. It may raise to stop the training."""


class Trainer:
    """Trains one network; a training that was killed resumes bit for bit."""

    def __init__(
        self,
        engine: Engine,
        features: Sequence[Features],
        config: OptimizationSettings,
        seed: int,
        run: Run,
        plan: BatchPlan | None = None,
    ) -> None:
        self.shards: Shards | None = None
        if is_sharded(config, engine.workers.world):
            self.shards = Shards(engine)
            engine = self.shards.engine
        self.engine, self.features, self.config, self.run = engine, features, config, run
        self.plan = plan or BatchPlan([len(record) for record in features], config, seed)
        self.noted: dict[str, Any] = {}  # more values of an evaluation for the log
        self.optimizer = make_optimizer(engine.network, config)
        self.average = Average(engine.network, config)
        self.progress = Progress(max_batch_tokens=engine.max_tokens)
        self._restore()

    def train(self, evaluate: Callable[[], float], watcher: Watcher) -> Progress:
        """Train to the end, evaluate as planned, and leave the best weights in the network."""
        watch, saved = Stopwatch(self.progress.seconds), time.monotonic()
        if not self._is_over():
            steps = train_steps(
                self.engine, self.features, self.plan, self.optimizer, self.config, start=self.progress.step
            )
            for step in steps:
                self._count(step, watch)
                self.average.update(step.number, self.plan.steps_per_epoch)
                is_evaluation = self.plan.is_evaluation(step.number)
                if is_evaluation:
                    watcher.work_on(f"evaluating after step {step.number}/{step.total}")
                    watcher.report_evaluation(step, self.progress, _replace_undefined(self._evaluate(step, evaluate)))
                else:
                    watcher.step(step, self.progress)
                if not is_evaluation and time.monotonic() - saved < _CHECKPOINT_SECONDS:
                    continue
                watcher.work_on(f"saving a checkpoint after step {step.number}/{step.total}")
                self._save()
                saved = time.monotonic()
                if self._is_over():
                    break
        watcher.work_on("loading the best weights")
        self._keep_last()
        if self.shards:
            self.shards.fill_whole()  # with shapes, and with frozen weights
        network = self.shards.whole if self.shards else self.engine.network
        restore_weights(network, self.run, BEST, self.engine.workers)
        return self.progress

    def _is_over(self) -> bool:
        patience = self.config.patience
        return self.progress.step >= self.plan.total or (
            patience is not None and self.progress.stale >= max(1, patience)
        )

    def _count(self, step: Step, watch: Stopwatch) -> None:
        progress = self.progress
        progress.step, progress.seconds = step.number, watch.seconds
        progress.max_batch_tokens = self.engine.max_tokens
        progress.tokens += step.tokens
        progress.losses.append(step.loss)

    def _evaluate(self, step: Step, evaluate: Callable[[], float]) -> float:
        """Score the weights, or their average once there is one; save them if they are the best."""
        self.engine.check_losses()
        progress, network = self.progress, self.engine.network
        raw = self._score(evaluate)
        score = raw
        if self.average.is_planned:
            self._offer_kept("best_raw", raw, step)
        if self.average.is_active:
            with self.average.swap_into(network):
                score = self._score(evaluate)
                self._offer(score, step)
                self._offer_kept("best_swa", score, step)
        else:
            self._offer(score, step)
        record = {
            "step": step.number,
            "epoch": round(step.epoch, 4),
            "loss": sum(read_losses(progress.losses)) / len(progress.losses),
            "rate": step.rate,
            "score": score,
            "best": progress.best,
            **({"raw_score": raw, "averaged": self.average.count} if self.average.is_active else {}),
            **self.noted,
        }
        progress.losses = []
        if self.engine.workers.is_first:
            self.run.log({key: _replace_undefined(value) for key, value in record.items()})
        progress.log_lines += 1
        return score

    def _score(self, evaluate: Callable[[], float]) -> float:
        with self.shards.use_whole() if self.shards else nullcontext():
            score = evaluate()
        return -math.inf if math.isnan(score) else score

    def _offer(self, score: float, step: Step) -> None:
        progress = self.progress
        is_first = progress.best_step == 0
        is_improved = is_first or score > progress.best + self.config.early_stopping_threshold
        progress.stale = 0 if is_improved else progress.stale + 1
        if is_first or score > progress.best:
            progress.best, progress.best_step = score, step.number
            self._keep(BEST)

    def _offer_kept(self, name: str, score: float, step: Step) -> None:
        """Save the best raw and the best averaged weights next to each other, where weights are averaged."""
        if score > self.progress.kept.get(name, (-math.inf, 0))[0]:
            self.progress.kept[name] = (score, step.number)
            self._keep(f"{WEIGHTS}/{name}.safetensors")

    def _keep_last(self) -> None:
        """Save the last weights and the last average, where weights are averaged."""
        if self.average.is_planned:
            self._keep(f"{WEIGHTS}/last.safetensors")
        if self.average.is_active:
            with self.average.swap_into(self.engine.network):
                self._keep(f"{WEIGHTS}/final_swa.safetensors")

    def _keep(self, name: str) -> None:
        if self.shards or self.engine.workers.is_first:
            weights = self._weights()
        if self.engine.workers.is_first:
            self.run.save_weights(name, weights)

    def _weights(self) -> dict[str, Tensor]:
        """Return the weights of a checkpoint: without the frozen ones of a large body."""
        network = self.engine.network
        if self.shards:
            return self.shards.gather_weights(learning_only=not network.keeps_frozen)
        return copy_weights(network, learning_only=not network.keeps_frozen)

    def _save(self) -> None:
        self.engine.check_losses()
        self.progress.averaged, self.progress.scaler = self.average.count, self.engine.scaler.state_dict()
        if self.shards:
            return self._save_parts()
        if not self.engine.workers.is_first:
            return
        tensors = {f"network.{key}": value for key, value in self._weights().items()}
        tensors |= {f"average.{key}": value.detach().cpu() for key, value in self.average.weights.items()}
        tensors |= {f"optimizer.{key}": value for key, value in copy_optimizer_state(self.optimizer).items()}
        self.run.save_checkpoint({key: value.contiguous() for key, value in tensors.items()}, self.progress.as_dict())

    def _save_parts(self) -> None:
        """Write a checkpoint of which every process writes its part, into a folder that all of them see."""
        workers = self.engine.workers
        folder = Path(workers.broadcast(str(self.run.begin_checkpoint()) if workers.is_first else None))
        save_tensors(folder, self._list_tensors())
        state = self.progress.as_dict()
        if workers.is_first:
            self.run.seal_checkpoint(state)
        workers.barrier()

    def _list_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint in place, without the number of steps of the optimizer."""
        network = self.engine.network
        weights = {name: weight.data for name, weight in network.named_parameters()}
        kept = {name for name, weight in network.named_parameters() if weight.requires_grad or network.keeps_frozen}
        tensors = {f"network.{name}": weight for name, weight in weights.items() if name in kept}
        tensors |= {f"average.{name}": weight for name, weight in self.average.weights.items()}
        states = list_states(self.optimizer)
        return tensors | {f"optimizer.{key}": value for key, value in states.items() if not key.endswith(".step")}

    def _load_parts(self, folder: Path) -> None:
        """Load a checkpoint that other processes wrote, or into weights that are divided."""
        allocate_moments(self.optimizer)
        if self.progress.averaged:
            self.average.allocate()
        load_tensors(folder, self._list_tensors(), self.engine.workers.world)
        for state in self.optimizer.state.values():
            state["step"].fill_(self.progress.step)
        self.average.count = self.progress.averaged

    def _load_checkpoint(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return a checkpoint that is complete, belongs to this network and still has its best weights; else None."""
        note, is_whole = self.engine.on_note, self.shards is None
        found = self.run.load_checkpoint(note, with_tensors=is_whole)
        if found is None:
            return None
        try:
            if Progress.from_dict(found[1]).best_step:
                self.run.load_weights(BEST)
            if isinstance(found[0], dict):
                check_weight_shapes(self.engine.network, _select_prefix("network.", found[0]))
        except (DanseoError, TypeError, KeyError) as error:
            is_known = isinstance(error, DanseoError)
            reason = str(error).partition("; ")[0] if is_known else "the checkpoint is of another version"
            note(f"note: {self.run.path.name}: {reason}; starting from the beginning")
            return None
        return found

    def _restore(self) -> None:
        """Resume from the checkpoint of rank 0, if there is one; other nodes may not see its disk."""
        workers = self.engine.workers
        found = self._load_checkpoint() if workers.is_first else None
        state = workers.broadcast(found and found[1])
        self.progress = Progress.from_dict(state) if state else self.progress
        if workers.is_first:
            self.run.truncate_log(self.progress.log_lines)
        if not state:
            return
        self.engine.max_tokens = self.progress.max_batch_tokens
        self.engine.reset_scaler(self.progress.scaler)
        folder = workers.broadcast(str(found[0]) if found and isinstance(found[0], Path) else None)
        if folder:
            return self._load_parts(Path(folder))
        tensors = workers.broadcast_tensors(found and found[0])
        load_weights(self.engine.network, _select_prefix("network.", tensors))
        device = self.engine.workers.device
        self.average.weights = {key: value.to(device) for key, value in _select_prefix("average.", tensors).items()}
        self.average.count = self.progress.averaged
        load_optimizer_state(self.optimizer, _select_prefix("optimizer.", tensors))


def read_losses(losses: Sequence[Any]) -> list[float]:
    """Return losses as numbers; those on a GPU are read together."""
    kept = [loss for loss in losses if isinstance(loss, Tensor)]
    read = iter(torch.stack(kept).tolist() if kept else [])
    return [next(read) if isinstance(loss, Tensor) else loss for loss in losses]


def _replace_undefined(value: Any) -> Any:
    """Return None in place of NaN and infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _select_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with the prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def copy_weights(network: nn.Module, *, learning_only: bool = False) -> dict[str, Tensor]:
    """Return a copy of all weights, or of those that learn, on the CPU; tied ones appear once, by their first name."""
    learning = {name for name, weight in network.named_parameters() if weight.requires_grad}
    seen: set[int] = set()
    weights: dict[str, Tensor] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        if id(tensor) not in seen and (name in learning or not learning_only):
            seen.add(id(tensor))
            weights[name] = tensor.detach().cpu().clone().contiguous()
    return weights


def restore_weights(network: nn.Module, run: Run, name: str, workers: Workers) -> None:
    """Load weights that rank 0 saved into the network; other nodes may not see its disk."""
    load_weights(network, workers.broadcast_tensors(run.load_weights(name) if workers.is_first else None))


def check_weight_shapes(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """Raise an error if the weights belong to another network."""
    own = {name: tensor.shape for name, tensor in network.state_dict(keep_vars=True).items()}
    if odd := [name for name, value in weights.items() if own.get(name) != value.shape]:
        raise DanseoError(f"the checkpoint is of another network ({odd[0]})")


@torch.no_grad()
def load_weights(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load weights from copy_weights into the network."""
    own = network.state_dict(keep_vars=True)
    for name, value in weights.items():
        own[name].data.copy_(value)
