"""One owner per run directory, over processes and machines that share a folder.

A lock is a row of files, .locks/<run>/<generation>, each made whole by one hard link. Whoever makes the next generation
owns the run; that can succeed only once per generation, so that two who see the same stale owner never both take over.
The highest generation is never removed, and a maker that finds a higher one than its own has come too late.
"""

import hashlib
import json
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from danseo.display.escaping import say
from danseo.errors import DataError, WorkFailed
from danseo.files import check_writable, remedy

STALE = 60.0
"""Seconds without a heartbeat after which an owner on another machine counts as gone."""
_PAUSE = 0.5  # seconds between two looks at a lock that is waited for


@dataclass(frozen=True)
class Owner:
    """Who holds a lock."""

    host: str
    pid: int
    born: str
    """When the process began, so that a recycled pid is not taken for it."""
    token: str

    @classmethod
    def me(cls, token: str | None = None) -> "Owner":
        return cls(_host(), os.getpid(), _born(os.getpid()), token or uuid.uuid4().hex)

    def is_dead(self) -> bool:
        """Whether the process is known to be gone; of other machines nothing is known."""
        return self.host == _host() and _born(self.pid) != self.born


def _host() -> str:
    """The machine and its boot, as a process id means nothing beyond."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with suppress(OSError):
        return f"{socket.gethostname()}/{boot.read_text().strip()[:8]}/{Path('/proc/self/ns/pid').stat().st_ino}"
    return socket.gethostname()


def _born(pid: int) -> str:
    """The start time of a living process, in ticks; gone, or a zombie, has none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return "" if Path("/proc/self/stat").exists() or not _answers(pid) else "alive"
    return "" if fields[0] in "ZX" else fields[19]


def _signature() -> str:
    """This process in a file's name: who made a draft is to be known even of an empty one."""
    host = hashlib.sha256(_host().encode()).hexdigest()[:8]
    return f"{host}.{os.getpid()}.{_born(os.getpid())}"


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True)
class Lock:
    """A held lock."""

    locks: "Locks"
    run: str
    generation: int
    owner: Owner

    @property
    def path(self) -> Path:
        return self.locks.folder / self.run / str(self.generation)

    def beat(self) -> bool:
        """Say that the owner lives; False when somebody has taken over."""
        try:
            self.locks.touch(self.path)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a full or slow disk is no reason to give up the run
        return self.locks.highest(self.run) == self.generation

    def release(self) -> None:
        """Leave the run to whoever comes next."""
        self.locks.make(self.run, self.generation + 1, None)

    def forget(self) -> None:
        """Leave no trace of a run that never came to be; while this lock is held nobody else can be making one."""
        gone = self.locks.folder / f"gone-{uuid.uuid4().hex}"
        self.path.parent.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


