"""What learns, how fast, and when: parameter groups, freezing, schedules."""

import math
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config import TrainConfig
from danseo.errors import DanseoError

_FALL = 0.2  # of the steps after the warm-up, where the schedule holds its rate before
_MOMENTUM = 0.95
_NEWTON = (3.4445, -4.7750, 2.0315)  # Muon's coefficients: fast near 0, and then between about 0.7 and 1.2
_TURNS = 5
_AS_ADAMW = 0.2  # the usual size of an entry of AdamW's steps, so that the same rate fits both
_TINY = 1e-30  # a hundred steps of shrinking above the denormal numbers
_LAYER = re.compile(r"\.(?:layer|layers|h)\.(\d+)\.")
_NO_DECAY = re.compile(r"(bias[^.]*$|norm\d*\.weight$)", re.IGNORECASE)  # an LSTM's are bias_ih_l0 and so on


def is_body(name: str) -> bool:
    """Whether a parameter belongs to the pretrained encoder rather than to the head."""
    return name.startswith("model.") and not re.match(
        r"model\.(classifier|qa_outputs|score|head|pooler|dense|cls\.|lm_|generator_|decoder)", name
    )


def depth_of(name: str, layers: int) -> int:
    """0 for embeddings, 1 to n for the layers, n + 1 for what lies above them."""
    if not is_body(name):
        return layers + 1
    if found := _LAYER.search(name):
        return int(found.group(1)) + 1
    return 0 if "embed" in name else layers + 1


def count_layers(network: nn.Module) -> int:
    """The layers of the encoder."""
    names = [name for name, _ in network.named_parameters() if is_body(name)]
    return max((int(match.group(1)) for name in names if (match := _LAYER.search(name))), default=-1) + 1


def freeze(network: nn.Module, what: str) -> int:
    """Stop the named part from learning; how many parameters that is."""
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


