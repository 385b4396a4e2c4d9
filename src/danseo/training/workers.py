"""One training on one or many processes: who I am, and how results come together."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from danseo.errors import DanseoError


class Workers:
    """The processes of this run; `accelerate launch` and `torchrun` start several, otherwise there is one."""

    def __init__(self, device: str | None = None) -> None:
        from accelerate import PartialState

        self.state = PartialState(cpu=device == "cpu")
        self.rank: int = self.state.process_index
        self.world: int = self.state.num_processes
        self.device = _usable(device) if device and self.world == 1 else self.state.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[Any]) -> list[Any]:
        """This process's part of the items: every world-th."""
        return list(items[self.rank :: self.world])

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.world > 1:
            torch.distributed.all_reduce(value)
        return value

    def total_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Add up the gradients of all processes; a weight that none of them used stays without one."""
        if self.world == 1:
            return
        used = self.total(torch.tensor([float(p.grad is not None) for p in parameters], device=self.device))
        gradients = []
        for parameter, count in zip(parameters, used.tolist(), strict=True):
            if count:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                gradients.append(parameter.grad)
        for bucket in _buckets(gradients):
            flat = self.total(torch.cat([gradient.flatten() for gradient in bucket]))
            for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def gathered(self, items: Sequence[Any]) -> list[Any]:
        """The parts of all processes put together in the order that share() took them from."""
        if self.world == 1:
            return list(items)
        parts: list[list[Any]] = [[] for _ in range(self.world)]
        torch.distributed.all_gather_object(parts, list(items))
        merged: list[Any] = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            merged[rank :: self.world] = part
        return merged

    def agreed(self, value: Any) -> Any:
        """The first process's value, everywhere."""
        if self.world == 1:
            return value
        box = [value]
        torch.distributed.broadcast_object_list(box, src=0)
        return box[0]

    def wait(self) -> None:
        """Until all processes are here."""
        self.state.wait_for_everyone()


def _buckets(tensors: Sequence[Tensor], size: int = 2**25) -> Iterator[list[Tensor]]:
    """Runs of tensors that travel together: few messages, little extra memory."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and sum(t.numel() for t in bucket) + tensor.numel() > size:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _usable(name: str) -> torch.device:
    """The device of this name, tried out."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DanseoError(f"device {name} cannot be used: {' '.join(str(error).split())[:120]}") from None
    return device
