"""Fitting a network: steps, evaluations, averages, the best weights, and checkpoints to go on from."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from danseo.config import TrainConfig
from danseo.errors import DanseoError
from danseo.runs.directory import BEST, KEPT, Run
from danseo.training.averaging import Average
from danseo.training.features import Features
from danseo.training.loop import Engine, Plan, Step, Stopwatch, train_steps
from danseo.training.optim import make_optimizer
from danseo.training.workers import Workers

_CHECKPOINT_SECONDS = 300.0  # between evaluations, so that a kill never costs more


@dataclass
class Progress:
    """Where a fitting stands; small enough to be saved with every checkpoint."""

    step: int = 0
    best: float = -math.inf
    best_step: int = 0
    stale: int = 0
    """Evaluations since the best one."""
    pieces: int = 0
    padded: int = 0
    seconds: float = 0.0
    log_lines: int = 0
    tokens: int = 0
    averaged: int = 0
    kept: dict[str, tuple[float, int]] = field(default_factory=dict)
    """best_raw and best_swa with their scores and steps, where weights are averaged."""
    losses: list[Any] = field(default_factory=list)
    """Since the last evaluation; tensors on devices where reading them would wait."""
    scaler: dict[str, Any] = field(default_factory=dict)
    """How far the loss is scaled up, in half precision."""

    def as_dict(self) -> dict[str, Any]:
        self.losses = numbers_of(self.losses)
        return {**asdict(self), "best": None if math.isinf(self.best) else self.best}

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Progress":
        return cls(**{**state, "best": -math.inf if state["best"] is None else state["best"]})


class Watcher(Protocol):
    """Whom a fitting tells how it goes."""

    def step(self, step: Step, progress: Progress) -> None:
        """An optimiser step is done."""

    def evaluated(self, step: Step, progress: Progress, score: float | None) -> None:
        """It was one after which the weights were scored; None where the metric is undefined. It may raise to stop."""


class Fitting:
    """One fitting of one network, resumable bit for bit."""

    def __init__(
        self,
        engine: Engine,
        features: Sequence[Features],
        config: TrainConfig,
        seed: int,
        run: Run,
        plan: Plan | None = None,
    ) -> None:
        self.engine, self.features, self.config, self.run = engine, features, config, run
        self.plan = plan or Plan([len(record) for record in features], config, seed)
        self.noted: dict[str, Any] = {}  # what an evaluation found beside its score, for the log
        self.optimizer = make_optimizer(engine.network, config)
        self.average = Average(engine.network, config)
        self.progress = Progress(tokens=engine.tokens)
        self._restore()

    def run_to_end(self, evaluate: Callable[[], float], watcher: Watcher) -> Progress:
        """Train, evaluating as planned; the best weights end up in the network."""
        watch, saved = Stopwatch(self.progress.seconds), time.monotonic()
        if not self._is_over():
            steps = train_steps(
                self.engine, self.features, self.plan, self.optimizer, self.config, start=self.progress.step
            )
            for step in steps:
                self._count(step, watch)
                self.average.offer(step.number, self.plan.steps_per_epoch)
                is_evaluation = self.plan.is_evaluation(step.number)
                if is_evaluation:
                    watcher.evaluated(step, self.progress, _defined(self._evaluate(step, evaluate)))
                else:
                    watcher.step(step, self.progress)
                if not is_evaluation and time.monotonic() - saved < _CHECKPOINT_SECONDS:
                    continue
                self._save()
                saved = time.monotonic()
                if self._is_over():
                    break
        self._keep_last()
        kept_weights(self.engine.network, self.run, BEST, self.engine.workers)
        return self.progress

    def _is_over(self) -> bool:
        patience = self.config.patience
        return self.progress.step >= self.plan.total or (
            patience is not None and self.progress.stale >= max(1, patience)
        )

    def _count(self, step: Step, watch: Stopwatch) -> None:
        progress = self.progress
        progress.step, progress.seconds, progress.tokens = step.number, watch.seconds, self.engine.tokens
        progress.pieces += step.pieces
        progress.padded += step.padded
        progress.losses.append(step.loss)

    def _evaluate(self, step: Step, evaluate: Callable[[], float]) -> float:
        """The score of the weights that count: the average once there is one; they are kept if they are the best."""
        self.engine.check_losses()
        progress, network = self.progress, self.engine.network
        raw = self._score(evaluate)
        score = raw
        if self.average.is_planned:
            self._offer_kept("best_raw", raw, step)
        if self.average.is_active:
            with self.average.swapped_into(network):
                score = self._score(evaluate)
                self._offer(score, step)
                self._offer_kept("best_swa", score, step)
        else:
            self._offer(score, step)
        record = {
            "step": step.number,
            "epoch": round(step.epoch, 4),
            "loss": sum(numbers_of(progress.losses)) / len(progress.losses),
            "rate": step.rate,
            "score": score,
            "best": progress.best,
            **({"raw_score": raw, "averaged": self.average.count} if self.average.is_active else {}),
            **self.noted,
        }
        progress.losses = []
        if self.engine.workers.is_first:
            self.run.log({key: _defined(value) for key, value in record.items()})
        progress.log_lines += 1
        return score

    def _score(self, evaluate: Callable[[], float]) -> float:
        score = evaluate()
        return -math.inf if math.isnan(score) else score

    def _offer(self, score: float, step: Step) -> None:
        progress = self.progress
        progress.stale += 1
        if score > progress.best or progress.best_step == 0:
            progress.best, progress.best_step, progress.stale = score, step.number, 0
            self._keep(BEST)

    def _offer_kept(self, name: str, score: float, step: Step) -> None:
        """Where weights are averaged, the best of both sorts are kept beside each other."""
        if score > self.progress.kept.get(name, (-math.inf, 0))[0]:
            self.progress.kept[name] = (score, step.number)
            self._keep(f"{KEPT}/{name}.safetensors")

    def _keep_last(self) -> None:
        """Where weights are averaged: the last ones and the last average."""
        if self.average.is_planned:
            self._keep(f"{KEPT}/last.safetensors")
        if self.average.is_active:
            with self.average.swapped_into(self.engine.network):
                self._keep(f"{KEPT}/final_swa.safetensors")

    def _keep(self, name: str) -> None:
        if self.engine.workers.is_first:
            self.run.save_weights(name, self._weights())

    def _weights(self) -> dict[str, Tensor]:
        """What checkpoints hold: of a large body that stays as it was, nothing."""
        network = self.engine.network
        return weights_of(network, learning_only=not network.keeps_frozen)

    def _save(self) -> None:
        self.engine.check_losses()
        if not self.engine.workers.is_first:
            return
        tensors = {f"network.{key}": value for key, value in self._weights().items()}
        tensors |= {f"average.{key}": value.detach().cpu() for key, value in self.average.weights.items()}
        for position, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{position}.{key}": value.detach().cpu() for key, value in state.items()}
        self.progress.averaged, self.progress.scaler = self.average.count, self.engine.scaler.state_dict()
        self.run.save_checkpoint({key: value.contiguous() for key, value in tensors.items()}, self.progress.as_dict())

    def _found(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The checkpoint to go on from: whole, of this network, and with the best weights that it tells of."""
        found, note = self.run.load_checkpoint(self.engine.on_note), self.engine.on_note
        if found is None:
            return None
        try:
            if Progress.of(found[1]).best_step:
                self.run.load_weights(BEST)
            check_weights(self.engine.network, _below("network.", found[0]))
        except (DanseoError, TypeError, KeyError) as error:
            said = (
                str(error).partition("; ")[0]
                if isinstance(error, DanseoError)
                else "the checkpoint is of another version"
            )
            note(f"note: {self.run.path.name}: {said}; starting from the beginning")
            return None
        return found

    def _restore(self) -> None:
        """Go on from the first process's checkpoint, where there is one; others may not see its disk."""
        workers = self.engine.workers
        found = self._found() if workers.is_first else None
        state = workers.agreed(found and found[1])
        self.progress = Progress.of(state) if state else self.progress
        if workers.is_first:
            self.run.cut_log(self.progress.log_lines)
        if not state:
            return
        tensors = workers.shared(found and found[0])
        self.engine.tokens = self.progress.tokens
        self.engine.renew_scaler(self.progress.scaler)
        load_weights(self.engine.network, _below("network.", tensors))
        device = self.engine.workers.device
        self.average.weights = {key: value.to(device) for key, value in _below("average.", tensors).items()}
        self.average.count = self.progress.averaged
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _below("optimizer.", tensors).items():
            position, key = name.split(".", 1)
            moments.setdefault(int(position), {})[key] = value
        if moments:
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})


