"""Run optimizer steps and compute outputs; every step is reproducible from its number."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danseo.config.train import OptimizationSettings, TrainSettings
from danseo.errors import WorkFailed
from danseo.training.adversarial import compute_divergence, compute_shifts, shift_weights
from danseo.training.distributed import Workers, runs_out_of_memory
from danseo.training.features import Features, Objective, Outputs, make_epoch_batches, make_token_batches
from danseo.training.network import TrainableNetwork
from danseo.training.optimizers import (
    allocate_moments,
    compute_lr_factor,
    drop_tiny_moments,
    is_averaging,
    list_state_tensors,
    set_learning_rates,
    trainable_parameters,
)
from danseo.training.precision import ComputeConfig

_DROP_TINY_EVERY = 100  # steps
_TOO_LITTLE = "the device has too little memory for this model; lower train.max_batch_tokens or use a smaller one"
_CHECK_EVERY = 100  # steps between checks of the losses on a GPU, as each check waits for it
_PADDING = 64  # tokens of padding that cost as much as another part, for networks that read padded texts
_CPU_STATES = 3 * 2**18  # hidden numbers per thread that fit into the caches of a CPU: 1,024 tokens of width 768


@dataclass(frozen=True)
class Step:
    """The result of one optimizer step."""

    number: int
    total: int
    epoch: float
    loss: float | Tensor
    """A tensor on a GPU, because reading it would wait for the GPU."""
    rate: float
    tokens: int


@dataclass
class BatchPlan:
    """The examples of each step, and the steps after which to evaluate."""

    lengths: list[int]
    config: OptimizationSettings
    seed: int
    _epoch: int = -1
    _batches: list[list[int]] = field(default_factory=list)
    weights: list[float] | None = None
    """Sampling weights of the examples; None takes every example once per epoch."""

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.lengths) / self.config.batch_size)

    @property
    def total(self) -> int:
        return max(1, math.ceil(self.steps_per_epoch * self.config.epochs))

    def batch(self, step: int) -> list[int]:
        """Return the examples of a step, counted from 0."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._batches = make_epoch_batches(
                len(self.lengths), self.config.batch_size, self.seed, epoch, self.weights
            )
            self._epoch = epoch
        return self._batches[position]

    def is_evaluation(self, done: int) -> bool:
        """Return whether to evaluate after this number of steps: evenly within each epoch, and at the end."""
        assert isinstance(self.config, TrainSettings)  # other trainings override this method
        position, epochs = done % self.steps_per_epoch, self.config.evals_per_epoch
        marks = {round(k * self.steps_per_epoch / epochs) % self.steps_per_epoch for k in range(1, epochs + 1)}
        return position in marks or done == self.total


