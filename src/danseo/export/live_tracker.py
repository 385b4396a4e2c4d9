"""Send trainings to a tracker while they run (`danseo train --track`, `danseo sweep --track`)."""

import json
import subprocess
import tempfile
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from types import TracebackType

from danseo.display.escaping import say
from danseo.display.progress import Waiting
from danseo.errors import DanseoError
from danseo.export.base import ExportRequest
from danseo.export.registry import FORMATS, export_run
from danseo.export.trackers import find_reason, make_command, make_live_run, make_variables, resolve_position
from danseo.extras import require
from danseo.launcher import is_first_process
from danseo.runs.store import Run

_FINISH_SECONDS = 60.0  # for the last scores and the files, after the training
_STOP_SECONDS = 10.0


class LiveTracker:
    """Starts a process that reads the log of a training and sends it; the training never waits for it.

    A tracker that fails or hangs costs one line of warning.
    """

    def __init__(self, name: str, runs: Path, *, quiet: bool = False) -> None:
        require(*FORMATS[name].packages)
        self.name, self.quiet, self.module = name, quiet, import_module(f"danseo.export.{name}")
        try:
            self.position = resolve_position(self.module.get_default_position(), runs)
        except DanseoError:
            raise DanseoError(f"--track {name} would write among the runs in {runs}; name another --runs") from None
        self.process: subprocess.Popen[bytes] | None = None
        self.is_started = self.has_failed = False
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)

    def start(self, run: Run) -> None:
        """Start to follow a run whose training starts in this process."""
        self.run, self.is_started = run, True
        try:
            with tempfile.TemporaryFile() as document:  # a file: a process that hangs would not empty a pipe
                document.write(json.dumps(make_live_run(run, self.position).as_dict()).encode())
                document.seek(0)
                self.process = subprocess.Popen(
                    make_command(self.module.__name__),
                    stdin=document,
                    stdout=subprocess.DEVNULL,
                    stderr=self.errors,
                    env=make_variables(self.module.make_environment(self.position)),
                    start_new_session=True,  # Ctrl-C reaches the training alone
                )
        except (DanseoError, OSError) as error:
            self._warn(str(error))
        else:
            if not self.quiet:
                say(f"{self.name}: sending this run to {self.position}")

    def check(self, step: int, score: float | None) -> None:
        """Warn once if the tracker has failed meanwhile (called after every evaluation)."""
        if self.process and self.process.poll():
            self._warn(self._read_reason())

    def finish(self, run: Run) -> None:
        """Wait a while for the last scores; send a run that was finished before."""
        self.run = run
        with Waiting(f"sending the scores to {self.name}", quiet=self.quiet):
            try:
                if not self.is_started:
                    export_run(self.name, ExportRequest(str(run.path), self.position))
                elif self.process and self.process.wait(_FINISH_SECONDS):
                    self._warn(self._read_reason())
            except subprocess.TimeoutExpired:
                self._warn(f"no answer for {_FINISH_SECONDS:.0f} s")
            except DanseoError as error:
                self._warn(str(error))

    def _read_reason(self) -> str:
        self.errors.seek(0)
        return find_reason(self.errors.read().decode(errors="replace"))

    def _warn(self, reason: str) -> None:
        self._stop()
        self.has_failed = True
        later = f"danseo export {self.run.path} --to {self.name}"
        say(f"WARNING: {self.name} failed: {reason}; the run is not affected. Send it later: {later}")

    def _stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def __enter__(self) -> "LiveTracker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self.errors.close()


def make_tracker(name: str | None, runs: Path, *, quiet: bool = False) -> AbstractContextManager[LiveTracker | None]:
    """Return the tracker of a training; none without a name, and none in other processes than the first."""
    return LiveTracker(name, runs, quiet=quiet) if name and is_first_process() else nullcontext()


class SweepTracker:
    """Follows the runs of a sweep, each with its own tracker; after a failure, no more runs are sent."""

    def __init__(self, name: str, runs: Path, *, quiet: bool = False) -> None:
        self.name, self.runs, self.quiet = name, runs, quiet
        self.trackers: dict[Run, LiveTracker] = {}
        self.done: list[Run] = []
        with LiveTracker(name, runs) as first:  # reports a missing package before the sweep starts
            if not quiet:
                say(f"{name}: sending the runs to {first.position}")

    def update(self, run: Run, state: str) -> None:
        """Start to follow a run that has begun, and stop if it has failed."""
        tracker = self.trackers.get(run)
        if state in ("failed", "pruned") and tracker:
            tracker.__exit__(None, None, None)
            del self.trackers[run]
        elif state == "done":
            self.done.append(run)
        elif tracker:
            tracker.check(0, None)
        elif not self.has_failed and (run.path / "environment.json").is_file() and not run.is_finished:
            self._add(run).start(run)

    @property
    def has_failed(self) -> bool:
        return any(tracker.has_failed for tracker in self.trackers.values())

    def _add(self, run: Run) -> LiveTracker:
        self.trackers[run] = LiveTracker(self.name, self.runs, quiet=True)
        return self.trackers[run]

    def __enter__(self) -> "SweepTracker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in self.done if kind is None else ():
            if not self.has_failed:
                (self.trackers.get(run) or self._add(run)).finish(run)
        for tracker in self.trackers.values():
            tracker.__exit__(kind, error, trace)


def make_sweep_tracker(
    name: str | None, runs: Path, *, quiet: bool = False
) -> AbstractContextManager[SweepTracker | None]:
    """Return the tracker of a sweep; none without a name."""
    return SweepTracker(name, runs, quiet=quiet) if name else nullcontext()
