"""Run commands in processes of their own: killed at a moment, or two as one training."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def kill_when(moment: Callable[[], bool], command: list[str], seconds: float = 600) -> None:
    """Start a command and kill it, without a chance to tidy up, as soon as moment() is true."""
    process = subprocess.Popen(
        [sys.executable, *command], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.monotonic() + seconds
    while not moment() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.005)
    early = process.poll() is None
    process.send_signal(signal.SIGKILL)
    printed = process.communicate()
    assert early, printed
    assert moment(), printed


def run_two_processes(command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command as one training on two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    line = [sys.executable, *launcher, *command]
    ended = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return ended


def weights(folder: Path) -> dict:
    return load_file(folder / "model.safetensors")