@dataclass
class Engine:
    """A network with its objective, processes, precision and batch limit."""

    network: TrainableNetwork
    objective: Objective
    workers: Workers
    mode: ComputeConfig
    max_tokens: int
    """Most tokens per part of a batch; halved when the device runs out of memory."""
    on_note: Callable[[str], None] = lambda note: None
    rdrop_alpha: float = 0.0
    """Weight of R-Drop: two passes that differ in dropout, and how far apart they are."""

    is_sharded: bool = False
    """Whether the weights are divided among the processes (train.sharding)."""
    waits_for_shards: bool = False
    """Whether the network stays where it is, because its weights are about to be divided."""

    def __post_init__(self) -> None:
        device = self.workers.device
        if not self.waits_for_shards:
            self.network.to(device)
        self.reset_scaler({})
        self.reads_at_once = device.type == "cpu"  # reading a number does not wait for a GPU
        self.broken = torch.full((), math.inf, device=device)  # the first step whose loss was NaN or infinite
        if device.type == "cpu":
            self.max_tokens = min(self.max_tokens, self._cache_tokens)

    @property
    def inference_tokens(self) -> int:
        """Return the most tokens per batch where no gradients are kept."""
        return (
            min(2 * self.max_tokens, self._cache_tokens) if self.workers.device.type == "cpu" else 2 * self.max_tokens
        )

    @property
    def _cache_tokens(self) -> int:
        return count_cache_tokens(self.network.model.config.hidden_size)

    def split(self, indices: Sequence[int], lengths: Sequence[int], tokens: int) -> list[list[int]]:
        """Split indices into parts that the network reads at once."""
        packed = self.network.is_packed
        return make_token_batches(indices, lengths, tokens, math.inf if packed else _PADDING, packed=packed)

    def forward(self, features: Sequence[Features], with_gold: bool) -> tuple[Any, dict[str, Any]]:
        """Return the outputs of the network, and the batch that it read."""
        batch = self.network.collate(list(features), self.objective, with_gold)
        batch = {key: self._to_device(tensor) for key, tensor in batch.items()}
        with self.mode.autocast(self.workers.device):
            return self.network(batch), batch

    def _to_device(self, tensor: Any) -> Any:
        """Copy a tensor to the device; a GPU reads pinned memory while the CPU continues. Tuples stay on the CPU."""
        if isinstance(tensor, tuple):
            return tensor
        device = self.workers.device
        return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

    def reset_scaler(self, state: dict[str, Any]) -> None:
        """Start the loss scaling of fp16, whose gradients would be 0 without it, from a saved state."""
        self.scaler = torch.amp.GradScaler(self.workers.device.type, enabled=self.mode.precision == "fp16")
        if state:
            self.scaler.load_state_dict(state)

    def record_loss(self, loss: Tensor, number: int) -> float | Tensor:
        """Return the loss of a step; on a GPU keep it there, and only record whether it is a number."""
        if not self.reads_at_once:
            self.broken = torch.where(loss.isfinite(), self.broken, self.broken.clamp(max=number))
            return loss
        if not math.isfinite(found := float(loss)):
            raise WorkFailed(f"the loss is {found} at step {number}; lower train.learning_rate")
        return found

    def check_losses(self) -> None:
        """Wait for the GPU, and raise an error if a loss was not a number, before anything is evaluated or saved."""
        if not self.reads_at_once and math.isfinite(number := float(self.broken)):
            raise WorkFailed(f"the loss is not a number at step {number:.0f}; lower train.learning_rate")

    def synchronize(self) -> None:
        """Wait until the GPU has finished its work."""
        if self.workers.device.type == "cuda":
            torch.cuda.synchronize(self.workers.device)

    def allocate(self, memory: Callable[[], None]) -> None:
        """Allocate memory that is needed whatever the size of the parts."""
        try:
            self.workers.run_together(memory)
        except torch.OutOfMemoryError:
            raise WorkFailed(_TOO_LITTLE) from None

    def halve_max_tokens(self) -> None:
        """Halve the batch limit after the device ran out of memory."""
        if self.max_tokens <= 16:
            raise WorkFailed(_TOO_LITTLE)
        self.max_tokens //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.on_note(f"out of memory: batches are now split into parts of at most {self.max_tokens} tokens")


def count_cache_tokens(width: int) -> int:
    """Return how many tokens of this width fit into the caches of the CPU."""
    return max(1, _CPU_STATES // width) * torch.get_num_threads()


def train_steps(
    engine: Engine,
    features: Sequence[Features],
    plan: BatchPlan,
    optimizer: torch.optim.Optimizer,
    config: OptimizationSettings,
    start: int = 0,
) -> Iterator[Step]:
    """Yield optimizer steps from the given one to the last; a step depends on its number alone."""
    engine.allocate(lambda: allocate_moments(optimizer))
    for number in range(start, plan.total):
        averaging = is_averaging(number, plan.steps_per_epoch, config)
        fixed = config.swa_lr if averaging else None
        factor = compute_lr_factor(number, plan.total, config, plan.steps_per_epoch)
        rate = set_learning_rates(optimizer, factor, fixed)
        engine.network.train()
        batch = [features[index] for index in plan.batch(number)]
        engine.objective.begin_step(number, batch)
        loss = _run_step(engine, batch, optimizer, config, seed=hash((plan.seed, number, engine.workers.rank)))
        if engine.workers.device.type == "cpu" and (number + 1) % _DROP_TINY_EVERY == 0:
            drop_tiny_moments(optimizer)
        read = engine.record_loss(loss, number + 1)
        if (number + 1) % _CHECK_EVERY == 0:
            engine.check_losses()
        tokens = sum(map(len, batch))
        yield Step(number + 1, plan.total, (number + 1) / plan.steps_per_epoch, read, rate, tokens)


def _run_step(
    engine: Engine, batch: list[Features], optimizer: torch.optim.Optimizer, config: OptimizationSettings, seed: int
) -> Tensor:
    """Try a step until its parts fit into memory; return the loss."""
    while True:
        try:
            torch.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)
            return _try_step(engine, batch, optimizer, config)
        except torch.OutOfMemoryError:
            optimizer.zero_grad(set_to_none=True)
            engine.halve_max_tokens()


