"""The training loop: one step after the other, each reproducible from its number."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danseo.config import TrainConfig
from danseo.errors import WorkFailed
from danseo.training.adversary import divergence, moved, shifts_of
from danseo.training.averaging import is_averaging
from danseo.training.batching import epoch_batches, packed
from danseo.training.features import Features, Objective, Outputs
from danseo.training.network import TrainableNetwork
from danseo.training.optim import drop_tiny_moments, learning, rate_share, set_rates, state_tensors, take_moments
from danseo.training.speed import ComputeMode
from danseo.training.workers import Workers, runs_out

_TIDY_EVERY = 100  # steps
_TOO_LITTLE = "the device has too little memory for this model; lower train.batch_tokens or use a smaller one"
_READ_EVERY = 100  # steps, on devices that are otherwise never waited for
_CPU_STATES = 3 * 2**18  # hidden numbers per thread that the caches of a CPU hold: 1,024 pieces of width 768


@dataclass(frozen=True)
class Step:
    """What one optimiser step did."""

    number: int
    total: int
    epoch: float
    loss: float | Tensor
    """On the device where reading it would wait for that."""
    rate: float
    pieces: int
    padded: int


@dataclass
class Plan:
    """Which examples each step sees, and when to evaluate."""

    lengths: list[int]
    config: TrainConfig
    seed: int
    _epoch: int = -1
    _batches: list[list[int]] = field(default_factory=list)
    weights: list[float] | None = None
    """How often each is drawn, in relation to the others; None takes all once per epoch."""

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.lengths) / self.config.batch_size)

    @property
    def total(self) -> int:
        return max(1, math.ceil(self.steps_per_epoch * self.config.epochs))

    def batch(self, step: int) -> list[int]:
        """The examples of a step, counted from 0."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._batches = epoch_batches(self.lengths, self.config.batch_size, self.seed, epoch, self.weights)
            self._epoch = epoch
        return self._batches[position]

    def is_evaluation(self, done: int) -> bool:
        """Whether to evaluate after so many steps: evenly within each epoch, and at the end."""
        position, epochs = done % self.steps_per_epoch, self.config.evaluations
        marks = {round(k * self.steps_per_epoch / epochs) % self.steps_per_epoch for k in range(1, epochs + 1)}
        return position in marks or done == self.total


