"""Under what a run was made: versions, commit, data, device, time and memory."""

import platform
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from danseo import __version__

_VERSIONS = ("numpy", "torch", "transformers", "accelerate", "tokenizers", "safetensors", "scikit-learn")


def environment(hashes: dict[str, str], device: str, seconds: float) -> dict[str, Any]:
    """Versions, commit, data hashes, device, threads, time and memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "danseo": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: found for name in _VERSIONS if (found := _version(name))},
        "data": hashes,
        "device": device,
        "threads": _threads(),
        "seconds": round(seconds, 3),
        "peak_memory_gib": round(peak, 3),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _threads() -> int | None:
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None


def _commit() -> str | None:
    """The commit of danseo's own checkout, where it runs from one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