def _try_step(
    engine: Engine, batch: list[Features], optimizer: torch.optim.Optimizer, config: OptimizationSettings
) -> Tensor:
    """Run forward and backward part by part, then one update; the loss is the mean over the whole batch.

    Processes exchange whether memory ran out before gradients are summed and after the update, so that none waits
    for another forever.
    """
    workers, weights = engine.workers, list(trainable_parameters(engine.network))
    sums, is_short = _add_gradients(engine, weights, batch, config)
    if is_short and engine.is_sharded:  # the others wait for its weights; the launcher ends them
        raise WorkFailed(_TOO_LITTLE)
    short, *users = workers.all_reduce_counts([is_short, *(weight.grad is not None for weight in weights)])
    if short:  # on whichever process
        raise torch.OutOfMemoryError
    workers.all_reduce(sums)
    if not engine.is_sharded:
        workers.all_reduce_gradients(weights, users)
    weight = sums[1].clamp(min=1e-6)
    factor = (workers.world if engine.is_sharded else 1) / weight  # FSDP averages over the processes
    _update_weights(engine, weights, optimizer, factor, config.max_grad_norm)
    optimizer.zero_grad(set_to_none=True)
    return sums[0] / weight


def _update_weights(
    engine: Engine, weights: list[nn.Parameter], optimizer: torch.optim.Optimizer, factor: Tensor, clip: float
) -> None:
    """Update the weights; a process that runs out of memory copies the result of another one."""
    workers = engine.workers
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    if engine.is_sharded:
        gradients = [gradient.to_local() for gradient in gradients]  # type: ignore[attr-defined]
    failed = workers.all_gather([runs_out_of_memory(lambda: _apply_update(engine, gradients, optimizer, factor, clip))])
    if all(failed) or (any(failed) and engine.is_sharded):
        raise WorkFailed(_TOO_LITTLE)
    if any(failed):
        leader = failed.index(False)
        workers.broadcast_from(leader, [*(weight.data for weight in weights), *list_state_tensors(optimizer)])
        engine.reset_scaler(workers.all_gather([engine.scaler.state_dict()])[leader])
        engine.halve_max_tokens()


