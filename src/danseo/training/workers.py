"""One training on one or many processes: who I am, and how results come together."""

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from danseo.errors import DanseoError

_PATIENCE = timedelta(hours=12)  # the first process may tokenise for long; launchers end the others where one dies
_BUCKET = 2**25  # numbers that travel together
_CHUNK = 2**26  # bytes of a file that do


class Workers:
    """The processes of this run; `accelerate launch` and `torchrun` start several, otherwise there is one.

    Sums of tensors go from device to device. Words, counts and files go from processor to processor (gloo), so that
    none of them waits for a GPU, nor a GPU's watchdog for them.
    """

    def __init__(self, device: str | None = None) -> None:
        from accelerate import PartialState

        if torch.distributed.is_available():  # imported later, its functions would keep the group as their defaults
            import_module("torch.distributed.nn.functional")
        self.state = PartialState(cpu=device == "cpu", timeout=_PATIENCE)
        self.rank: int = self.state.process_index
        self.world: int = self.state.num_processes
        self.device = _usable(device) if device and self.world == 1 else self.state.device
        if self.world > 1:
            _talking()  # all of them make it at once
        self.buffer: Tensor | None = None

    @property
    def group(self) -> Any:
        """The processes as they talk without devices; nobody else holds it, so that it can end before Python does."""
        return _talking() if self.world > 1 else None

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

    def counted(self, counts: Sequence[float]) -> list[float]:
        """The sums of small numbers that the processors know; no device is waited for."""
        if self.world == 1:
            return list(counts)
        box = torch.tensor(counts, dtype=torch.float64)
        torch.distributed.all_reduce(box, group=self.group)
        return box.tolist()

    def together(self, take: Callable[[], None]) -> None:
        """Do what takes memory; where it runs out on one process, it has run out on all."""
        if any(self.counted([runs_out(take)])):
            raise torch.OutOfMemoryError

    def total_gradients(self, parameters: Sequence[nn.Parameter], users: Sequence[float]) -> None:
        """Add up the gradients of all processes, of which so many used each weight; what none used has none.

        All memory is taken before anything is sent: nobody waits for a process that ran out of it halfway.
        """
        if self.world == 1:
            return
        used = [parameter for parameter, count in zip(parameters, users, strict=True) if count]
        if any(0 < count < self.world for count in users):
            self.together(lambda: _complete(used))
        gradients = [parameter.grad for parameter in used if parameter.grad is not None]
        assert self.buffer is not None
        for bucket in _buckets(gradients):
            flat = self.buffer[: sum(gradient.numel() for gradient in bucket)]
            torch.cat([gradient.flatten() for gradient in bucket], out=flat)
            self.total(flat)
            for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def make_room(self, parameters: Sequence[nn.Parameter]) -> None:
        """Take the memory in which gradients travel, once."""
        if self.world > 1 and self.buffer is None:
            sizes = (sum(p.numel() for p in bucket) for bucket in _buckets(parameters))
            self.buffer = torch.empty(max(sizes, default=0), device=self.device)

    def gathered(self, items: Sequence[Any]) -> list[Any]:
        """The parts of all processes put together in the order that share() took them from."""
        if self.world == 1:
            return list(items)
        parts: list[list[Any]] = [[] for _ in range(self.world)]
        torch.distributed.all_gather_object(parts, list(items), group=self.group)
        merged: list[Any] = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            merged[rank :: self.world] = part
        return merged

    def agreed(self, value: Any) -> Any:
        """The first process's value, everywhere."""
        if self.world == 1:
            return value
        box = [value]
        torch.distributed.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def shared(self, tensors: dict[str, Tensor] | None) -> dict[str, Tensor]:
        """The first process's tensors everywhere, on the CPU: other nodes may not see the disk they were read from."""
        own = {name: tensor.cpu().contiguous() for name, tensor in (tensors or {}).items()}
        facts = self.agreed([(name, tensor.shape, tensor.dtype) for name, tensor in own.items()])
        if self.world > 1:
            if not self.is_first:
                own = {name: torch.empty(shape, dtype=dtype) for name, shape, dtype in facts}
            for tensor in own.values():
                torch.distributed.broadcast(tensor, src=0, group=self.group)
        return own

    def follow(self, leader: int, tensors: Sequence[Tensor]) -> None:
        """Take over what another process has in these tensors."""
        for tensor in tensors:
            torch.distributed.broadcast(tensor, src=leader)

    def mirror(self, folder: Path) -> None:
        """The first process's folder, file by file, on every node that does not see it."""
        if self.world == 1:
            return
        own = [(str(path.relative_to(folder)), path.stat().st_size) for path in _files(folder)] if self.is_first else []
        files: list[tuple[str, int]] = self.agreed(own)
        lacking = [name for name, size in files if not _has(folder / name, size)]
        for name, size in files:
            if any(self.gathered([name in lacking])):
                writes = name in lacking and self.state.local_process_index in (-1, 0)
                self._send(folder / name, size, writes)
        self.wait()

    def _send(self, path: Path, size: int, writes: bool) -> None:
        part = path.with_name(f".{path.name}.part")
        if writes:
            path.parent.mkdir(parents=True, exist_ok=True)
        opened: Any = path.open("rb") if self.is_first else part.open("wb") if writes else nullcontext()
        with opened as file:
            for start in range(0, size, _CHUNK):
                length = min(_CHUNK, size - start)
                box = torch.empty(length, dtype=torch.uint8)
                if self.is_first:
                    box = torch.frombuffer(bytearray(file.read(length)), dtype=torch.uint8)
                torch.distributed.broadcast(box, src=0, group=self.group)
                if writes:
                    file.write(box.numpy().tobytes())
        if writes:
            part.replace(path)

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            torch.distributed.barrier(group=self.group)


def runs_out(take: Callable[[], None]) -> bool:
    """Whether the device runs out of memory on the way."""
    try:
        take()
    except torch.OutOfMemoryError:
        return True
    return False


@cache
def _talking() -> Any:
    """The processes as they talk without devices; made once, by all of them, and given up when they end."""
    atexit.register(_part)
    return torch.distributed.new_group(backend="gloo", timeout=_PATIENCE)


def _part() -> None:
    """End the threads of all groups: one that still gives up a tensor while Python ends would abort the process."""
    _talking.cache_clear()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _complete(parameters: Sequence[nn.Parameter]) -> None:
    """No gradient is none at all where another process has one."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _has(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _buckets(tensors: Sequence[Tensor], size: int = _BUCKET) -> Iterator[list[Tensor]]:
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
