"""The Ray executor of sweeps: runs as tasks of a cluster; runs of lost nodes are queued again."""

import io
import os
import shutil
import socket
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from danseo.errors import DanseoError
from danseo.extras import require
from danseo.hub import BUNDLED_MODEL_FOLDER
from danseo.launcher import SAFE_PATH
from danseo.runs.lock import Heartbeat, Owner, RunLocks
from danseo.sweeps.local_executor import EndedRun
from danseo.sweeps.queue import Ending
from danseo.sweeps.sweep_file import Resources
from danseo.sweeps.worker import Order, work

_ANSWER_SECONDS = 5.0
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # the preface, and empty settings


def connect(address: str | None, slots: int | None = None) -> Any:
    """Return Ray, connected to the cluster, or to a new one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ |= SAFE_PATH
    require("ray")
    import ray

    # "log_to_driver" does not cover Ray's own messages, such as a lost node: they would stand before the JSON document
    ray._private.worker._worker_logs_enabled = False
    options: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if address is None:
        options |= {"num_cpus": slots or os.cpu_count(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        # Ray puts the current folder before all packages of its workers; this one holds no Python file
        with chdir(BUNDLED_MODEL_FOLDER), nullcontext() if address else _keep_to_loopback(ray):
            ray.init(address=address or "local", **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DanseoError(f"no Ray cluster at {address or 'this machine'}: {reason}") from None
    return ray


@contextmanager
def _keep_to_loopback(ray: Any) -> Iterator[None]:
    """Let a cluster that starts in this block listen on 127.0.0.1 only, and contact nothing else.

    Otherwise Ray opens a socket to 8.8.8.8 to learn its address, and its dashboard, which starts although it is
    switched off, looks for the metadata server of a cloud.
    """
    constants, services = ray._private.ray_constants, ray._private.services
    with (
        patch.dict(os.environ, {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}),  # what its processes read
        patch.object(constants, "ENABLE_RAY_CLUSTER", False, create=True),
        patch.object(services, "start_api_server", lambda *args, **options: (None, None), create=True),
    ):
        yield


def check_address(address: str) -> None:
    """Refuse an address without a Ray cluster, in seconds instead of Ray's minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise DanseoError(f"--ray-address {address}: should be host:port, ray://host:port or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(_HTTP2_HELLO)
            answer = connection.recv(9)
    except OSError as error:
        raise DanseoError(f"--ray-address {address}: no server answers ({error}); is the cluster up?") from None
    if len(answer) < 4 or answer[3] != 4:  # gRPC answers with its own settings
        raise DanseoError(f"--ray-address {address}: a server answers, but it is no Ray cluster")


Result = tuple[Ending, str, bytes]
"""How a run ended, why, and its packed directory if results are copied back."""
Work = Callable[[Order], tuple[Ending, str]]


@dataclass
class _Task:
    order: Order
    reference: Any
    heartbeat: Heartbeat | None = None
    """Of the lock, if results are copied back: then the lock is held here."""

    def release(self) -> None:
        """Release the lock, if it is held here."""
        if self.heartbeat:
            self.heartbeat.__exit__()
            self.heartbeat.lock.release()


