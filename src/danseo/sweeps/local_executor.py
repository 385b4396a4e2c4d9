"""The local executor of sweeps: one worker process per device slot."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.launcher import PYTHON
from danseo.sweeps.queue import Ending
from danseo.sweeps.worker import DONE, FOUND, HELD, Order


def worker_environment(device: str, slots: int) -> tuple[str, dict[str, str]]:
    """Return the device name inside a worker, and its environment: its share of the cores, and only its GPU."""
    threads = str(max(1, (os.cpu_count() or 1) // slots))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
    }
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if device.startswith("cuda:"):
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        number = int(device.removeprefix("cuda:"))
        environment["CUDA_VISIBLE_DEVICES"] = visible[number] if visible else str(number)
        return "cuda", environment
    return device, environment


def find_devices(named: str | None, slots: int | None, *, needs_torch: bool) -> list[str]:
    """Return one device per slot: those named, or the best of this machine, repeated for all slots."""
    if named is not None:
        chosen = [name.strip() for name in named.split(",") if name.strip()]
        if not chosen:
            raise DanseoError("--devices is empty; name some, such as cuda:0,cuda:1 or cpu")
        for name in dict.fromkeys(chosen):
            check_device(name)
        return [("cuda:0" if name == "cuda" else name) for name in chosen]
    present = _find_present() if needs_torch and find_spec("torch") else ["cpu"]
    return [present[slot % len(present)] for slot in range(slots or len(present))]


def _find_present() -> list[str]:
    """Return the devices of this machine; import torch only if there may be more than the CPU."""
    drivers = ("nvidia[0-9]*", "kfd", "dxg")  # NVIDIA, AMD, Windows' Linux
    if sys.platform == "linux" and not any(any(Path("/dev").glob(name)) for name in drivers):
        return ["cpu"]
    import torch

    if torch.cuda.is_available():
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["mps"] if torch.backends.mps.is_available() else ["cpu"]


def check_device(name: str) -> None:
    """Refuse a device that this machine does not have, without using its memory."""
    if name == "cpu":
        return
    present = _find_present() if name.split(":")[0] in ("cuda", "mps") and find_spec("torch") else ["cpu"]
    if name not in present and not (name == "cuda" and "cuda:0" in present):
        raise DanseoError(f"device {name} does not exist here; there is {', '.join(present)}")


def limit_by_memory(devices: list[str], memory: float, total: Callable[[], float]) -> list[str]:
    """Return as many slots as fit into the memory of the machine; both numbers are in GiB."""
    if memory > total():
        raise DanseoError(f"[resources] memory = {memory} GiB per run, but this machine has {total():.1f} GiB")
    return devices[: int(total() // memory)] if memory else devices


def read_machine_memory() -> float:
    """Return the memory of this machine in GiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


_GRACE = 5.0
"""Seconds from SIGTERM to SIGKILL of a worker."""
COMMAND = (*PYTHON, "-m", "danseo.sweeps.worker")


@dataclass(frozen=True)
class EndedRun:
    """How a run left the executor."""

    name: str
    ending: Ending
    error: str = ""


@dataclass
class _Child:
    order: Order
    slot: int
    process: "subprocess.Popen[str]"
    output: Any
    """The file with its standard output and error."""
    started: float = field(default_factory=time.time)


class LocalExecutor:
    """Starts worker processes, one per slot, and returns how they ended."""

    def __init__(self, devices: Sequence[str], command: Sequence[str] = COMMAND) -> None:
        self.devices, self.command = list(devices), list(command)
        self.children: dict[str, _Child] = {}
        self._pruned: set[str] = set()

    def capacity(self) -> int:
        return len(self.devices)

    def where(self, name: str) -> str:
        """Return the device and slot of a run."""
        return f"{self.devices[self.children[name].slot]} #{self.children[name].slot}"

    def start(self, order: Order) -> None:
        """Run an order on the first free slot."""
        busy = {child.slot for child in self.children.values()}
        slot = next(slot for slot in range(len(self.devices)) if slot not in busy)
        device, environment = worker_environment(self.devices[slot], len(self.devices))
        order = replace(order, device=device, threads=int(environment["OMP_NUM_THREADS"]))
        output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed when reaped
        process = subprocess.Popen(
            [*self.command, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            text=True,
            env=environment,
            start_new_session=True,  # so that Ctrl-C reaches the sweep alone
        )
        self.children[order.name] = _Child(order, slot, process, output)
        assert process.stdin
        try:
            process.stdin.write(order.as_json())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once, and poll() returns it

    def poll(self, seconds: float) -> list[EndedRun]:
        """Return the runs that ended; wait up to some seconds for the first."""
        until = time.monotonic() + seconds
        while not (ended := [name for name, child in self.children.items() if child.process.poll() is not None]):
            if time.monotonic() >= until:
                return []
            time.sleep(0.02)
        return [self._reap(name) for name in ended]

    def stop(self, name: str) -> None:
        """Prune a run: end its worker."""
        if name in self.children:
            self._pruned.add(name)
            _signal(self.children[name], signal.SIGTERM)
            _kill_later([self.children[name]])

    def close(self) -> None:
        """End all workers: SIGTERM first, SIGKILL later."""
        for child in self.children.values():
            _signal(child, signal.SIGTERM)
        _kill_later(list(self.children.values()))
        for name in list(self.children):
            self._reap(name)

    def _reap(self, name: str) -> EndedRun:
        child = self.children.pop(name)
        code = child.process.wait()
        child.output.seek(0)
        lines = [line.strip() for line in child.output.read().splitlines() if line.strip()]
        child.output.close()
        endings: dict[int, Ending] = {DONE: "done", HELD: "held", FOUND: "found"}
        is_pruned = name in self._pruned
        self._pruned.discard(name)
        if is_pruned or code in endings:
            return EndedRun(name, endings.get(code, "pruned"))
        return EndedRun(name, "failed", _find_reason(child, code, lines))


def _find_reason(child: _Child, code: int, lines: Sequence[str]) -> str:
    """Return the reason in error.txt of the run, or describe the exit code and the last line of output."""
    path = Path(child.order.runs) / child.order.name / "error.txt"
    with suppress(OSError):
        if path.stat().st_mtime >= child.started - 1:
            return path.read_text("utf-8").strip()
    if code == -signal.SIGKILL:
        return "killed (signal 9): out of memory, or kill -9"
    end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"the worker ended with code {code}"
    return f"{end}: {lines[-1][:300]}" if lines else end


def _signal(child: _Child, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)  # the worker leads its own group


def _kill_later(children: Sequence[_Child]) -> None:
    """Wait for workers to end, and kill those that do not in time."""
    until = time.monotonic() + _GRACE
    while time.monotonic() < until and any(child.process.poll() is None for child in children):
        time.sleep(0.02)
    for child in children:
        if child.process.poll() is None:
            _signal(child, signal.SIGKILL)
