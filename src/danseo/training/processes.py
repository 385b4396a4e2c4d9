"""The processes of a launcher, for work that needs no torch if there is only one."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from danseo.launcher import world_size

if TYPE_CHECKING:
    from danseo.training.distributed import Workers


class OneProcess:
    """A process that works alone: the part of Workers that splits and collects, without torch."""

    rank, world = 0, 1

    def shard(self, items: Sequence[Any]) -> list[Any]:
        return list(items)

    def all_gather(self, items: Sequence[Any]) -> list[Any]:
        return list(items)

    def broadcast(self, value: Any) -> Any:
        return value

    def barrier(self) -> None:
        """Do nothing: there is no other process."""


def join_processes(device: str | None = None) -> "Workers | OneProcess":
    """Return the processes that torchrun or accelerate started with this one."""
    if world_size() == 1:
        return OneProcess()
    from danseo.training.distributed import Workers

    return Workers(device)


def compute_shared(compute: Callable[[list[Any]], list[Any]], items: Sequence[Any]) -> list[Any]:
    """Compute a result per item, every process for its share; return the results of all items on every process."""
    workers = join_processes()
    own = workers.shard(items)
    return workers.all_gather(compute(own) if own else [])