def _apply_update(
    engine: Engine, gradients: list[Tensor], optimizer: torch.optim.Optimizer, factor: Tensor, clip: float
) -> None:
    """Scale and clip the gradients, and run the optimizer."""
    scaler = engine.scaler
    scaler.unscale_(optimizer)
    if clip:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        norm = engine.workers.all_reduce(norm.square()).sqrt() if engine.is_sharded else norm
        factor = factor * (clip / (norm * factor + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gradients, factor)  # one pass over all weights for both factors, as a pass is slow on a CPU
    scaler.step(optimizer)
    scaler.update()


def _add_gradients(
    engine: Engine, weights: list[nn.Parameter], batch: list[Features], config: OptimizationSettings
) -> tuple[Tensor, bool]:
    """Add the gradients of this process; return loss and weight, and whether memory ran out.

    Processes that share weights must run equally many passes: some repeat an example, with a loss of zero.
    """
    own = engine.workers.shard(batch)
    sums = torch.zeros(2, device=engine.workers.device)
    tokens = engine.max_tokens // 2 if engine.rdrop_alpha else engine.max_tokens  # R-Drop holds two passes in memory

    def add(counts: bool = True) -> None:
        parts = engine.split(range(len(own)), [len(record) for record in own], tokens)
        passes = max(engine.workers.all_gather([len(parts)])) if engine.is_sharded else len(parts)
        for number in range(passes):
            is_own = number < len(parts)
            loss, weight = _compute_loss(engine, [own[index] for index in parts[number]] if is_own else batch[:1])
            engine.scaler.scale(loss if is_own else 0 * loss).backward()
            if counts and is_own:
                sums.add_(torch.stack([loss.detach().float(), weight.detach().float()]))

    def add_all() -> None:
        add()
        for shift in compute_shifts(engine.network, config):
            with shift_weights(shift):
                add(counts=False)
        if not engine.is_sharded:
            engine.workers.allocate_buffer(weights)

    is_short = runs_out_of_memory(add_all)
    return sums, is_short


def _compute_loss(engine: Engine, features: list[Features]) -> tuple[Tensor, Tensor]:
    """Return the summed loss and its weight; R-Drop adds a second pass and the divergence."""
    outputs, tensors = engine.forward(features, with_gold=True)
    loss, weight = engine.objective.loss(outputs, tensors)
    if engine.rdrop_alpha:
        second, _ = engine.forward(features, with_gold=True)
        loss = loss + engine.objective.loss(second, tensors)[0]
        loss = loss + engine.rdrop_alpha * compute_divergence(outputs["logits"], second["logits"])
    return loss, weight


@torch.inference_mode()
def compute_outputs(
    engine: Engine, features: Sequence[Features], on_part: Callable[[int], None] = lambda count: None
) -> list[Outputs]:
    """Return the outputs of the features in their order; every process computes its share."""
    engine.network.eval()
    own = engine.workers.shard(features)
    found: list[Any] = [None] * len(own)
    for part, outputs, batch in _compute_parts(engine, own):
        unpacked = engine.objective.unpack(outputs, batch, [own[index] for index in part])
        for index, output in zip(part, unpacked, strict=True):
            found[index] = output
        on_part(len(part))
    whole: list[Outputs] = engine.workers.all_gather(found)
    if any(map(_has_invalid_numbers, whole)):
        raise WorkFailed("the model computes NaN or infinite numbers; train it again, with a lower train.learning_rate")
    return whole


def _compute_parts(engine: Engine, own: Sequence[Features]) -> Iterator[tuple[list[int], Any, dict[str, Tensor]]]:
    """Yield positions, outputs and batch, part by part.

    The next part is queued on a GPU before the outputs of one are read, so that it computes while they are unpacked.
    """
    lengths = [len(record) for record in own]
    parts = engine.split(range(len(own)), lengths, engine.inference_tokens)
    queued, ahead = deque[tuple[list[int], Any, dict[str, Tensor]]](), 0 if engine.reads_at_once else 1
    while parts or queued:
        if not parts or len(queued) > ahead:
            yield queued.popleft()
            continue
        part = parts.pop(0)
        try:
            queued.append((part, *engine.forward([own[index] for index in part], with_gold=False)))
        except torch.OutOfMemoryError:
            engine.halve_max_tokens()
            waiting = [index for later in [part, *parts] for index in later]
            parts = engine.split(waiting, lengths, engine.inference_tokens)


def _has_invalid_numbers(outputs: Outputs) -> bool:
    """Return whether an output is NaN or infinite; heads write minus infinity where no answer is allowed."""
    numbers = (value for value in outputs.values() if isinstance(value, float | np.ndarray))
    arrays = (array for array in map(np.asarray, numbers) if array.dtype.kind == "f")
    return any(np.isnan(array).any() or np.isposinf(array).any() for array in arrays)


class Stopwatch:
    """Count the seconds of a training, starting from those of earlier starts."""

    def __init__(self, before: float = 0.0) -> None:
        self.before, self.start = before, time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.start
