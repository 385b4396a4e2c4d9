"""Patience with networks: how long work that waits for others may come no further."""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from danseo.errors import DanseoError, NetworkError

VARIABLE = "DANSEO_TIMEOUT"
"""Seconds, for this process and those it starts; --timeout sets it."""
SECONDS = 60.0
LEAST = 1 << 14
"""Bytes that count as progress: a server that sends one a second is as good as silent."""
_BYTES_PER_SECOND_OF_WORK = 1 << 15  # half a second of computing is progress too
_POLL = 0.2

Answer = TypeVar("Answer")


def told() -> float | None:
    """The patience that was asked for, in seconds."""
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise DanseoError(f"{VARIABLE}={given}: should be seconds, more than 0")
    return seconds


def patience() -> float:
    """Seconds without progress after which a network counts as dead."""
    return told() or SECONDS


def watched(work: Callable[[], Answer], arrived: Callable[[], int], what: str) -> Answer:
    """What the work gives; a line where too few bytes arrived, and nothing was computed, for too long.

    The work goes on in a thread of its own, since no library keeps all of its promises about time; where it is given
    up, that thread is left behind and ends with the process.
    """
    found: list[Answer] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # to be raised where somebody waits for it
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name="network")
    thread.start()
    _wait(thread, lambda: arrived() + int(time.process_time() * _BYTES_PER_SECOND_OF_WORK), what)
    if failed:
        raise failed[0]
    return found[0]


def _wait(thread: threading.Thread, progress: Callable[[], int], what: str) -> None:
    limit, known, since = patience(), progress(), time.monotonic()
    while thread.is_alive():
        thread.join(_POLL)
        if (now := progress()) - known >= LEAST:
            known, since = now, time.monotonic()
        elif thread.is_alive() and time.monotonic() - since > limit:
            raise NetworkError(f"{what}: less than {LEAST >> 10} KiB came in {limit:g} s (--timeout)")
