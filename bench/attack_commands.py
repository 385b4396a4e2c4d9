"""Run commands in forked processes with limits, and judge how they ended."""

import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.mutations import SECRET

CPU_SECONDS, SECONDS = 20, 90
"""Limits of one command: of its computing, and by the clock, as other processes may be busy."""
MEGABYTES = 1024
"""What a command may use in addition to the process that it was forked from."""


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it printed; code is None if it was stopped for its time."""

    code: int | None
    out: str
    err: str
    megabytes: float = 0.0


class Child:
    """A command in a forked process, which saves the imports; it has no standard input and does not outlive a limit."""

    def __init__(self, work: Sequence[str] | Callable[[], object], folder: Path, **environment: str) -> None:
        self.outputs = folder / ".out", folder / ".err"
        self.modules = folder / ".modules"
        self.before = resident("self")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(work, folder, environment)

    def _run(self, work: Sequence[str] | Callable[[], object], folder: Path, environment: dict[str, str]) -> None:
        code = 70
        try:
            os.setsid()
            os.chdir(folder)
            os.environ.update({"DANSEO_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1", **environment})
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            streams = [os.open(os.devnull, os.O_RDONLY), *(os.open(path, flags, 0o600) for path in self.outputs)]
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            sys.stdin, sys.stdout, sys.stderr = (os.fdopen(k, mode) for k, mode in enumerate("rww"))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
            if callable(work):
                work()
                code = 0
            else:
                from danseo.cli import main

                main(work)
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 0
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                self.modules.write_text("\n".join(sys.modules))
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)

    def wait(self, seconds: float = SECONDS, cpu_seconds: float = CPU_SECONDS) -> Ended:
        """Wait for the end; stop the process if it exceeds a limit of time or memory."""
        until, code, most = time.monotonic() + seconds, None, 0.0
        while True:
            done, status, used = os.wait4(self.pid, os.WNOHANG)
            if done:
                code, most = os.waitstatus_to_exitcode(status), max(most, used.ru_maxrss / 1024 - self.before)
                break
            most = max(most, resident(self.pid) - self.before)
            if time.monotonic() > until or most > 3 * MEGABYTES or computed(self.pid) > cpu_seconds:
                self.stop()
                break
            time.sleep(0.004)
        out, err = (path.read_text(errors="replace") if path.exists() else "" for path in self.outputs)
        return Ended(code, out, err, most)

    def import_modules(self) -> None:
        """Import here what the child imported, so that further children do not have to."""
        for name in self.modules.read_text().splitlines():
            if name not in sys.modules:
                with suppress(Exception):
                    importlib.import_module(name)

    def stop(self) -> None:
        """End the process and what it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def resident(pid: int | str) -> float:
    """Return the memory of a process in MB."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def computed(pid: int) -> float:
    """Return the seconds that a process has computed."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


def run_command(words: Sequence[str], folder: Path, **environment: str) -> Ended:
    """Run a danseo command to its end."""
    return Child(words, folder, **environment).wait()


def find_fault(ended: Ended, outside: Path, written: Sequence[Path] = ()) -> str | None:
    """Return what a hostile input may not cause, or None if the command held: a result, or one line and exit 1 or 2.

    Exit code 3 means that a part of the work was done.
    """
    last = (ended.err.strip().splitlines() or [""])[-1]
    texts = [ended.out, ended.err, *(path.read_text(errors="replace") for path in written if path.is_file())]
    lines = [line for line in ended.err.splitlines() if line.startswith("danseo: ")]
    if ended.megabytes > MEGABYTES:
        return f"uses {ended.megabytes:.0f} MB"
    checks: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: ended.code is None, f"does not end: {last}"),
        (lambda: "Traceback" in ended.err or "Traceback" in ended.out, f"traceback: {last}"),
        (lambda: ended.code not in (0, 1, 2, 3), f"exit {ended.code}: {last}"),
        (
            lambda: ended.code in (1, 2) and (len(lines) != 1 or lines[0] != last),
            f"exit {ended.code}, {len(lines)} lines",
        ),
        (lambda: ended.code != 0 and len(last) > 1000, f"a line of {len(last)} characters"),
        (lambda: any(SECRET in text for text in texts), "shows the content of a file outside the folder, or the key"),
        (lambda: any("\x1b" in text or "\0" in text for text in texts), "control characters in the output"),
        (lambda: (outside / "tripwire").exists(), "runs code of the input"),
    )
    return next((fault[:300] for is_fault, fault in checks if is_fault()), None)
