"""What numbers depend on besides settings, data and weights: bit for bit holds only where all of it is the same."""

import os
from typing import Any

import torch

from danseo.config import TrainConfig
from danseo.training.workers import Workers


def settle(config: TrainConfig, device: torch.device) -> None:
    """Compute from now on as the settings say: threads, TF32 on a GPU unless exact, fixed order of sums on request."""
    if config.threads:
        torch.set_num_threads(config.threads)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not config.exact
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS adds up as it comes
    if torch.are_deterministic_algorithms_enabled() != config.deterministic:  # to say it imports torch's compiler
        torch.use_deterministic_algorithms(config.deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # for debugging, and slow


def conditions(workers: Workers) -> dict[str, Any]:
    """Threads, processes, instructions and library: each of them changes the order in which sums are taken."""
    device = workers.device
    card = {"card": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    return {
        "threads": torch.get_num_threads(),
        "processes": workers.world,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        **card,
    }


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """How the conditions of a training that goes on differ from those that it began with, as a line, or ""."""
    differing = [f"{key} {before[key]} then, {now[key]} now" for key in now if before.get(key, now[key]) != now[key]]
    if not differing:
        return ""
    return f"goes on otherwise than it began ({'; '.join(differing)}): not bit for bit what it would have been"
