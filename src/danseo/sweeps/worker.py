"""One run, in a process of its own: it owns the run's lock, dies with its parent, and leaves its error behind."""

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

from danseo.sweeps.schedule import Ending

DONE, FAILED, HELD, FOUND = 0, 1, 75, 76
"""How the process ends."""
_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
_PARENT_SECONDS = 1.0


@dataclass(frozen=True)
class Order:
    """All that a worker needs to know; plain values, so that it travels as JSON."""

    name: str
    settings: dict[str, Any]
    root: str
    runs: str
    device: str | None = None
    force_before: float | None = None
    """Start anew unless the run has finished after this time."""
    stale: float = 60.0
    token: str | None = None
    """By which the lock shows whose worker has it."""
    threads: int = 0
    """What the plan gives it, whatever the shell had; train.threads goes before."""
    series: str | None = None
    """The folder in which the runs of the sweep agree on precision and attention."""

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def work(order: Order, on_loss: Callable[[], None] = lambda: os._exit(HELD)) -> tuple[Ending, str]:
    """Do the run unless somebody else has it; returns how it ended and, for a failure, why."""
    from danseo.runs.directory import Run
    from danseo.runs.locks import Heart, Locks, Owner

    runs = Path(order.runs)
    lock = Locks(runs, stale=order.stale).acquire(order.name, Owner.me(order.token))
    if lock is None:
        return "held", ""
    try:
        with Heart(lock, on_loss):
            run = Run(runs / order.name)
            if is_done(run.path, order.force_before):
                return "found", ""
            return _run(order, run)
    finally:
        lock.release()


def is_done(path: Path, force_before: float | None) -> bool:
    """Whether the run is finished, and recently enough where it is to be done anew."""
    with suppress(OSError):
        return (path / "scores.json").stat().st_mtime >= (force_before or 0.0)
    return False


def _run(order: Order, run: Any) -> tuple[Ending, str]:
    from danseo.config import RunConfig
    from danseo.errors import DanseoError
    from danseo.experiment import run_experiment
    from danseo.models.families import family_of
    from danseo.settings.values import with_settings

    config = with_settings(RunConfig(task=order.settings["task"], model=order.settings["model"]), order.settings)
    if order.threads and family_of(config.model).is_gradual:
        _use_threads(order.threads)
    options: dict[str, Any] = {
        "device": order.device,
        "force": order.force_before is not None,
        "series": series_file(order),
        "wait": None,  # work() has the lock
    }
    try:
        done = run_experiment(config, Path(order.root), run.path.parent, quiet=True, **options)
        if done.path != run.path:
            raise DanseoError(f"the run came out as {done.path.name}; did the data or the model change meanwhile?")
    except DanseoError as error:
        message = str(error)
    except Exception as error:  # a bug, or a library's complaint: one line for the table, the rest in a file
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:300] or 'no message'} (see traceback.txt)"
        leave_reason(run, config, message, traceback.format_exc())
        return "failed", message
    else:
        return "done", ""
    leave_reason(run, config, message)
    return "failed", message


def _use_threads(count: int) -> None:
    with suppress(ImportError):  # which the run will say better
        import torch

        torch.set_num_threads(count)


def series_file(order: Order) -> Path | None:
    """Where runs of this sweep agree how to compute: those of one model, one kind of device and the same wishes."""
    if order.series is None:
        return None
    wishes = [order.settings.get(name) for name in ("model", "train.precision", "train.attention")]
    key = json.dumps([*wishes, (order.device or "any").split(":")[0]])
    return Path(order.series) / f"{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


def leave_reason(run: Any, config: Any, message: str, trace: str = "", *, is_pruned: bool = False) -> None:
    """The settings and the reason, so that the run shows in every table, failed or pruned."""
    from danseo.errors import DanseoError
    from danseo.tasks import get_task

    with suppress(DanseoError):
        if not (run.path / "config.toml").is_file():
            run.start(config, get_task(config.task))
        if trace:
            run.write_bytes("traceback.txt", trace.encode("utf-8", "replace"))
        run.prune(message) if is_pruned else run.fail(message)


def die_with_parent(parent: int) -> None:
    """However the parent ends, this process ends too: by the kernel where it can, else by looking now and then."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(FAILED)  # it was gone before the kernel knew

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