@dataclass
class Engine:
    """A network with all that computing with it takes."""

    network: TrainableNetwork
    kind: Objective
    workers: Workers
    mode: ComputeMode
    tokens: int
    """Most padded pieces at a time; halved when the device runs out of memory."""
    on_note: Callable[[str], None] = lambda note: None

    def __post_init__(self) -> None:
        device = self.workers.device
        self.network.to(device)
        self.renew_scaler({})
        self.is_prompt = device.type == "cpu"  # numbers are there at once, and reading them waits for nothing
        self.broken = torch.full((), math.inf, device=device)  # the first step whose loss was no number
        if device.type == "cpu":
            self.tokens = min(self.tokens, self._cache)

    @property
    def reading_tokens(self) -> int:
        """Most padded pieces at a time where no gradients are kept."""
        return min(2 * self.tokens, self._cache) if self.workers.device.type == "cpu" else 2 * self.tokens

    @property
    def _cache(self) -> int:
        width: int = self.network.model.config.hidden_size
        return max(1, _CPU_STATES // width) * torch.get_num_threads()

    def forward(self, features: Sequence[Features], with_gold: bool) -> tuple[Any, dict[str, Tensor]]:
        batch = self.network.collate(list(features), self.kind, with_gold)
        batch = {key: self._moved(tensor) for key, tensor in batch.items()}
        with self.mode.autocast(self.workers.device):
            return self.network(batch), batch

    def _moved(self, tensor: Tensor) -> Tensor:
        """On the device; from pinned memory a GPU fetches it while the processor goes on."""
        device = self.workers.device
        return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

    def renew_scaler(self, state: dict[str, Any]) -> None:
        """Half precision has no room for small gradients; the loss is scaled up, by as much as it bears."""
        self.scaler = torch.amp.GradScaler(self.workers.device.type, enabled=self.mode.precision == "fp16")
        if state:
            self.scaler.load_state_dict(state)

    def note_loss(self, loss: Tensor, number: int) -> float | Tensor:
        """The loss of a step, read where that waits for nothing; else it is only noted whether it is a number."""
        if not self.is_prompt:
            self.broken = torch.where(loss.isfinite(), self.broken, self.broken.clamp(max=number))
            return loss
        if not math.isfinite(found := float(loss)):
            raise WorkFailed(f"the loss is {found} at step {number}; lower train.learning_rate")
        return found

    def check_losses(self) -> None:
        """Wait for the device, and end where a loss was no number: before anything is evaluated or saved."""
        if not self.is_prompt and math.isfinite(number := float(self.broken)):
            raise WorkFailed(f"the loss is no number at step {number:.0f}; lower train.learning_rate")

    def finish(self) -> None:
        """Until the device has done all that it was told."""
        if self.workers.device.type == "cuda":
            torch.cuda.synchronize(self.workers.device)

    def take(self, memory: Callable[[], None]) -> None:
        """Take memory that is needed whatever the size of the parts."""
        try:
            self.workers.together(memory)
        except torch.OutOfMemoryError:
            raise WorkFailed(_TOO_LITTLE) from None

    def halve(self) -> None:
        """Less at a time after the device ran out of memory."""
        if self.tokens <= 16:
            raise WorkFailed(_TOO_LITTLE)
        self.tokens //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.on_note(f"out of memory: from now on at most {self.tokens} pieces at a time, in more parts per step")


def train_steps(
    engine: Engine,
    features: Sequence[Features],
    plan: Plan,
    optimizer: torch.optim.Optimizer,
    config: TrainConfig,
    start: int = 0,
) -> Iterator[Step]:
    """Optimiser steps from the given one to the last; what a step does depends on its number alone."""
    engine.take(lambda: take_moments(optimizer))
    for number in range(start, plan.total):
        averaging = is_averaging(number, plan.steps_per_epoch, config)
        fixed = config.swa_learning_rate if averaging else None
        rate = set_rates(optimizer, rate_share(number, plan.total, config), fixed)
        engine.network.train()
        batch = [features[index] for index in plan.batch(number)]
        engine.kind.begin_step(number, batch)
        loss, padded = _step(engine, batch, optimizer, config, seed=hash((plan.seed, number, engine.workers.rank)))
        if engine.workers.device.type == "cpu" and (number + 1) % _TIDY_EVERY == 0:
            drop_tiny_moments(optimizer)
        shown = engine.note_loss(loss, number + 1)
        if (number + 1) % _READ_EVERY == 0:
            engine.check_losses()
        pieces = sum(map(len, batch))
        yield Step(number + 1, plan.total, (number + 1) / plan.steps_per_epoch, shown, rate, pieces, padded)


def _step(
    engine: Engine, batch: list[Features], optimizer: torch.optim.Optimizer, config: TrainConfig, seed: int
) -> tuple[Tensor, int]:
    while True:
        try:
            torch.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)
            return _try_step(engine, batch, optimizer, config)
        except torch.OutOfMemoryError:
            optimizer.zero_grad(set_to_none=True)
            engine.halve()


def _try_step(
    engine: Engine, batch: list[Features], optimizer: torch.optim.Optimizer, config: TrainConfig
) -> tuple[Tensor, int]:
    """Forward and backward part by part, then one update; the loss is the mean over the whole batch.

    Before gradients meet, and after the update, processes tell each other whether memory ran out: none is left behind.
    """
    workers, weights = engine.workers, list(learning(engine.network))
    sums, own, is_short = _add_gradients(engine, weights, workers.share(batch), config)
    short, padded, *users = workers.counted([is_short, own, *(weight.grad is not None for weight in weights)])
    if short:  # on whichever process
        raise torch.OutOfMemoryError
    workers.total(sums)
    workers.total_gradients(weights, users)
    _update(engine, weights, optimizer, 1 / _gradient_weight(engine, batch, sums[1]), config.clip)
    optimizer.zero_grad(set_to_none=True)
    return sums[0] / sums[1].clamp(min=1e-6), int(padded)


def _update(
    engine: Engine, weights: list[nn.Parameter], optimizer: torch.optim.Optimizer, factor: Tensor, clip: float
) -> None:
    """Scale, clip, and step; a process whose memory runs out in it takes over what another one came to."""
    workers = engine.workers
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    failed = workers.gathered([runs_out(lambda: _move(engine.scaler, gradients, optimizer, factor, clip))])
    if all(failed):
        raise WorkFailed(_TOO_LITTLE)
    if any(failed):
        leader = failed.index(False)
        workers.follow(leader, [*(weight.data for weight in weights), *state_tensors(optimizer)])
        engine.renew_scaler(workers.gathered([engine.scaler.state_dict()])[leader])
        engine.halve()


def _move(
    scaler: torch.amp.GradScaler, gradients: list[Tensor], optimizer: torch.optim.Optimizer, factor: Tensor, clip: float
) -> None:
    scaler.unscale_(optimizer)
    if clip:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        factor = factor * _clipping(norm * factor, clip)
    torch._foreach_mul_(gradients, factor)  # once over all weights, as on a CPU that takes its time
    scaler.step(optimizer)
    scaler.update()


