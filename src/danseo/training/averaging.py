"""Averages of weights over the course of training: of chosen moments (SWA), or fading (EMA)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from danseo.config import TrainConfig
from danseo.training.optim import is_body


class Average:
    """A running average of the learning weights; inactive until its first update."""

    def __init__(self, network: nn.Module, config: TrainConfig) -> None:
        self.network, self.config = network, config
        self.count = 0
        self.weights: dict[str, Tensor] = {}

    @property
    def is_planned(self) -> bool:
        return self.config.ema > 0 or self.config.swa_start is not None

    @property
    def is_active(self) -> bool:
        return self.count > 0

    def offer(self, step: int, steps_per_epoch: int) -> None:
        """Take in the weights after a step, where the settings say so."""
        if self.config.ema > 0:
            self._take(1 - self.config.ema if self.count else 1.0)
        elif self.config.swa_start is not None and self._is_moment(step, steps_per_epoch):
            self._take(1 / (self.count + 1))

    def _is_moment(self, step: int, steps_per_epoch: int) -> bool:
        every = self.config.swa_every or steps_per_epoch
        return step > (self.config.swa_start or 0) * steps_per_epoch and step % every == 0

    @torch.no_grad()
    def _take(self, share: float) -> None:
        for name, parameter in self.network.named_parameters():
            if parameter.requires_grad and (self.config.swa_include == "all" or is_body(name)):
                if name not in self.weights:
                    self.weights[name] = parameter.detach().clone()
                else:
                    self.weights[name].lerp_(parameter.detach(), share)
        self.count += 1

    @contextmanager
    def swapped_into(self, network: nn.Module) -> Iterator[None]:
        """The network with the averaged weights, for as long as the block lasts."""
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


def is_averaging(step: int, steps_per_epoch: int, config: TrainConfig) -> bool:
    """Whether the step lies where SWA averages, and its constant rate holds."""
    return config.swa_start is not None and step >= config.swa_start * steps_per_epoch
