"""Time limits for networks.

The timeouts of huggingface_hub limit one read, and it retries: a server that sends a byte per second would never end.
"""

import contextvars
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from danseo.errors import DanseoError, NetworkError
from danseo.language import _

VARIABLE = "DANSEO_TIMEOUT"
"""The environment variable that --timeout sets, in seconds; child processes inherit it."""
SECONDS = 60.0
MIN_BYTES = 1 << 14
"""Bytes that count as progress."""
_BYTES_PER_SECOND_OF_WORK = 1 << 15  # half a second of computing is progress too
_POLL = 0.2

Result = TypeVar("Result")


def read_timeout() -> float | None:
    """Return the time limit that the user set, in seconds."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise DanseoError(_("{VARIABLE}={text}: should be seconds, more than 0").format(VARIABLE=VARIABLE, text=text))
    return seconds


def get_timeout() -> float:
    """Return the seconds without progress after which a network counts as dead."""
    return read_timeout() or SECONDS


def run_with_timeout(work: Callable[[], Result], count_bytes: Callable[[], int], source: str) -> Result:
    """Return the result of the work; raise an error if too few bytes arrive and nothing is computed for too long.

    The work runs in a thread. If it is given up, the thread ends with the process.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)

    context = contextvars.copy_context()  # the guard against model code is active in the thread too
    thread = threading.Thread(target=lambda: context.run(run), daemon=True, name="network")
    thread.start()
    _wait(thread, lambda: count_bytes() + int(time.process_time() * _BYTES_PER_SECOND_OF_WORK), source)
    if errors:
        raise errors[0]
    return results[0]


def _wait(thread: threading.Thread, measure_progress: Callable[[], int], source: str) -> None:
    limit, last, since = get_timeout(), measure_progress(), time.monotonic()
    while thread.is_alive():
        thread.join(_POLL)
        if (now := measure_progress()) - last >= MIN_BYTES:
            last, since = now, time.monotonic()
        elif thread.is_alive() and time.monotonic() - since > limit:
            raise NetworkError(f"{source}: less than {MIN_BYTES >> 10} KiB arrived in {limit:g} s (--timeout)")
