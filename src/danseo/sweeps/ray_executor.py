"""The same runs on a Ray cluster: tasks with resources, results in the same directories, lost nodes survived."""

import io
import shutil
import socket
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.runs.locks import Heart, Locks, Owner
from danseo.sweeps.local import Ended
from danseo.sweeps.ray_cluster import connect
from danseo.sweeps.schedule import Ending
from danseo.sweeps.space import Resources
from danseo.sweeps.worker import Order, work

Result = tuple[Ending, str, bytes]
"""How it ended, why, and the packed run directory where results are copied back."""
Work = Callable[[Order], tuple[Ending, str]]


@dataclass
class _Task:
    order: Order
    reference: Any
    heart: Heart | None = None
    """Where results are copied back the lock is held here."""


class RayExecutor:
    """Submits as many runs as the cluster has room for, longest first as they come."""

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
        # max_calls: every run in a fresh process. Retries are the schedule's, so that none runs twice.
        self.remote = self.ray.remote(max_calls=1, **options)(remote_work)
        self.do_work = do_work
        if self.capacity() < 1:
            self.close()
            raise DanseoError(
                f"no node of the Ray cluster has {resources.cpus:g} CPUs, {resources.gpus:g} GPUs and "
                f"{resources.memory:g} GiB for a run; lower [resources]"
            )

    def capacity(self) -> int:
        """How many runs fit on the living nodes."""
        fitting = sum(self._room(node["Resources"]) for node in self.ray.nodes() if node["Alive"])
        return min(fitting, self.slots) if self.slots else fitting

    def _room(self, there: dict[str, float]) -> int:
        needs = self.resources
        wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory * 2**30}
        shares = [there.get(name, 0.0) / amount for name, amount in wanted.items() if amount]
        return int(min(shares, default=1) + 1e-9)

    def where(self, name: str) -> str:
        """Where a run is running."""
        return "ray"

    def start(self, order: Order) -> None:
        """Submit a run."""
        device = None if self.resources.gpus else "cpu"
        threads = max(1, int(self.resources.cpus))
        order = replace(order, device=device, threads=threads, settings=absolute(order.settings))
        heart = None
        if self.resources.files == "copied":
            lock = Locks(Path(order.runs), stale=order.stale).acquire(order.name, Owner.me(order.token))
            if lock is None:
                self.tasks[order.name] = _Task(order, self.ray.put(("held", "", b"")))
                return
            heart = Heart(lock, on_loss=lambda: self.stop(order.name))
            heart.__enter__()
        mark = None if heart else str(self._mark(Path(order.runs)))
        self.tasks[order.name] = _Task(order, self.remote.remote(order, mark, self.do_work), heart)

    def _mark(self, runs: Path) -> Path:
        """A file by which nodes can tell that they see the same folder."""
        if str(runs) not in self._marks:
            mark = runs / ".locks" / f"shared-{uuid.uuid4().hex}"
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            self._marks[str(runs)] = mark
        return self._marks[str(runs)]

    def poll(self, seconds: float) -> list[Ended]:
        """Wait a moment for runs to end."""
        if not self.tasks:
            time.sleep(seconds)
            return []
        names = {task.reference: name for name, task in self.tasks.items()}
        ready, _ = self.ray.wait(list(names), num_returns=len(names), timeout=seconds)
        return [self._collect(names[reference]) for reference in ready]

    def _collect(self, name: str) -> Ended:
        task = self.tasks.pop(name)
        try:
            ending, error, packed = self._result(task)
            if packed and ending == "done":
                unpack(packed, Path(task.order.runs) / name)
        finally:
            if task.heart:
                task.heart.__exit__()
                task.heart.lock.release()
        if name in self._pruned and ending != "done":
            ending = "pruned"
        self._pruned.discard(name)
        return Ended(name, ending, error)

    def _result(self, task: _Task) -> Result:
        errors = self.ray.exceptions
        try:
            result: Result = self.ray.get(task.reference)
            return result
        except (errors.NodeDiedError, errors.LocalRayletDiedError, errors.ObjectLostError) as error:
            return "lost", f"its node went away ({type(error).__name__})", b""
        except errors.OutOfMemoryError:
            return "failed", "the node ran out of memory", b""
        except (errors.WorkerCrashedError, errors.TaskCancelledError) as error:
            return "failed", f"the worker died ({type(error).__name__}): out of memory, or somebody's kill -9", b""
        except errors.RayError as error:
            return "failed", " ".join(str(error).split())[-300:], b""

    def stop(self, name: str) -> None:
        """End a run that is not worth going on with."""
        if name in self.tasks:
            self._pruned.add(name)
            self.ray.cancel(self.tasks[name].reference, force=True)

    def close(self) -> None:
        """Cancel what still runs, and leave the cluster; a local one ends."""
        for task in self.tasks.values():
            with suppress(Exception):
                self.ray.cancel(task.reference, force=True)
            if task.heart:
                task.heart.__exit__()
                task.heart.lock.release()
        self.tasks.clear()
        for mark in self._marks.values():
            mark.unlink(missing_ok=True)
        self.ray.shutdown()


# On the node


def remote_work(order: Order, mark: str | None, do_work: Work) -> Result:
    """A run on some node: in the shared folder, or in one of its own that is sent back."""
    if mark is not None:
        if not Path(mark).is_file():
            where = socket.gethostname()
            return "failed", f'{order.runs} is not shared with {where}; set files = "copied" in [resources]', b""
        return (*do_work(order), b"")
    folder = Path(tempfile.mkdtemp(prefix="danseo-run-"))
    try:
        ending, error = do_work(replace(order, runs=str(folder), series=str(folder / "apart")))
        return ending, error, pack(folder / order.name) if ending == "done" else b""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def absolute(settings: dict[str, Any]) -> dict[str, Any]:
    """Folder and file by their full paths, as nodes work in other folders; it is their content that names a run."""
    found, weights = dict(settings), settings.get("train.example_weights")
    if Path(found["model"]).is_dir():
        found["model"] = str(Path(found["model"]).resolve())
    return {**found, "train.example_weights": str(Path(weights).resolve())} if weights else found


def pack(folder: Path) -> bytes:
    """A run directory as one archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, arcname=".")
    return buffer.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Put a run directory into its place; its scores come last, as their presence means that it is whole."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".arriving-") as arriving:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(arriving, filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        Path(arriving).joinpath("whole").mkdir()
        for path in [path for path in Path(arriving).iterdir() if path.name != "whole"]:
            path.rename(Path(arriving) / "whole" / path.name)
        Path(arriving).joinpath("whole").rename(folder)
