"""Choose which parameters learn, and how: freezing, groups, AdamW, Muon, learning rates, averages (SWA, EMA)."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config.train import OptimizationSettings
from danseo.errors import DanseoError

_DECAY_SHARE = 0.2  # of the steps after the warm-up, in which "warmup_stable_decay" lowers the rate to 0
_MOMENTUM = 0.95
_NEWTON = (3.4445, -4.7750, 2.0315)  # Muon's coefficients: they bring singular values between about 0.7 and 1.2
_NEWTON_STEPS = 5
_ADAMW_RMS = 0.2  # the usual RMS of AdamW's update, so that one learning rate fits both optimizers
_TINY = 1e-30  # a moment needs about a hundred more steps to shrink from here to a denormal number
_LAYER = re.compile(r"\.(?:layer|layers|h)\.(\d+)\.")
_NO_DECAY = re.compile(r"(bias[^.]*$|norm\d*\.weight$)", re.IGNORECASE)  # LSTMs have bias_ih_l0, …


def is_body(name: str) -> bool:
    """Return whether a parameter belongs to the pretrained encoder rather than to the head."""
    return name.startswith("model.") and not re.match(
        r"model\.(classifier|qa_outputs|score|head|pooler|dense|cls\.|lm_|generator_|decoder)", name
    )


def depth_of(name: str, layers: int) -> int:
    """Return 0 for embeddings, 1 to n for the layers, and n + 1 for everything above them."""
    if not is_body(name):
        return layers + 1
    if found := _LAYER.search(name):
        return int(found.group(1)) + 1
    return 0 if "embed" in name else layers + 1


def count_layers(network: nn.Module) -> int:
    """Return the number of layers of the encoder."""
    names = [name for name, _ in network.named_parameters() if is_body(name)]
    return max((int(match.group(1)) for name in names if (match := _LAYER.search(name))), default=-1) + 1


def freeze(network: nn.Module, what: str) -> int:
    """Freeze the named part, and return how many parameters that is."""
    layers = count_layers(network)
    limits = {"none": -1, "embeddings": 0, "encoder": layers + 1}
    if what not in limits and not (what.isdigit() and int(what) <= layers):
        raise DanseoError(f"freeze = {what}: should be none, encoder, embeddings, or a number of layers up to {layers}")
    limit = limits[what] if what in limits else int(what)
    frozen = 0
    for name, parameter in network.named_parameters():
        if depth_of(name, layers) <= limit and (what != "encoder" or is_body(name)):
            parameter.requires_grad_(False)
            frozen += parameter.numel()
    return frozen


def make_parameter_groups(network: nn.Module, config: OptimizationSettings) -> list[dict[str, Any]]:
    """Return parameter groups by depth and weight decay; `peak` is the highest learning rate of a group."""
    layers = count_layers(network)
    groups: dict[tuple[float, float, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        depth = depth_of(name, layers)
        rate = config.learning_rate * config.layer_lr_decay ** max(0, layers - depth)
        if not is_body(name) and config.head_learning_rate is not None:
            rate = config.head_learning_rate
        decay = 0.0 if _NO_DECAY.search(name) else config.weight_decay
        is_orthogonal = config.optimizer == "muon" and is_layer_matrix(name, parameter)
        new = {"params": [], "lr": rate, "peak": rate, "weight_decay": decay}
        group = groups.setdefault(
            (rate, decay, is_orthogonal), {**new, **({"orthogonal": True} if is_orthogonal else {})}
        )
        group["params"].append(parameter)
    if not groups:
        raise DanseoError("every weight is frozen; nothing would learn")
    return list(groups.values())


def is_layer_matrix(name: str, parameter: Tensor) -> bool:
    """Return whether a parameter is a matrix of an encoder layer; embeddings and heads are not."""
    return parameter.ndim == 2 and is_body(name) and bool(_LAYER.search(name))


def make_optimizer(network: nn.Module, config: OptimizationSettings) -> torch.optim.Optimizer:
    """Return AdamW without decay on biases and norms, or Muon for the layers' matrices and AdamW for the rest.

    Adapters of a quantized model on a GPU get bitsandbytes' paged AdamW with moments of 8 bits.
    """
    groups = make_parameter_groups(network, config)
    if config.optimizer == "adamw" and uses_8bit_moments(network, groups[0]["params"][0].device):
        bitsandbytes: Any = import_module("bitsandbytes")
        make: Callable[..., torch.optim.Optimizer] = bitsandbytes.optim.PagedAdamW8bit
        return make(groups, betas=(0.9, config.adam_beta2), eps=1e-8)
    if config.optimizer == "muon":
        return Muon(groups, betas=(0.9, config.adam_beta2), eps=1e-8)
    return torch.optim.AdamW(groups, betas=(0.9, config.adam_beta2), eps=1e-8, fused=True)


def uses_8bit_moments(network: nn.Module, device: torch.device) -> bool:
    """Return whether the optimizer stores moments of 8 bits: on GPUs, for models that bitsandbytes quantized."""
    method = getattr(getattr(network, "model", None), "quantization_method", None)
    return method == "bitsandbytes" and device.type == "cuda"


class Muon(torch.optim.AdamW):
    """Update groups marked as orthogonal by the orthogonalized momentum, and all others by AdamW.

    `torch.optim.Muon` always computes in bfloat16: 3 to 11 times slower on a CPU without it, and fatal with broken AMX.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            if group.get("orthogonal"):
                self._update_orthogonal(group)
        return super().step(closure)

    def _update_orthogonal(self, group: dict[str, Any]) -> None:
        by_shape: dict[Any, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                by_shape.setdefault(parameter.shape, []).append(parameter)
        _allocate_state(self, group)
        for shape, parameters in by_shape.items():
            steps = orthogonalize(torch.stack([self._update_momentum(parameter) for parameter in parameters]))
            for parameter, step in zip(parameters, steps, strict=True):
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(step, alpha=-group["lr"] * _ADAMW_RMS * max(shape) ** 0.5)
                parameter.grad = None  # so that AdamW skips it

    def _update_momentum(self, parameter: nn.Parameter) -> Tensor:
        """Add the gradient to the momentum, and return Nesterov's look-ahead of it."""
        momentum, gradient = self.state[parameter]["exp_avg"], parameter.grad
        assert gradient is not None  # the caller leaves out parameters without one
        momentum.lerp_(gradient, 1 - _MOMENTUM)
        return gradient.lerp(momentum, _MOMENTUM)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Bring the singular values of matrices near 1 by five Newton-Schulz steps of the fifth degree.

    Every step is a polynomial of M·Mᵀ. For a wide matrix all steps are computed on that small product and multiplied
    with the matrix once: half the work for a layer of the usual shape.
    """
    found: Tensor = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    is_tall = found.shape[-2] > found.shape[-1]
    found = found.mT if is_tall else found
    if found.shape[-1] >= 2 * found.shape[-2]:
        found = _combine_steps(found @ found.mT) @ found
    else:
        for _ in range(_NEWTON_STEPS):
            found = _evaluate_polynomial(found @ found.mT) @ found
    return found.mT if is_tall else found


def _combine_steps(square: Tensor) -> Tensor:
    """Return the matrix that all steps together multiply M by, computed from M·Mᵀ."""
    combined = factor = _evaluate_polynomial(square)
    for _ in range(_NEWTON_STEPS - 1):
        square = factor @ square @ factor
        factor = _evaluate_polynomial(square)
        combined = factor @ combined
    return combined


def _evaluate_polynomial(square: Tensor) -> Tensor:
    made = torch.baddbmm(square, square, square, beta=_NEWTON[1], alpha=_NEWTON[2])
    made.diagonal(dim1=-2, dim2=-1).add_(_NEWTON[0])
    return made


def allocate_moments(optimizer: torch.optim.Optimizer) -> None:
    """Allocate AdamW's moments before the first step, so that memory cannot run out in the middle of an update."""
    if not isinstance(optimizer, torch.optim.AdamW):
        return
    for group in optimizer.param_groups:
        _allocate_state(optimizer, group)


def _allocate_state(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    for parameter in group["params"]:
        if not optimizer.state[parameter]:
            # orthogonal steps need no squared gradients
            names = ("exp_avg",) if group.get("orthogonal") else ("exp_avg", "exp_avg_sq")
            step = torch.zeros((), device=parameter.device)
            optimizer.state[parameter] = {"step": step, **{name: torch.zeros_like(parameter) for name in names}}


def list_state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors of the optimizer state in the order of its parameters."""
    states = (optimizer.state.get(parameter, {}) for parameter in _list_parameters(optimizer))
    return [value for state in states for _, value in sorted(state.items()) if isinstance(value, Tensor)]


def copy_optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer state on the CPU by the position of its parameter and its name, such as 0.exp_avg."""
    states = list_states(optimizer)
    return {key: torch.as_tensor(value).detach().cpu().clone() for key, value in states.items()}  # some share a table


def list_states(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the values of the optimizer state, in place, by the position of their parameter and their name."""
    return {
        f"{position}.{name}": value
        for position, parameter in enumerate(_list_parameters(optimizer))
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load what copy_optimizer_state returned."""
    states: dict[int, dict[str, Any]] = {}
    counts_in_python = not isinstance(optimizer, torch.optim.AdamW)  # bitsandbytes counts its steps in Python
    for key, value in tensors.items():
        position, name = key.split(".", 1)
        states.setdefault(int(position), {})[name] = int(value) if name == "step" and counts_in_python else value
    if states:
        optimizer.load_state_dict({**optimizer.state_dict(), "state": states})


def _list_parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def drop_tiny_moments(optimizer: torch.optim.Optimizer) -> None:
    """Set moments that are too small to move a weight to 0.

    The moments of rare tokens shrink at every step until they are denormal numbers, which make a CPU ten times slower.
    """
    for state in optimizer.state.values():
        for key in ("exp_avg", "exp_avg_sq"):
            if key in state:
                state[key].masked_fill_(state[key].abs() < _TINY, 0.0)


def compute_lr_factor(step: int, total: int, config: OptimizationSettings, steps_per_epoch: int | None = None) -> float:
    """Return the learning rate of a step, counted from 0, as a share of the peak; at least one step has the peak."""
    warmup = min(math.ceil(total * config.warmup_ratio), total - 1)
    if step < warmup:
        return step / max(1, warmup)
    progress = (step - warmup) / max(1, total - warmup)
    cycle = max(1, (steps_per_epoch or total) // config.lr_cycles_per_epoch)
    position = (step - warmup) % (steps_per_epoch or total)
    match config.lr_scheduler_type:
        case "linear":
            share = max(0.0, 1 - progress)
        case "warmup_stable_decay":
            share = min(1.0, max(0.0, 1 - progress) / _DECAY_SHARE)
        case "constant":
            share = 1.0
        case "cosine":
            share = _cosine(min(1.0, progress))
        case "cosine_with_restarts":  # steps that are left after the last cycle keep its end
            done = min(position // cycle, config.lr_cycles_per_epoch - 1)
            share = _cosine(min(1.0, position / cycle - done))
        case "cosine_annealing":
            share = _cosine(position / cycle)
        case unknown:
            raise DanseoError(f"train.lr_scheduler_type = {unknown}: no such schedule; `danseo settings` lists all")
    return config.min_lr_rate + (1 - config.min_lr_rate) * share


def _cosine(phase: float) -> float:
    """Return a wave that falls from 1 to 0 in the first phase, and rises in the next."""
    return 0.5 * (1 + math.cos(math.pi * phase))


def set_learning_rates(optimizer: torch.optim.Optimizer, factor: float, fixed: float | None = None) -> float:
    """Set every group to this share of its peak, or all to a fixed rate, and return the largest rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor if fixed is None else fixed
    return float(max(group["lr"] for group in optimizer.param_groups))


def trainable_parameters(network: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that learn."""
    return (parameter for parameter in network.parameters() if parameter.requires_grad)


class Average:
    """A running average of the trainable weights; inactive until its first update."""

    def __init__(self, network: nn.Module, config: OptimizationSettings) -> None:
        self.network, self.config = network, config
        self.count = 0
        self.weights: dict[str, Tensor] = {}

    @property
    def is_planned(self) -> bool:
        return self.config.ema_decay > 0 or self.config.swa_start_epoch is not None

    @property
    def is_active(self) -> bool:
        return self.count > 0

    def update(self, step: int, steps_per_epoch: int) -> None:
        """Add the weights after a step, if the settings say so."""
        if self.config.ema_decay > 0:
            self._add_weights(1 - self.config.ema_decay if self.count else 1.0)
        elif self.config.swa_start_epoch is not None and self._is_due(step, steps_per_epoch):
            self._add_weights(1 / (self.count + 1))

    def _is_due(self, step: int, steps_per_epoch: int) -> bool:
        every = self.config.swa_every_steps or steps_per_epoch
        return step > (self.config.swa_start_epoch or 0) * steps_per_epoch and step % every == 0

    @torch.no_grad()
    def _add_weights(self, share: float) -> None:
        for name, parameter in self.network.named_parameters():
            if parameter.requires_grad and (self.config.swa_include == "all" or is_body(name)):
                if name not in self.weights:
                    self.weights[name] = parameter.detach().clone()
                else:
                    self.weights[name].lerp_(parameter.detach(), share)
        self.count += 1

    def allocate(self) -> None:
        """Allocate the averaged weights, to be loaded from a checkpoint."""
        self._add_weights(1.0)

    @contextmanager
    def swap_into(self, network: nn.Module) -> Iterator[None]:
        """Put the averaged weights into the network inside the block."""
        self._swap(network)
        try:
            yield
        finally:
            self._swap(network)

    @torch.no_grad()
    def _swap(self, network: nn.Module) -> None:
        for name, parameter in network.named_parameters():
            if name in self.weights:
                kept = parameter.detach().clone()
                parameter.copy_(self.weights[name])
                self.weights[name] = kept


def is_averaging(step: int, steps_per_epoch: int, config: OptimizationSettings) -> bool:
    """Return whether SWA averages at this step, at its constant learning rate."""
    return config.swa_start_epoch is not None and step >= config.swa_start_epoch * steps_per_epoch
