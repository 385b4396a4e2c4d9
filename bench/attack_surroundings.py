"""Surroundings that fail: a disk that is full at two moments, a Hub that does wrong, a node that dies."""

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def _row(attack: str, held: bool, note: str) -> dict[str, object]:
    return {"attack": attack, "tries": 1, "held": int(held), "note": note}


# A full disk


def disk(workdir: Path, size: float) -> list[dict[str, object]]:
    """A small disk that fills up while a checkpoint, and while the model is written."""
    from attack_kills import contents, ended, reference, start, targets

    small = workdir / "disk"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(small)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
        return [_row("full disk", True, "not tried: only root may make a small disk")]
    try:
        target = targets(workdir / "given")[0]
        known, rows = reference(target, workdir / "reference"), []
        moments: dict[str, Callable[[Path], bool]] = {
            "while a checkpoint is written": lambda run: (run / "checkpoint.new").is_dir(),
            "while the model is saved": lambda run: (run / "model").is_dir(),
        }
        for name, is_moment in moments.items():
            folder = small / name.replace(" ", "-")
            code = _filled(start(target, folder), folder, is_moment, small)
            words = (folder / "words.txt").read_text().strip().splitlines() if (folder / "words.txt").exists() else []
            (small / "filler").unlink(missing_ok=True)
            complaints = [line for line in words if line.startswith("danseo:")]
            again = ended(start(target, folder))
            fault = known.fault(target, folder, again)
            held = code == 1 and len(complaints) == 1 and not fault
            note = fault or f"exit {code}: {complaints[0][:90] if complaints else 'no line'}…; then the same results"
            rows.append(_row(f"full disk {name}", held, note))
            assert contents(target, folder)
        return rows
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _filled(pid: int, folder: Path, is_moment: Callable[[Path], bool], small: Path) -> int:
    """Fill the disk as soon as the moment has come; the exit code."""
    from attack_kills import ended

    is_full = False
    until = time.monotonic() + 120
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) if is_full else 99
        if not is_full and any(is_moment(run) for run in (folder / "runs").glob("ynat--*")):
            os.kill(pid, signal.SIGSTOP)
            with (small / "filler").open("wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(bytes(1 << 12))
                except OSError:
                    is_full = True
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.0005)
    return ended(pid, 1)


# The Hub


def hub(workdir: Path, size: float) -> list[dict[str, object]]:
    """Eight faults of a Hub, each met by a command that wants a model from there."""
    hostile: Any = importlib.import_module("tests.hostile")
    files = workdir / "files"
    files.mkdir()
    (files / "config.json").write_text('{"model_type": "bert", "hidden_size": 32, "vocab_size": 100}')
    rows = []
    for fault in hostile.FAULTS if size >= 0.5 else ("silent", "portal"):
        with hostile.serving(files, fault) as served:
            rows.append(_asked(workdir / fault, served.url, fault))
    refused = f"http://127.0.0.1:{hostile.closed_port()}"
    return [*rows, _asked(workdir / "refused", refused, "refused connection")]


def _asked(folder: Path, url: str, fault: str, patience: float = 5.0) -> dict[str, object]:
    folder.mkdir()
    own = {"HF_HOME": str(folder / "hf"), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    words = ["train", "ynat", "-m", "org/tiny", "--data", "sample", "--timeout", f"{patience:g}"]
    began = time.monotonic()
    command = [sys.executable, "-P", "-m", "danseo", *words]
    done = subprocess.run(command, env=keep | own, capture_output=True, text=True, cwd=folder, check=False)
    seconds = time.monotonic() - began
    lines = done.stderr.strip().splitlines()
    pages = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:1] == b"<"]
    complaints = [line for line in lines if line.startswith("danseo:")]  # a slow machine also sees lines of progress
    held = done.returncode == 1 and len(complaints) == 1 and "Traceback" not in done.stderr and not pages
    note = (
        f"exit {done.returncode} after {seconds:.0f} s with --timeout {patience:g}: {lines[-1][:110] if lines else ''}…"
    )
    return _row(f"Hub: {fault}", held, note)


# Ray


def ray(workdir: Path, size: float) -> list[dict[str, object]]:
    """Two nodes on this machine, one of which is killed in the middle of a sweep."""
    name = "test_a_lost_node_loses_no_run"
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-n", "0", "-k", name, "tests/sweeps/test_ray.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    said = (done.stdout.strip().splitlines() or [""])[-1]
    held = done.returncode == 0 and "skipped" not in said
    return [_row("two Ray nodes, one killed", held, "every run done once" if held else said[:200])]
