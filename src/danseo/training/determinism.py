"""Configure torch, and record the conditions under which a training gives the same numbers bit for bit."""

import os
from typing import Any

import torch

from danseo.config.train import OptimizationSettings
from danseo.training.distributed import Workers


def configure_torch(config: OptimizationSettings, device: torch.device) -> None:
    """Set the number of threads, TF32 on GPUs, and deterministic algorithms as the settings say."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.allow_tf32
    if config.full_determinism:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is not deterministic without it
    if (
        torch.are_deterministic_algorithms_enabled() != config.full_determinism
    ):  # the call imports torch's compiler, so only if needed
        torch.use_deterministic_algorithms(config.full_determinism)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # for debugging, and slow


def describe_conditions(workers: Workers) -> dict[str, Any]:
    """Return the threads, processes, CPU instructions, GPU and torch version: each changes the order of sums."""
    device = workers.device
    card = {"card": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    return {
        "threads": torch.get_num_threads(),
        "processes": workers.world,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        **card,
    }


def describe_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return one line about conditions that changed since a training began, or an empty one."""
    differing = [f"{key} {before[key]} then, {now[key]} now" for key in now if before.get(key, now[key]) != now[key]]
    if not differing:
        return ""
    return f"resumes under other conditions ({'; '.join(differing)}): not bit for bit the same as without a stop"
