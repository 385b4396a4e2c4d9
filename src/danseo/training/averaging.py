"""Average weights during training: stochastic weight averaging (SWA) or an exponential moving average (EMA)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from danseo.config.train import OptimizationSettings
from danseo.training.optimizers import is_body


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