class RayExecutor:
    """Submits runs to the cluster, as many as fit."""

    def __init__(
        self, address: str | None, resources: Resources, slots: int | None = None, do_work: Work = work
    ) -> None:
        self.ray = connect(address, slots)
        self.resources, self.slots = resources, slots
        self.tasks: dict[str, _Task] = {}
        self._pruned: set[str] = set()
        self._marks: dict[str, Path] = {}
        options: dict[str, Any] = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_retries": 0}
        if resources.memory:
            options["memory"] = int(resources.memory * 2**30)
        # max_calls: every run in a fresh process. Retries are the queue's, so that none runs twice.
        self.remote = self.ray.remote(max_calls=1, **options)(remote_work)
        self.do_work = do_work
        if self.capacity() < 1:
            self.close()
            raise DanseoError(
                f"no node of the Ray cluster has {resources.cpus:g} CPUs, {resources.gpus:g} GPUs and "
                f"{resources.memory:g} GiB for a run; lower [resources]"
            )

    def capacity(self) -> int:
        """Return how many runs fit on the living nodes."""
        count = sum(self._count_slots(node["Resources"]) for node in self.ray.nodes() if node["Alive"])
        return min(count, self.slots) if self.slots else count

    def _count_slots(self, available: dict[str, float]) -> int:
        needs = self.resources
        required = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory * 2**30}
        ratios = [available.get(name, 0.0) / amount for name, amount in required.items() if amount]
        return int(min(ratios, default=1) + 1e-9)

    def where(self, name: str) -> str:
        """Return a name for the place of a run."""
        return "ray"

    def start(self, order: Order) -> None:
        """Submit a run."""
        device = None if self.resources.gpus else "cpu"
        threads = max(1, int(self.resources.cpus))
        order = replace(order, device=device, threads=threads, settings=_make_paths_absolute(order.settings))
        heartbeat = None
        if self.resources.files == "copied":
            lock = RunLocks(Path(order.runs), stale=order.stale).acquire(order.name, Owner.me(order.token))
            if lock is None:
                self.tasks[order.name] = _Task(order, self.ray.put(("held", "", b"")))
                return
            heartbeat = Heartbeat(lock, on_loss=lambda: self.stop(order.name))
            heartbeat.__enter__()
        mark = None if heartbeat else str(self._make_mark(Path(order.runs)))
        self.tasks[order.name] = _Task(order, self.remote.remote(order, mark, self.do_work, str(Path.cwd())), heartbeat)

    def _make_mark(self, runs: Path) -> Path:
        """Return a file by which nodes check that they see the same folder."""
        if str(runs) not in self._marks:
            mark = runs / ".locks" / f"shared-{uuid.uuid4().hex}"
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            self._marks[str(runs)] = mark
        return self._marks[str(runs)]

    def poll(self, seconds: float) -> list[EndedRun]:
        """Return the runs that ended; wait up to some seconds for them."""
        if not self.tasks:
            time.sleep(seconds)
            return []
        names = {task.reference: name for name, task in self.tasks.items()}
        ready, _ = self.ray.wait(list(names), num_returns=len(names), timeout=seconds)
        return [self._collect(names[reference]) for reference in ready]

    def _collect(self, name: str) -> EndedRun:
        task = self.tasks.pop(name)
        try:
            ending, error, packed = self._result(task)
            if packed and ending == "done":
                unpack(packed, Path(task.order.runs) / name)
        finally:
            task.release()
        if name in self._pruned and ending != "done":
            ending = "pruned"
        self._pruned.discard(name)
        return EndedRun(name, ending, error)

    def _result(self, task: _Task) -> Result:
        errors = self.ray.exceptions
        try:
            return cast(Result, self.ray.get(task.reference))
        except (errors.NodeDiedError, errors.LocalRayletDiedError, errors.ObjectLostError) as error:
            return "lost", f"its node went away ({type(error).__name__})", b""
        except errors.OutOfMemoryError:
            return "failed", "the node ran out of memory", b""
        except (errors.WorkerCrashedError, errors.TaskCancelledError) as error:
            return "failed", f"the worker died ({type(error).__name__}): out of memory, or kill -9", b""
        except errors.RayError as error:
            return "failed", " ".join(str(error).split())[-300:], b""

    def stop(self, name: str) -> None:
        """Prune a run: cancel its task."""
        if name in self.tasks:
            self._pruned.add(name)
            self.ray.cancel(self.tasks[name].reference, force=True)

    def close(self) -> None:
        """Cancel all tasks and leave the cluster; a local one ends."""
        for task in self.tasks.values():
            with suppress(Exception):
                self.ray.cancel(task.reference, force=True)
            task.release()
        self.tasks.clear()
        for mark in self._marks.values():
            mark.unlink(missing_ok=True)
        self.ray.shutdown()


# On the node


def remote_work(order: Order, mark: str | None, do_work: Work, folder: str) -> Result:
    """Do a run on a node: in the shared folder, or in a temporary one that is sent back."""
    with suppress(OSError):
        os.chdir(folder)  # relative paths mean the same as in the sweep, if the node has that folder
    if mark is not None:
        if not Path(mark).is_file():
            where = socket.gethostname()
            return "failed", f'{order.runs} is not shared with {where}; set files = "copied" in [resources]', b""
        return (*do_work(order), b"")
    with tempfile.TemporaryDirectory(prefix="danseo-run-", ignore_cleanup_errors=True) as name:
        runs = Path(name)
        ending, error = do_work(replace(order, runs=name, series=str(runs / "series")))
        return ending, error, pack(runs / order.name) if ending == "done" else b""


def _make_paths_absolute(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with absolute paths; nodes have other current folders, and content identifies a run."""
    names = ["model"] if Path(settings["model"]).is_dir() else []
    names += [name for name in ("train.example_weights", "train.distill_targets") if settings.get(name)]
    return settings | {name: str(Path(settings[name]).resolve()) for name in names}


def pack(folder: Path) -> bytes:
    """Return a run directory as one archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, arcname=".")
    return buffer.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Replace a run directory by a packed one, in one step."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".arriving-") as temporary:
        unpacked = Path(temporary) / folder.name
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(unpacked, filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)