def parameter_groups(network: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """Groups by depth and decay; every group remembers its peak rate."""
    layers = count_layers(network)
    groups: dict[tuple[float, float, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        depth = depth_of(name, layers)
        rate = config.learning_rate * config.layer_decay ** max(0, layers - depth)
        if not is_body(name) and config.head_learning_rate is not None:
            rate = config.head_learning_rate
        decay = 0.0 if _NO_DECAY.search(name) else config.weight_decay
        turns = config.optimizer == "muon" and is_layer_matrix(name, parameter)
        made = {
            "params": [],
            "lr": rate,
            "peak": rate,
            "weight_decay": decay,
            **({"orthogonal": True} if turns else {}),
        }
        group = groups.setdefault((rate, decay, turns), made)
        group["params"].append(parameter)
    if not groups:
        raise DanseoError("every weight is frozen; nothing would learn")
    return list(groups.values())


def is_layer_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is a matrix inside a layer of the encoder, and neither a table of embeddings nor a head."""
    return parameter.ndim == 2 and is_body(name) and bool(_LAYER.search(name))


def make_optimizer(network: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW without decay on biases and norms, or Muon beside it."""
    groups = parameter_groups(network, config)
    if config.optimizer == "muon":
        return Muon(groups, betas=(0.9, config.beta2), eps=1e-8)
    return torch.optim.AdamW(groups, betas=(0.9, config.beta2), eps=1e-8, fused=True)


class Muon(torch.optim.AdamW):
    """AdamW, but for groups marked as orthogonal: there a step is the momentum with all singular values near 1."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            if group.get("orthogonal"):
                self._turn(group)
        return super().step(closure)

    def _turn(self, group: dict[str, Any]) -> None:
        by_shape: dict[Any, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                by_shape.setdefault(parameter.shape, []).append(parameter)
        _take(self, group)
        for shape, parameters in by_shape.items():
            steps = orthogonal(torch.stack([self._ahead(parameter) for parameter in parameters]))
            for parameter, step in zip(parameters, steps, strict=True):
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(step, alpha=-group["lr"] * _AS_ADAMW * max(shape) ** 0.5)
                parameter.grad = None  # AdamW passes it over

    def _ahead(self, parameter: nn.Parameter) -> Tensor:
        """The momentum, with the gradient once more."""
        momentum, gradient = self.state[parameter]["exp_avg"], parameter.grad
        assert gradient is not None  # it is among those that have one
        momentum.lerp_(gradient, 1 - _MOMENTUM)
        return gradient.lerp(momentum, _MOMENTUM)


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices with their singular values brought near 1, by five Newton-Schulz steps of the fifth degree.

    Every step is a polynomial of the product of a matrix with itself, so the steps of a wide one are taken on that
    small product, and the matrix is multiplied once, at the end: half the work for a layer of the usual shape.
    """
    found: Tensor = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    is_tall = found.shape[-2] > found.shape[-1]
    found = found.mT if is_tall else found
    if found.shape[-1] >= 2 * found.shape[-2]:
        found = _turning(found @ found.mT) @ found
    else:
        for _ in range(_TURNS):
            found = _polynomial(found @ found.mT) @ found
    return found.mT if is_tall else found


def _turning(square: Tensor) -> Tensor:
    """What all steps together multiply a matrix by, from its product with itself."""
    turning = factor = _polynomial(square)
    for _ in range(_TURNS - 1):
        square = factor @ square @ factor
        factor = _polynomial(square)
        turning = factor @ turning
    return turning


def _polynomial(square: Tensor) -> Tensor:
    made = torch.baddbmm(square, square, square, beta=_NEWTON[1], alpha=_NEWTON[2])
    made.diagonal(dim1=-2, dim2=-1).add_(_NEWTON[0])
    return made


def take_moments(optimizer: torch.optim.Optimizer) -> None:
    """The memory of AdamW's moments at once, not in the middle of the first update."""
    if not isinstance(optimizer, torch.optim.AdamW):
        return
    for group in optimizer.param_groups:
        _take(optimizer, group)


def _take(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    for parameter in group["params"]:
        if not optimizer.state[parameter]:
            optimizer.state[parameter] = _moments(parameter, group)


def _moments(parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """What is remembered of a parameter; orthogonal steps ask for no squares."""
    names = ("exp_avg",) if group.get("orthogonal") else ("exp_avg", "exp_avg_sq")
    step = torch.zeros((), device=parameter.device)
    return {"step": step, **{name: torch.zeros_like(parameter) for name in names}}


def state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """What the optimiser remembers, in the order of its parameters."""
    order = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return [value for parameter in order for _, value in sorted(optimizer.state.get(parameter, {}).items())]


def drop_tiny_moments(optimizer: torch.optim.Optimizer) -> None:
    """Zero for moments too small to move a weight.

    Those of rarely seen pieces shrink at every step until they are denormal numbers, where they stay, and with which
    a CPU takes ten times as long.
    """
    for state in optimizer.state.values():
        for key in ("exp_avg", "exp_avg_sq"):
            if key in state:
                state[key].masked_fill_(state[key].abs() < _TINY, 0.0)


def rate_share(step: int, total: int, config: TrainConfig) -> float:
    """The share of the peak rate at a step, counted from 0."""
    warmup = math.ceil(total * config.warmup)
    if step < warmup:
        return step / max(1, warmup)
    progress = (step - warmup) / max(1, total - warmup)
    if config.schedule == "linear":
        return max(0.0, 1 - progress)
    if config.schedule == "hold":
        return min(1.0, max(0.0, 1 - progress) / _FALL)
    return 1.0 if config.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def set_rates(optimizer: torch.optim.Optimizer, share: float, fixed: float | None = None) -> float:
    """Set every group to its share of the peak, or all to a fixed rate; the largest is returned."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share if fixed is None else fixed
    return float(max(group["lr"] for group in optimizer.param_groups))


def learning(network: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters that learn."""
    return (parameter for parameter in network.parameters() if parameter.requires_grad)
