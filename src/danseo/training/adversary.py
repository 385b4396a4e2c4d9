"""More passes of one batch: where weights are moved to a larger loss and back, or only dropout differs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from danseo.config import TrainConfig
from danseo.errors import DanseoError
from danseo.training.network import TrainableNetwork


def shifts_of(network: TrainableNetwork, config: TrainConfig) -> Iterator[dict[nn.Parameter, Tensor]]:
    """For each adversary that is on, how it moves the weights, from the gradients that are there."""
    if config.fgm:
        yield embedding_shift(network, config.fgm)
    if config.awp:
        yield weight_shift(network, config.awp)


def embedding_shift(network: TrainableNetwork, size: float) -> dict[nn.Parameter, Tensor]:
    """FGM: the embeddings by a step of this length along their gradient."""
    weight = network.model.get_input_embeddings().weight
    if not weight.requires_grad:
        raise DanseoError("train.fgm moves the embeddings, which are frozen; leave train.freeze out")
    return {weight: size * _direction(weight.grad)} if weight.grad is not None else {}


def weight_shift(network: TrainableNetwork, share: float) -> dict[nn.Parameter, Tensor]:
    """AWP: every matrix along its gradient, by this share of its own norm."""
    learning = [weight for weight in network.parameters() if weight.grad is not None and weight.dim() > 1]
    return {weight: share * weight.detach().norm() * _direction(weight.grad) for weight in learning}


def _direction(gradient: Tensor | None) -> Tensor:
    """The gradient at length 1; nowhere, where it is 0 or no number."""
    assert gradient is not None
    norm = gradient.norm()
    usable = norm.isfinite() & (norm > 0)
    return torch.where(usable, gradient / torch.where(usable, norm, torch.ones_like(norm)), torch.zeros_like(gradient))


@contextmanager
def moved(shift: dict[nn.Parameter, Tensor]) -> Iterator[None]:
    """Weights moved inside the block; afterwards they are bit for bit what they were."""
    before = {weight: weight.detach().clone() for weight in shift}
    try:
        with torch.no_grad():
            for weight, step in shift.items():
                weight.add_(step.to(weight.dtype))
        yield
    finally:
        with torch.no_grad():
            for weight, old in before.items():
                weight.copy_(old)


def divergence(first: Tensor, second: Tensor) -> Tensor:
    """Half of KL(p‖q) + KL(q‖p), summed over the rows: how far two passes of the same inputs are apart."""
    p, q = (functional.log_softmax(logits.float(), dim=-1) for logits in (first, second))
    return 0.5 * ((p.exp() - q.exp()) * (p - q)).sum()