def _clipping(norm: Tensor, most: float) -> Tensor:
    """What gradients of this norm are multiplied by, so that it is at most the given one."""
    return (most / (norm + 1e-6)).clamp(max=1.0)


def _gradient_weight(engine: Engine, batch: list[Features], weight: Tensor) -> Tensor:
    """What the summed gradients are divided by.

    Batches hold examples of similar length. Divided by its own weight, a batch of short ones would count as much as
    one of long ones, and their pieces for several times as much.
    """
    usual = engine.kind.usual_weight
    return weight.clamp(min=1e-6) if usual is None else torch.full_like(weight, max(usual * len(batch), 1e-6))


def _add_gradients(
    engine: Engine, weights: list[nn.Parameter], own: list[Features], config: TrainConfig
) -> tuple[Tensor, int, bool]:
    """Gradients of this process's examples; the loss with its weight, padded pieces, and whether memory ran out."""
    sums, padded = torch.zeros(2, device=engine.workers.device), 0
    tokens = engine.tokens // 2 if config.rdrop else engine.tokens  # where two passes are held at a time

    def add(counts: bool = True) -> None:
        nonlocal padded
        for part in packed(range(len(own)), [len(record) for record in own], tokens):
            loss, weight, size = _loss_of(engine, [own[index] for index in part], config)
            engine.scaler.scale(loss).backward()
            if counts:
                padded += size
                sums.add_(torch.stack([loss.detach().float(), weight.detach().float()]))

    def add_all() -> None:
        add()
        for shift in shifts_of(engine.network, config):
            with moved(shift):
                add(counts=False)
        engine.workers.make_room(weights)

    is_short = runs_out(add_all)
    return sums, padded, is_short


def _loss_of(engine: Engine, features: list[Features], config: TrainConfig) -> tuple[Tensor, Tensor, int]:
    """The summed loss, its weight and the padded pieces; with R-Drop of two passes, and of how far they are apart."""
    outputs, tensors = engine.forward(features, with_gold=True)
    loss, weight = engine.kind.loss(outputs, tensors)
    if config.rdrop:
        second, _ = engine.forward(features, with_gold=True)
        loss = loss + engine.kind.loss(second, tensors)[0]
        loss = loss + config.rdrop * divergence(outputs["logits"], second["logits"])
    return loss, weight, tensors["input_ids"].numel()


@torch.inference_mode()
def outputs_of(
    engine: Engine, features: Sequence[Features], on_part: Callable[[int], None] = lambda count: None
) -> list[Outputs]:
    """What the network makes of the features, in their order; every process works on its share."""
    engine.network.eval()
    own = engine.workers.share(features)
    found: list[Any] = [None] * len(own)
    for part, outputs, batch in _computed(engine, own):
        unpacked = engine.kind.unpack(outputs, batch, [own[index] for index in part])
        for index, output in zip(part, unpacked, strict=True):
            found[index] = output
        on_part(len(part))
    whole: list[Outputs] = engine.workers.gathered(found)
    if any(map(_is_odd, whole)):
        raise WorkFailed("the model computes NaN or infinite numbers; train it again, with a lower train.learning_rate")
    return whole


def _computed(engine: Engine, own: Sequence[Features]) -> Iterator[tuple[list[int], Any, dict[str, Tensor]]]:
    """Which records, what the network makes of them, and their batch, part by part.

    A GPU is told of the next part before the outputs of one are read, and computes that while they are unpacked.
    """
    lengths = [len(record) for record in own]
    parts = packed(range(len(own)), lengths, engine.reading_tokens)
    told, ahead = deque[tuple[list[int], Any, dict[str, Tensor]]](), 0 if engine.is_prompt else 1
    while parts or told:
        if not parts or len(told) > ahead:
            yield told.popleft()
            continue
        part = parts.pop(0)
        try:
            told.append((part, *engine.forward([own[index] for index in part], with_gold=False)))
        except torch.OutOfMemoryError:
            engine.halve()
            parts = packed([index for rest in [part, *parts] for index in rest], lengths, engine.reading_tokens)


def _is_odd(outputs: Outputs) -> bool:
    """Whether some output is no number; minus infinity is what heads write where no answer may be."""
    numbers = (value for value in outputs.values() if isinstance(value, float | np.ndarray))
    arrays = (array for array in map(np.asarray, numbers) if array.dtype.kind == "f")
    return any(np.isnan(array).any() or np.isposinf(array).any() for array in arrays)


class Stopwatch:
    """Seconds since it was made, less those spent elsewhere."""

    def __init__(self, before: float = 0.0) -> None:
        self.before, self.start = before, time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.start
