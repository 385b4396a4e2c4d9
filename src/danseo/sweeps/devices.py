"""The devices of this machine, and what a worker on one of them sees."""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from danseo.errors import DanseoError


def on_device(device: str, slots: int) -> tuple[str, dict[str, str]]:
    """The device as the worker calls it, and its environment: its share of the cores, and no other GPU in sight."""
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
    """One device per slot: those named, else the best there are, as often as there are slots."""
    if named is not None:
        chosen = [name.strip() for name in named.split(",") if name.strip()]
        if not chosen:
            raise DanseoError("--devices is empty; name some, such as cuda:0,cuda:1 or cpu")
        for name in dict.fromkeys(chosen):
            check_device(name)
        return [("cuda:0" if name == "cuda" else name) for name in chosen]
    found = _present() if needs_torch and find_spec("torch") else ["cpu"]
    return [found[slot % len(found)] for slot in range(slots or len(found))]


def _present() -> list[str]:
    """The devices of this machine; torch is asked only where there may be more than the CPU."""
    drivers = ("nvidia[0-9]*", "kfd", "dxg")  # NVIDIA, AMD, Windows' Linux
    if sys.platform == "linux" and not any(any(Path("/dev").glob(name)) for name in drivers):
        return ["cpu"]
    import torch

    if torch.cuda.is_available():
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["mps"] if torch.backends.mps.is_available() else ["cpu"]


def check_device(name: str) -> None:
    """Refuse a device that is not there, without touching its memory."""
    if name == "cpu":
        return
    kind, _, number = name.partition(":")
    known = kind in ("cuda", "mps", "cpu") and (not number or (number.isdigit() and kind == "cuda"))
    present = _present() if known and find_spec("torch") else ["cpu"]
    if not known or (name not in present and not (name == "cuda" and present[0] != "cpu" and present[0] != "mps")):
        raise DanseoError(f"device {name} does not exist here; there is {', '.join(present)}")


def fitting(devices: list[str], memory: float, total: Callable[[], float]) -> list[str]:
    """As many of the slots as the machine's memory holds runs, both in GiB."""
    if not memory:
        return devices
    room = int(total() // memory)
    if room < 1:
        raise DanseoError(f"[resources] memory = {memory} GiB per run, but this machine has {total():.1f} GiB")
    return devices[:room]


def machine_memory() -> float:
    """GiB of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