def numbers_of(losses: Sequence[Any]) -> list[float]:
    """Losses as numbers, all of a device at once."""
    kept = [loss for loss in losses if isinstance(loss, Tensor)]
    read = iter(torch.stack(kept).tolist() if kept else [])
    return [next(read) if isinstance(loss, Tensor) else loss for loss in losses]


def _defined(value: Any) -> Any:
    """None in place of what is no number: an undefined metric, or a loss beyond all bounds."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def weights_of(network: nn.Module, *, learning_only: bool = False) -> dict[str, Tensor]:
    """Every weight once, on the CPU; tied weights share their storage and are left to the first name."""
    frozen = {name for name, weight in network.named_parameters() if not weight.requires_grad and learning_only}
    seen: set[int] = set()
    weights: dict[str, Tensor] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        if id(tensor) not in seen and name not in frozen:
            seen.add(id(tensor))
            weights[name] = tensor.detach().cpu().clone().contiguous()
    return weights


def kept_weights(network: nn.Module, run: Run, name: str, workers: Workers) -> None:
    """Put back weights that the first process kept; others may not see its disk."""
    load_weights(network, workers.shared(run.load_weights(name) if workers.is_first else None))


def check_weights(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """Refuse weights of another network."""
    own = {name: tensor.shape for name, tensor in network.state_dict(keep_vars=True).items()}
    if odd := [name for name, value in weights.items() if own.get(name) != value.shape]:
        raise DanseoError(f"the checkpoint is of another network ({odd[0]})")


@torch.no_grad()
def load_weights(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put back what weights_of took."""
    own = network.state_dict(keep_vars=True)
    for name, value in weights.items():
        own[name].data.copy_(value)
