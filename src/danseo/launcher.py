"""Rank and number of the processes of a launcher, how danseo starts Python processes, and how signals end it.

torchrun and `accelerate launch` set RANK and WORLD_SIZE. If `accelerate launch --cpu` starts an MPI launcher, the
variables of that launcher count, as in accelerate.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_WORLD_SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_RANK = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def world_size() -> int:
    """Return how many processes the launcher started."""
    return _read_number("WORLD_SIZE", _WORLD_SIZE, 1)


def process_rank() -> int:
    """Return the rank of this process, from 0."""
    return _read_number("RANK", _RANK, 0)


def is_first_process() -> bool:
    """Return whether this is the process of rank 0, which writes and prints."""
    return process_rank() == 0


def launched_for_cpu() -> bool:
    """Return whether `accelerate launch --cpu` started this process."""
    return os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes")


def _read_number(name: str, mpi_names: tuple[str, ...], default: int) -> int:
    names = (name, *mpi_names) if launched_for_cpu() else (name,)
    values = (os.environ.get(each, "") for each in names)
    return next((int(value) for value in values if value.isdecimal()), default)


PYTHON = (sys.executable, "-P")
"""The beginning of every command that starts Python: no module is imported from the working directory."""
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""The same as an environment variable, for processes that libraries start."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, which Windows does not have, end a command as Ctrl-C does: its processes first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
