"""One owner per run directory, over processes and machines that share a folder.

The file .locks/<run> names the owner of a run, and its modification time is the heartbeat. It changes only while this
process holds .locks/.guard with filelock, so that two processes never take over the same run.
"""

import errno
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from danseo.display.escaping import say
from danseo.errors import WorkFailed
from danseo.files import check_writable, make_write_error
from danseo.language import _
from danseo.launcher import is_first_process, world_size

STALE = 60.0
"""Seconds without a heartbeat after which another process may take over."""
_GUARD_SECONDS = 10.0
_POLL_SECONDS = 0.5
_NO_FLOCK = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what some network file systems answer


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    host: str
    pid: int
    start: str
    """When the process began; another process may have the same pid later."""
    token: str

    @classmethod
    def me(cls, token: str | None = None) -> "Owner":
        return cls(_host(), os.getpid(), _process_start(os.getpid()), token or uuid.uuid4().hex)

    def is_dead(self) -> bool:
        """Return whether the process ended; False for processes of other machines."""
        return self.host == _host() and _process_start(self.pid) != self.start

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host.partition('/')[0]}"


def _host() -> str:
    """Return the host name, its boot and its process namespace, because a pid is unique only there."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with suppress(OSError):
        return f"{socket.gethostname()}/{boot.read_text().strip()[:8]}/{Path('/proc/self/ns/pid').stat().st_ino}"
    return socket.gethostname()


def _process_start(pid: int) -> str:
    """Return the start time of a living process in clock ticks, else an empty text."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return "" if Path("/proc/self/stat").exists() or not _is_alive(pid) else "alive"
    return "" if fields[0] in "ZX" else fields[19]


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":  # where os.kill(pid, 0) is Ctrl-C; a dead owner's lock is free after STALE seconds
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


@dataclass(frozen=True)
class RunLock:
    """A lock that this process holds."""

    locks: "RunLocks"
    run: str
    owner: Owner

    @property
    def path(self) -> Path:
        return self.locks.folder / self.run

    def beat(self) -> bool:
        """Renew the heartbeat; return False if another process has taken over."""
        try:
            owner = self.locks.read_owner(self.run)
            is_own = owner is not None and owner.token == self.owner.token
            if is_own:
                self.locks.touch(self.path)
        except (FileNotFoundError, TypeError, ValueError):
            return False
        except OSError:
            return True  # a full or slow disk does not end the run
        return is_own

    def release(self) -> None:
        """Free the run."""
        self.locks.release_for(self.run, self.owner.token)

    def remove(self) -> None:
        """Free the run and remove the lock file, and the folder of locks if it is empty."""
        self.locks.release_for(self.run, self.owner.token, remove=True)


class RunLocks:
    """The locks of one folder of runs; clock and liveness are arguments for simulations."""

    def __init__(
        self,
        runs: Path,
        *,
        stale: float = STALE,
        now: Callable[[], float] | None = None,
        is_dead: Callable[[Owner], bool] = Owner.is_dead,
    ) -> None:
        self.folder, self.stale, self._now, self._is_dead = runs / ".locks", stale, now, is_dead

    def acquire(self, run: str, owner: Owner | None = None) -> RunLock | None:
        """Return the lock of a run, or None while another owner lives."""
        from filelock import Timeout

        if self.is_held(run):  # without the guard, which the owner needs to release the run
            return None
        owner = owner or Owner.me()
        with suppress(Timeout), self._hold_guard():
            if not self.is_held(run):
                self._write(run, owner)
                return RunLock(self, run, owner)
        return None

    def exists(self, run: str) -> bool:
        """Return whether the run has a lock file, held or free."""
        return (self.folder / run).is_file()

    def is_held(self, run: str) -> bool:
        """Return whether a living owner has the run."""
        try:
            heartbeat = (self.folder / run).stat().st_mtime
            with suppress(ValueError, TypeError):  # an unreadable lock counts until it is stale
                owner = self.read_owner(run)
                if owner is None or self._is_dead(owner):
                    return False
            return self._time() - heartbeat <= self.stale
        except FileNotFoundError:
            return False

    def read_owner(self, run: str) -> Owner | None:
        """Return the owner that the lock file names; None if the run is free."""
        content = json.loads((self.folder / run).read_text("utf-8"))
        return Owner(**content) if content else None

    def release_for(self, run: str, token: str, *, remove: bool = False) -> None:
        """Free a run that the owner with this token holds, dead or alive."""
        if not self.exists(run):
            return
        with self._hold_guard():
            with suppress(FileNotFoundError, ValueError, TypeError):
                owner = self.read_owner(run)
                if owner and owner.token == token:
                    (self.folder / run).unlink() if remove else self._write(run, None)
            if remove:
                self._remove_empty_folder()

    def touch(self, path: Path) -> None:
        """Set the modification time to now, by the clock of the file system."""
        os.utime(path, None if self._now is None else (self._now(), self._now()))

    @contextmanager
    def _hold_guard(self) -> Iterator[None]:
        """Let only one process change lock files; the kernel frees the guard of a killed process."""
        from filelock import BaseFileLock, FileLock, SoftFileLock

        guard: BaseFileLock = FileLock(self.folder / ".guard", poll_interval=0.01, fallback_to_soft=False)
        for tries_left in range(99, -1, -1):
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                guard.acquire(timeout=_GUARD_SECONDS)
                break
            except (FileNotFoundError, FileExistsError):  # another process removed the empty folder meanwhile
                if not tries_left:
                    raise
            except OSError as error:
                if isinstance(guard, SoftFileLock) or error.errno not in _NO_FLOCK:
                    raise
                guard = SoftFileLock(self.folder / ".guard-soft", poll_interval=0.01)
        try:
            yield
        finally:
            guard.release()

    def _write(self, run: str, owner: Owner | None) -> None:
        """Write the lock file as a whole; the guard makes one fixed draft name enough."""
        draft = self.folder / f".{run}.part"
        try:
            draft.write_text(json.dumps(asdict(owner) if owner else None), "utf-8")
            self.touch(draft)
            draft.replace(self.folder / run)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise

    def _remove_empty_folder(self) -> None:
        if {path.name for path in self.folder.iterdir()} <= {".guard", ".clock"}:
            for name in (".clock", ".guard"):
                (self.folder / name).unlink(missing_ok=True)
            with suppress(OSError):
                self.folder.rmdir()

    def _time(self) -> float:
        """Return the time by the clock that stamps the heartbeats."""
        if self._now is not None:
            return self._now()
        clock = self.folder / ".clock"
        clock.touch()
        return clock.stat().st_mtime


