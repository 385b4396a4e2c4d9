"""Runs on this machine: one process per device slot."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from danseo.sweeps.devices import on_device
from danseo.sweeps.schedule import Ending
from danseo.sweeps.worker import DONE, FOUND, HELD, Order

_GRACE = 5.0
"""Seconds a worker has between being asked to stop and being killed."""
COMMAND = (sys.executable, "-m", "danseo.sweeps.worker")


@dataclass(frozen=True)
class Ended:
    """How a run left the executor."""

    name: str
    ending: Ending
    error: str = ""


@dataclass
class _Child:
    order: Order
    slot: int
    process: "subprocess.Popen[str]"
    words: Any
    """What it printed, in a file."""
    started: float = field(default_factory=time.time)


class LocalExecutor:
    """Starts worker processes, one per slot, and tells how they ended."""

    def __init__(self, devices: Sequence[str], command: Sequence[str] = COMMAND) -> None:
        self.devices, self.command = list(devices), list(command)
        self.children: dict[str, _Child] = {}
        self._pruned: set[str] = set()

    def capacity(self) -> int:
        return len(self.devices)

    def where(self, name: str) -> str:
        """Where a run is running."""
        return f"{self.devices[self.children[name].slot]} #{self.children[name].slot}"

    def start(self, order: Order) -> None:
        """Run an order on the first free slot."""
        taken = {child.slot for child in self.children.values()}
        slot = next(slot for slot in range(len(self.devices)) if slot not in taken)
        device, environment = on_device(self.devices[slot], len(self.devices))
        order = replace(order, device=device, threads=int(environment["OMP_NUM_THREADS"]))
        words = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed when reaped
        process = subprocess.Popen(
            [*self.command, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            text=True,
            env=environment,
            start_new_session=True,  # so that Ctrl-C reaches the sweep alone
        )
        self.children[order.name] = _Child(order, slot, process, words)
        assert process.stdin
        try:
            process.stdin.write(order.as_json())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; poll() will tell

    def poll(self, seconds: float) -> list[Ended]:
        """Wait a moment for runs to end."""
        until = time.monotonic() + seconds
        while not (ended := [name for name, child in self.children.items() if child.process.poll() is not None]):
            if time.monotonic() >= until:
                return []
            time.sleep(0.02)
        return [self._reap(name) for name in ended]

    def stop(self, name: str) -> None:
        """End a run that is not worth going on with."""
        if name in self.children:
            self._pruned.add(name)
            _signal(self.children[name], signal.SIGTERM)
            _kill_later([self.children[name]])

    def close(self) -> None:
        """End all workers, gently first."""
        for child in self.children.values():
            _signal(child, signal.SIGTERM)
        _kill_later(list(self.children.values()))
        for name in list(self.children):
            self._reap(name)

    def _reap(self, name: str) -> Ended:
        child = self.children.pop(name)
        code = child.process.wait()
        child.words.seek(0)
        lines = [line.strip() for line in child.words.read().splitlines() if line.strip()]
        child.words.close()
        endings: dict[int, Ending] = {DONE: "done", HELD: "held", FOUND: "found"}
        if name in self._pruned:
            self._pruned.discard(name)
            return Ended(name, endings.get(code, "pruned"))
        if code in endings:
            return Ended(name, endings[code])
        return Ended(name, "failed", _reason(child, code, lines))


def _reason(child: _Child, code: int, lines: Sequence[str]) -> str:
    """What the worker left in error.txt, or else what its end says."""
    left = Path(child.order.runs) / child.order.name / "error.txt"
    try:
        if left.stat().st_mtime >= child.started - 1:
            return left.read_text("utf-8").strip()
    except OSError:
        pass
    if code == -signal.SIGKILL:
        return "killed (signal 9): out of memory, or somebody's kill -9"
    end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"the worker ended with code {code}"
    return f"{end}: {lines[-1][:300]}" if lines else end


def _signal(child: _Child, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)  # the worker leads its own group


def _kill_later(children: Sequence[_Child]) -> None:
    until = time.monotonic() + _GRACE
    while time.monotonic() < until and any(child.process.poll() is None for child in children):
        time.sleep(0.02)
    for child in children:
        if child.process.poll() is None:
            _signal(child, signal.SIGKILL)
