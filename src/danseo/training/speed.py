"""Which precision and attention are fastest here: measured once per device and encoder, then remembered."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from danseo.config import TrainConfig
from danseo.data import cache_root
from danseo.errors import DanseoError, DataError
from danseo.models.encoder.network import Network
from danseo.reading import read_object, write_atomically
from danseo.runs.directory import Run
from danseo.training.workers import Workers

_ROUNDS = 3
_SHAPE = (16, 48)  # rows and pieces of an ordinary batch; a network may name its own


@dataclass(frozen=True)
class Gear:
    """How the network computes."""

    precision: str
    attention: str

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        return torch.autocast(device.type, dtype=torch.bfloat16) if self.precision == "bf16" else nullcontext()

    def engage(self, network: Network) -> None:
        network.model.set_attn_implementation(self.attention)


def choose_gear(network: Network, config: TrainConfig, device: torch.device, memory: Path) -> Gear:
    """The gear of the settings; what they leave open is measured, or remembered from an earlier measurement."""
    gears = list(possible_gears(network, config, device, memory))
    if not gears:
        raise DanseoError(f"this encoder has no {config.attention} attention; use attention=auto")
    if len(gears) > 1:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        sizes = [getattr(network.model.config, key, 0) for key in ("hidden_size", "num_hidden_layers")]
        key = " ".join(
            map(str, (name, torch.get_num_threads(), torch.__version__, type(network.model).__name__, *sizes))
        )
        key += " " + " ".join(f"{gear.precision}/{gear.attention}" for gear in gears)
        if (shape := getattr(network, "shape", _SHAPE)) != _SHAPE:
            key += f" {shape[0]}x{shape[1]}"
        remembered = _recall(memory)
        if key not in remembered:
            best = fastest(gears, lambda gear: _trial(network, gear, device))
            remembered[key] = asdict(best)
            write_atomically(memory, json.dumps(remembered, indent=2))
        gears = [Gear(**remembered[key])]
    gears[0].engage(network)
    return gears[0]


def settled_gear(network: Network, config: TrainConfig, workers: Workers, run: Run | None) -> Gear:
    """As an earlier start of the run had it, else as measured; the first process decides."""
    gear: Gear | None = None
    if workers.is_first:
        if run and (run.path / "gear.json").is_file():
            gear = Gear(**run.read_json("gear.json"))
        else:
            gear = choose_gear(network, config, workers.device, cache_root() / "measured.json")
            if run:
                run.write_json("gear.json", asdict(gear))
    chosen: Gear = workers.agreed(gear)
    return chosen


def possible_gears(network: Network, config: TrainConfig, device: torch.device, memory: Path) -> Iterator[Gear]:
    """Every gear that the settings allow and the encoder has."""
    for attention in ("sdpa", "eager") if config.attention == "auto" else (config.attention,):
        try:
            network.model.set_attn_implementation(attention)
        except (ValueError, ImportError):
            continue  # a family without this implementation
        for precision in precisions(config, device, memory):
            yield Gear(precision, attention)


def precisions(config: TrainConfig, device: torch.device, memory: Path) -> tuple[str, ...]:
    """The precisions that the settings allow and the device survives."""
    if config.precision == "fp32" or device.type != "cpu":
        return ("bf16", "fp32") if config.precision == "auto" else (config.precision,)
    works = bf16_works(memory)
    if config.precision == "auto":
        return ("bf16", "fp32") if works else ("fp32",)
    if not works:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", _SAFE_ISA)
    return ("bf16",)


def bf16_works(memory: Path) -> bool:
    """Whether this CPU computes in bfloat16 without dying.

    Some virtual machines announce matrix units (AMX) whose use kills the process, which only another process can
    find out. The answer is remembered.
    """
    key = f"bf16 {platform.machine()} {platform.node()} {torch.__version__}"
    remembered = _recall(memory)
    if key not in remembered:
        child = subprocess.run([sys.executable, "-c", _BF16_TRIAL], capture_output=True, timeout=120, check=False)
        remembered[key] = child.returncode == 0
        write_atomically(memory, json.dumps(remembered, indent=2))
    return bool(remembered[key])


_SAFE_ISA = "AVX512_CORE_BF16"  # bfloat16 without the matrix units
_BF16_TRIAL = """
import torch
layer = torch.nn.Linear(128, 128)
for _ in range(100):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = layer(torch.randn(4, 4, 48, 128))
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x) @ x.transpose(-1, -2)
    x.float().mean().backward()
"""


def fastest(gears: list[Gear], trial: Callable[[Gear], float]) -> Gear:
    """The gear with the shortest median time; rounds are interleaved, so that noise meets all alike."""
    for gear in gears:
        trial(gear)  # warm-up
    times: dict[Gear, list[float]] = {gear: [] for gear in gears}
    for _ in range(_ROUNDS):
        for gear in gears:
            times[gear].append(trial(gear))
    return min(gears, key=lambda gear: statistics.median(times[gear]))


def _trial(network: Network, gear: Gear, device: torch.device) -> float:
    """Seconds of one forward and backward pass over a batch of ordinary shape."""
    gear.engage(network)
    ids = torch.full(getattr(network, "shape", _SHAPE), 5, device=device)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "segments": torch.zeros_like(ids)}
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask")}
    # One thread's own seconds, where there is one: other work on the machine would decide otherwise.
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    with gear.autocast(device):
        outputs = network.model(**inputs)
    tensors = [value for value in outputs.values() if isinstance(value, Tensor) and value.requires_grad]
    if tensors:  # a frozen encoder has only its forward pass
        torch.stack([value.float().mean() for value in tensors]).sum().backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elapsed = clock() - start
    network.zero_grad(set_to_none=True)
    return elapsed


def _recall(memory: Path) -> dict[str, Any]:
    try:
        return dict(read_object(memory).values)
    except DataError:
        return {}  # not measured yet, or unreadable: measured again
