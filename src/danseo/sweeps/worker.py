"""One run of a sweep in its own process, which holds the run's lock and dies with its parent."""

import ctypes
import hashlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from danseo.sweeps.queue import Ending

DONE, FAILED, HELD, FOUND = 0, 1, 75, 76
"""Exit codes of a worker."""
_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
_PARENT_SECONDS = 1.0


@dataclass(frozen=True)
class Order:
    """The work of one worker, in plain values that JSON can hold."""

    name: str
    settings: dict[str, Any]
    root: str
    runs: str
    device: str | None = None
    force_before: float | None = None
    """Run again unless the run finished after this time."""
    stale: float = 60.0
    token: str | None = None
    """The token of the lock, which identifies the worker."""
    threads: int = 0
    """CPU threads, whatever the environment has; train.num_threads goes before."""
    series: str | None = None
    """The folder in which the runs of the sweep agree on precision and attention."""

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def work(order: Order, on_loss: Callable[[], None] = lambda: os._exit(HELD)) -> tuple[Ending, str]:
    """Do the run unless another process has it; return how it ended and, if it failed, why."""
    from danseo.runs.lock import Heartbeat, Owner, RunLocks
    from danseo.runs.store import Run

    runs = Path(order.runs)
    lock = RunLocks(runs, stale=order.stale).acquire(order.name, Owner.me(order.token))
    if lock is None:
        return "held", ""
    try:
        with Heartbeat(lock, on_loss):
            run = Run(runs / order.name)
            if is_done(run.path, order.force_before):
                return "found", ""
            return _run(order, run)
    finally:
        lock.release()


def is_done(path: Path, force_before: float | None) -> bool:
    """Return whether the run is finished, and not before the time of a sweep with --force."""
    with suppress(OSError):
        return (path / "scores.json").stat().st_mtime >= (force_before or 0.0)
    return False


def _run(order: Order, run: Any) -> tuple[Ending, str]:
    from danseo.config.base import update_config
    from danseo.config.run import RunConfig
    from danseo.errors import DanseoError
    from danseo.experiment import run_experiment
    from danseo.models.registry import get_family

    config = update_config(RunConfig(task=order.settings["task"], model=order.settings["model"]), order.settings)
    if order.threads and get_family(config.model).trains_with_torch:
        with suppress(ImportError):  # the run itself reports it better
            import torch

            torch.set_num_threads(order.threads)
    options: dict[str, Any] = {
        "device": order.device,
        "force": order.force_before is not None,
        "series": series_file(order),
        "wait": None,  # work() has the lock
    }
    try:
        done = run_experiment(config, Path(order.root), run.path.parent, quiet=True, **options)
        if done.path != run.path:
            raise DanseoError(f"the run was written to {done.path.name}; did the data or the model change meanwhile?")
    except DanseoError as error:
        message = str(error)
    except Exception as error:  # a bug or an error of a library: one line for the table, the traceback in a file
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:300] or 'no message'} (see traceback.txt)"
        write_reason(run, config, message, traceback.format_exc())
        return "failed", message
    else:
        return "done", ""
    write_reason(run, config, message)
    return "failed", message


def series_file(order: Order) -> Path | None:
    """Return the file in which runs with the same model, device type and settings agree on precision and attention."""
    if order.series is None:
        return None
    shared = [order.settings.get(name) for name in ("model", "train.precision", "train.attn_implementation")]
    key = json.dumps([*shared, (order.device or "any").split(":")[0]])
    return Path(order.series) / f"{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


def write_reason(run: Any, config: Any, message: str, trace: str = "", *, is_pruned: bool = False) -> None:
    """Write the settings of a failed or pruned run and the reason, so that tables can show them."""
    from danseo.errors import DanseoError
    from danseo.tasks import get_task

    with suppress(DanseoError):
        if not (run.path / "config.toml").is_file():
            run.start(config, get_task(config.task))
        if trace:
            run.write_bytes("traceback.txt", trace.encode("utf-8", "replace"))
        run.prune(message) if is_pruned else run.fail(message)


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends: by the kernel if it can, else by a thread that checks."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(FAILED)  # the parent ended before the call

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_SECONDS)
        os._exit(FAILED)

    threading.Thread(target=watch, daemon=True, name="parent").start()


def main() -> NoReturn:
    """Read an order from standard input and carry it out: `python -m danseo.sweeps.worker PARENT`."""
    die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))  # so that the lock is released
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    ending, _ = work(Order(**json.loads(sys.stdin.read())))
    sys.exit({"done": DONE, "held": HELD, "found": FOUND}.get(ending, FAILED))


if __name__ == "__main__":
    main()
