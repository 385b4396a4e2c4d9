"""Adversarial training (FGM, AWP) and the divergence of R-Drop."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from danseo.config.train import OptimizationSettings, TrainSettings
from danseo.errors import DanseoError
from danseo.training.network import TrainableNetwork


def compute_shifts(network: TrainableNetwork, config: OptimizationSettings) -> Iterator[dict[nn.Parameter, Tensor]]:
    """Yield the shift of the weights for each method that is on, computed from the present gradients."""
    if not isinstance(config, TrainSettings):
        return
    if config.fgm_epsilon:
        yield compute_embedding_shift(network, config.fgm_epsilon)
    if config.awp_epsilon:
        yield compute_weight_shift(network, config.awp_epsilon)


def compute_embedding_shift(network: TrainableNetwork, size: float) -> dict[nn.Parameter, Tensor]:
    """Return FGM's shift: the embeddings move by this length along their gradient."""
    weight = network.model.get_input_embeddings().weight
    if not weight.requires_grad:
        raise DanseoError("train.fgm_epsilon moves the embeddings, which are frozen; leave train.freeze out")
    return {weight: size * _normalize_gradient(weight.grad)} if weight.grad is not None else {}


def compute_weight_shift(network: TrainableNetwork, share: float) -> dict[nn.Parameter, Tensor]:
    """Return AWP's shift: every matrix moves along its gradient by this share of its norm."""
    learning = [weight for weight in network.parameters() if weight.grad is not None and weight.dim() > 1]
    return {weight: share * weight.detach().norm() * _normalize_gradient(weight.grad) for weight in learning}


def _normalize_gradient(gradient: Tensor | None) -> Tensor:
    """Return the gradient with length 1, or zeros if it is zero or not a number."""
    assert gradient is not None
    norm = gradient.norm()
    usable = norm.isfinite() & (norm > 0)
    return torch.where(usable, gradient / torch.where(usable, norm, torch.ones_like(norm)), torch.zeros_like(gradient))


@contextmanager
def shift_weights(shift: dict[nn.Parameter, Tensor]) -> Iterator[None]:
    """Shift weights inside the block, and restore them bit for bit afterwards."""
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


def compute_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return half of KL(p‖q) + KL(q‖p) of two passes over the same inputs, summed over the rows."""
    p, q = (functional.log_softmax(logits.float(), dim=-1) for logits in (first, second))
    return 0.5 * ((p.exp() - q.exp()) * (p - q)).sum()