class Heartbeat:
    """A thread that renews a lock until it is stopped, and calls on_loss if the lock is lost."""

    def __init__(self, lock: RunLock, on_loss: Callable[[], None], every: float | None = None) -> None:
        self.lock, self.on_loss, self.every = lock, on_loss, every or lock.locks.stale / 10
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self.every):
            if not self.lock.beat():
                self.on_loss()
                return


@contextmanager
def lock_folder(
    folder: Path, *, wait: bool = True, on_note: Callable[[str], None] = lambda line: None, inside: bool = False
) -> Iterator[None]:
    """Hold the lock of a folder; wait for its owner with a line, or fail.

    The lock file lies beside the folder, or with inside=True in it until the end.
    """
    locks, name = (RunLocks(folder), "lock") if inside else (RunLocks(folder.parent), folder.name)
    new = [parent for parent in locks.folder.parents if not parent.exists()]
    try:
        lock = locks.acquire(name)
        while lock is None:
            problem = _("{folder} is being written by another process{owner}")
            problem = problem.format(folder=folder, owner=_describe_owner(locks, name))
            if not wait:
                raise WorkFailed(_("{problem}; try again when that has ended").format(problem=problem))
            on_note(f"{problem}; waiting until that has ended (--no-wait does not)")
            while locks.is_held(name):
                time.sleep(_POLL_SECONDS)
            lock = locks.acquire(name)
    except OSError as error:
        check_writable(locks.folder)
        raise make_write_error(locks.folder, error) from None
    try:
        with Heartbeat(lock, on_loss=lambda: _exit_on_loss(folder)):
            yield
    finally:
        has_result = folder.exists() and not inside
        with suppress(OSError):  # the lock of a dead owner is free as well
            lock.release() if has_result else lock.remove()
        with suppress(OSError):  # a folder with other files stays
            for parent in () if has_result else new:
                parent.rmdir()


def _describe_owner(locks: RunLocks, run: str) -> str:
    with suppress(OSError, TypeError, ValueError):
        if owner := locks.read_owner(run):
            return f" ({owner})"
    return ""


@contextmanager
def lock_folder_on_first_process(
    folder: Path, *, wait: bool | None = True, on_note: Callable[[str], None] = lambda line: None
) -> Iterator[None]:
    """Hold the lock of a folder in the first of several processes; several processes never wait.

    wait=None means that the caller has the lock already.
    """
    is_alone = world_size() == 1
    with ExitStack() as stack:
        if wait is not None and is_first_process():
            stack.enter_context(lock_folder(folder, wait=wait and is_alone, on_note=on_note))
        yield


def _exit_on_loss(folder: Path) -> NoReturn:
    """End this process at once, because another one writes to the folder now."""
    say(f"danseo: {folder} was taken over by another process, because this one was silent for {STALE:.0f} s")
    os._exit(WorkFailed.exit_code)
