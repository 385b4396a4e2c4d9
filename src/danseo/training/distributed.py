"""Run one training on one or several processes: broadcasts, gathers and sums of gradients.

DDP is not used: it sums gradients during backward, so a process without enough memory would leave the others waiting.
"""

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
from danseo.language import _
from danseo.launcher import launched_for_cpu, process_rank, world_size

_TIMEOUT = timedelta(hours=12)  # rank 0 may tokenize for hours; launchers stop all processes if one dies
_BUCKET = 2**25  # numbers per message
_CHUNK = 2**26  # bytes of a file per message


class Workers:
    """The processes of this run; `accelerate launch` and `torchrun` start several, otherwise there is one.

    Tensors are summed on the devices. Objects, counts and files use a CPU group (gloo), so that they never wait for a
    GPU, and the watchdog of a GPU never waits for them.
    """

    def __init__(self, device: str | None = None) -> None:
        from accelerate import PartialState

        if torch.distributed.is_available():  # imported later, its defaults would hold the group
            import_module("torch.distributed.nn.functional")
        self.state = PartialState(cpu=_computes_on_cpu(device), timeout=_TIMEOUT)
        self.rank: int = self.state.process_index
        self.world: int = self.state.num_processes
        if (self.rank, self.world) != (process_rank(), world_size()):
            raise DanseoError(
                f"{world_size()} processes were started, but {self.state.device} joins {self.world} of them; "
                "start them with torchrun or accelerate launch, or add --device cpu"
            )
        self.device = _open_device(device) if device and self.world == 1 else self.state.device
        if self.world > 1:
            _cpu_group()  # every process must create it
        self.buffer: Tensor | None = None

    @property
    def group(self) -> Any:
        """Return the CPU group; it is not stored here, so that it can be destroyed before Python exits."""
        return _cpu_group() if self.world > 1 else None

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def shard(self, items: Sequence[Any]) -> list[Any]:
        """Return the items of this process: every world-th."""
        return list(items[self.rank :: self.world])

    def all_reduce(self, value: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world > 1:
            torch.distributed.all_reduce(value)
        return value

    def all_reduce_counts(self, counts: Sequence[float]) -> list[float]:
        """Return the sums of small numbers over all processes, without waiting for a device."""
        if self.world == 1:
            return list(counts)
        box = torch.tensor(counts, dtype=torch.float64)
        torch.distributed.all_reduce(box, group=self.group)
        return box.tolist()

    def run_together(self, take: Callable[[], None]) -> None:
        """Allocate memory on all processes; raise OutOfMemoryError on all if one of them has too little."""
        if any(self.all_reduce_counts([runs_out_of_memory(take)])):
            raise torch.OutOfMemoryError

    def all_reduce_gradients(self, parameters: Sequence[nn.Parameter], users: Sequence[float]) -> None:
        """Sum the gradients over all processes; `users` says how many processes have one for each parameter.

        All memory is allocated before anything is sent, so that no process waits for one that ran out of it.
        """
        if self.world == 1:
            return
        used = [parameter for parameter, count in zip(parameters, users, strict=True) if count]
        if any(0 < count < self.world for count in users):
            self.run_together(lambda: _add_missing_gradients(used))
        gradients = [parameter.grad for parameter in used if parameter.grad is not None]
        assert self.buffer is not None
        for bucket in _split_buckets(gradients):
            flat = self.buffer[: sum(gradient.numel() for gradient in bucket)]
            torch.cat([gradient.flatten() for gradient in bucket], out=flat)
            self.all_reduce(flat)
            for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def allocate_buffer(self, parameters: Sequence[nn.Parameter]) -> None:
        """Allocate the buffer for the sums of gradients, once."""
        if self.world > 1 and self.buffer is None:
            sizes = (sum(p.numel() for p in bucket) for bucket in _split_buckets(parameters))
            self.buffer = torch.empty(max(sizes, default=0), device=self.device)

    def all_gather(self, items: Sequence[Any]) -> list[Any]:
        """Return the items of all processes, in the order that shard() took them from."""
        if self.world == 1:
            return list(items)
        parts: list[list[Any]] = [[] for _ in range(self.world)]
        torch.distributed.all_gather_object(parts, list(items), group=self.group)
        merged: list[Any] = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            merged[rank :: self.world] = part
        return merged

    def broadcast(self, value: Any) -> Any:
        """Return the value of rank 0 on every process."""
        if self.world == 1:
            return value
        box = [value]
        torch.distributed.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def broadcast_tensors(self, tensors: dict[str, Tensor] | None) -> dict[str, Tensor]:
        """Return the tensors of rank 0 on the CPU of every process; other nodes may not see its disk."""
        own = {name: tensor.cpu().contiguous() for name, tensor in (tensors or {}).items()}
        facts = self.broadcast([(name, tensor.shape, tensor.dtype) for name, tensor in own.items()])
        if self.world > 1:
            if not self.is_first:
                own = {name: torch.empty(shape, dtype=dtype) for name, shape, dtype in facts}
            for tensor in own.values():
                torch.distributed.broadcast(tensor, src=0, group=self.group)
        return own

    def broadcast_from(self, leader: int, tensors: Sequence[Tensor]) -> None:
        """Copy these tensors from another process."""
        for tensor in tensors:
            torch.distributed.broadcast(tensor, src=leader)

    def copy_folder(self, folder: Path) -> None:
        """Copy a folder of rank 0 to every node that does not see it, file by file."""
        if self.world == 1:
            return
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if self.is_first else []
        own = [(str(path.relative_to(folder)), path.stat().st_size) for path in paths]
        files: list[tuple[str, int]] = self.broadcast(own)
        lacking = [name for name, size in files if not _has_file(folder / name, size)]
        for name, size in files:
            if any(self.all_gather([name in lacking])):
                writes = name in lacking and self.state.local_process_index in (-1, 0)
                self._copy_file(folder / name, size, writes)
        self.barrier()

    def _copy_file(self, path: Path, size: int, writes: bool) -> None:
        """Send a file of rank 0 in chunks; processes that write it do so in one step at the end."""
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

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.world > 1:
            torch.distributed.barrier(group=self.group)


def runs_out_of_memory(take: Callable[[], None]) -> bool:
    """Call a function, and return whether the device ran out of memory."""
    try:
        take()
    except torch.OutOfMemoryError:
        return True
    return False


@cache
def _cpu_group() -> Any:
    """Create the CPU group once; it is destroyed at exit."""
    atexit.register(_end_groups)
    return torch.distributed.new_group(backend="gloo", timeout=_TIMEOUT)


def _end_groups() -> None:
    """Destroy all groups: a thread that releases a tensor while Python exits would abort the process."""
    _cpu_group.cache_clear()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _add_missing_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Set missing gradients to zeros."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _has_file(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _split_buckets(tensors: Sequence[Tensor], size: int = _BUCKET) -> Iterator[list[Tensor]]:
    """Split tensors into lists that are sent together: few messages, little extra memory."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and sum(t.numel() for t in bucket) + tensor.numel() > size:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _computes_on_cpu(device: str | None) -> bool:
    """Return whether the processes compute on CPUs: as named, or because no device can join several."""
    if device:
        return device == "cpu"
    return launched_for_cpu() or (world_size() > 1 and not _joins_devices())


def _joins_devices() -> bool:
    """Return whether several processes can compute together on the devices of this machine; Apple's cannot."""
    if not hasattr(torch, "accelerator"):  # torch before 2.6
        return torch.cuda.is_available()
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found is not None and found.type != "mps"


def _open_device(name: str) -> torch.device:
    """Return the device of this name; raise an error if it cannot be used."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DanseoError(
            _("device {name} cannot be used: {names}").format(name=name, names=" ".join(str(error).split())[:120])
        ) from None
    return device