class Locks:
    """The locks of one folder of runs; clock and life are arguments so that a simulation can drive them."""

    def __init__(
        self,
        runs: Path,
        *,
        stale: float = STALE,
        now: Callable[[], float] | None = None,
        is_dead: Callable[[Owner], bool] = Owner.is_dead,
    ) -> None:
        self.folder, self.stale, self._now, self._is_dead = runs / ".locks", stale, now, is_dead

    def acquire(self, run: str, owner: Owner | None = None) -> Lock | None:
        """The lock of a run, or None while another owner lives."""
        owner = owner or Owner.me()
        highest = self.highest(run)
        if highest and not self._is_open(run, highest):
            return None
        return Lock(self, run, highest + 1, owner) if self.make(run, highest + 1, owner) else None

    def is_held(self, run: str) -> bool:
        """Whether a living owner has the run."""
        highest = self.highest(run)
        return bool(highest) and not self._is_open(run, highest)

    def release_for(self, run: str, token: str) -> None:
        """Free a run on behalf of an owner that is known to be dead, wherever it was."""
        highest = self.highest(run)
        with suppress(FileNotFoundError, ValueError):  # has just changed, so it was not the dead one's
            owner = self._owner(run, highest)
            if owner and owner.token == token:
                self.make(run, highest + 1, None)

    def highest(self, run: str) -> int:
        """The latest generation, 0 before the first."""
        try:
            numbers = [int(path.name) for path in (self.folder / run).iterdir() if path.name.isdigit()]
        except FileNotFoundError:
            return 0
        return max(numbers, default=0)

    def make(self, run: str, generation: int, owner: Owner | None) -> bool:
        """Make a generation, with an owner or free, and see that it is the latest; the earlier ones go."""
        folder = self.folder / run
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"draft-{_signature()}-{uuid.uuid4().hex}"
        try:
            draft.write_text(json.dumps(asdict(owner) if owner else None), "utf-8")
            self.touch(draft)
            os.link(draft, folder / str(generation))
        except FileExistsError:
            return False
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        if self.highest(run) != generation:
            with suppress(FileNotFoundError):
                (folder / str(generation)).unlink()
            return False
        self._sweep_out(folder, generation)
        return True

    def touch(self, path: Path) -> None:
        """The heartbeat is the file's time, by the clock of the file system."""
        os.utime(path, None if self._now is None else (self._now(), self._now()))

    def _is_open(self, run: str, generation: int) -> bool:
        """Free, or left behind."""
        try:
            owner = self._owner(run, generation)
            beat = (self.folder / run / str(generation)).stat().st_mtime
        except (FileNotFoundError, ValueError):
            return False  # has just changed; look again later
        return owner is None or self._is_dead(owner) or self._time() - beat > self.stale

    def _owner(self, run: str, generation: int) -> Owner | None:
        content = json.loads((self.folder / run / str(generation)).read_text("utf-8")) if generation else None
        return Owner(**content) if content else None

    def _time(self) -> float:
        """Now, by the clock that stamps the heartbeats."""
        if self._now is not None:
            return self._now()
        probe = self.folder / f"clock-{os.getpid()}-{threading.get_ident()}"
        probe.touch()
        seconds = probe.stat().st_mtime
        probe.unlink(missing_ok=True)
        return seconds

    def _sweep_out(self, folder: Path, generation: int) -> None:
        """Remove what earlier owners, and makers who died in between, left."""
        for path in folder.iterdir():
            # The last but one stays, so that whoever is listing meanwhile sees one of the two.
            is_past = path.name.isdigit() and int(path.name) < generation - 1
            if is_past or (path.name.startswith("draft-") and (self._is_old(path) or self._is_orphan(path))):
                path.unlink(missing_ok=True)

    def _is_orphan(self, path: Path) -> bool:
        """Whether the draft's maker is known to be gone, by its name or, where older versions made it, its content."""
        with suppress(ValueError):
            host, pid, born = path.name.split("-")[1].split(".")
            return host == _signature().partition(".")[0] and self._is_dead(Owner(_host(), int(pid), born, ""))
        with suppress(OSError, ValueError, TypeError):
            return self._is_dead(Owner(**json.loads(path.read_text("utf-8"))))
        return False

    def _is_old(self, path: Path) -> bool:
        try:
            return time.time() - path.stat().st_mtime > 10 * self.stale
        except FileNotFoundError:
            return False


class Heart:
    """Beats for a lock from a thread of its own until it is stopped; calls on_loss when the lock is gone."""

    def __init__(self, lock: Lock, on_loss: Callable[[], None], every: float | None = None) -> None:
        self.lock, self.on_loss, self.every = lock, on_loss, every or lock.locks.stale / 10
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")

    def __enter__(self) -> "Heart":
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
def owned(
    folder: Path, *, wait: bool = True, on_note: Callable[[str], None] = lambda line: None, inside: bool = False
) -> Iterator[None]:
    """A folder for this process alone: whoever has it is waited for, with a line, or is the end.

    The lock lies beside the folder; inside it, and gone in the end, where a folder of somebody's own is written to.
    """
    locks, name = (Locks(folder), "lock") if inside else (Locks(folder.parent), folder.name)
    new = [parent for parent in (locks.folder, *locks.folder.parents) if not parent.exists()]
    try:
        lock = locks.acquire(name)
        while lock is None:
            if not wait:
                raise WorkFailed(f"{folder} is being written by another process; try again when that has ended")
            on_note(f"{folder} is being written by another process; waiting until that has ended (--no-wait does not)")
            while locks.is_held(name):
                time.sleep(_PAUSE)
            lock = locks.acquire(name)
    except OSError as error:
        check_writable(locks.folder)
        raise DataError(f"{locks.folder} cannot be written: {error.strerror}; {remedy(error)}") from None
    try:
        with Heart(lock, on_loss=lambda: _lost(folder)):
            yield
    finally:
        is_kept = folder.exists() and not inside
        with suppress(OSError):  # a dead owner's lock is free as well
            lock.release() if is_kept else lock.forget()
        with suppress(OSError):  # what is in use stays
            for parent in () if is_kept else new:
                parent.rmdir()


@contextmanager
def owned_by_first(
    folder: Path, *, wait: bool | None = True, on_note: Callable[[str], None] = lambda line: None
) -> Iterator[None]:
    """As owned, for the first of several processes; those do not wait, as the others would give up on it.

    None in place of waiting says that the caller has the lock already.
    """
    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    with ExitStack() as stack:
        if wait is not None and os.environ.get("RANK", "0") == "0":
            stack.enter_context(owned(folder, wait=wait and is_alone, on_note=on_note))
        yield


def _lost(folder: Path) -> NoReturn:
    """Two must never write: whoever was silent for too long leaves at once."""
    say(f"danseo: {folder} was taken over by another process, as this one was silent for {STALE:.0f} s")
    os._exit(WorkFailed.exit_code)
