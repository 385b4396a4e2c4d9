"""What a person sees while a run goes on: a bar with ETA on a terminal, a line per evaluation elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from danseo.display.escaping import say, visible

_SHOWN_EVERY = 0.2  # seconds
_BAR = 20  # characters


class Waiting:
    """How far a computation is, once it has taken a few seconds: a bar with ETA on a terminal, else a line at times."""

    def __init__(self, title: str, *, quiet: bool = False, after: float = 3.0, every: float = 15.0) -> None:
        self.title, self.quiet, self.after, self.every = title, quiet, after, every
        self.start = self.due = math.inf
        self.bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, done: float, total: float) -> None:
        """So much of the work is done; the clock starts with the first word."""
        now = time.monotonic()
        if self.start == math.inf:
            self.start, self.due = now, now + self.after
        if self.bar:
            self.bar.update(self.bar.task_ids[0], completed=done)
        elif not self.quiet and now >= self.due and 0 < done < total:
            self.due = now + self.every
            self._show(done, total, now - self.start)

    def _show(self, done: float, total: float, seconds: float) -> None:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.add_task(unmarked(self.title), total=total, completed=done)
            self.bar.start()
        else:
            left = seconds * (total - done) / done
            say(f"{self.title}: {100 * done / total:.0f} %, ETA {left:.0f} s")


class LiveDisplay:
    """Something that is drawn on a terminal, with lines above it; elsewhere there are only the lines."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.bar: Any = None

    def draw_on(self, console: Any) -> Any:
        """What is drawn, by rich: it can be started and stopped."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console

            self.bar = self.draw_on(Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def note(self, text: str) -> None:
        """Say something that is worth a line of its own."""
        if self.quiet:
            return
        if self.bar:
            self.bar.console.print(visible(text, keep="\n"), highlight=False, markup=False)
        else:
            say(text)


class TrainingProgress(LiveDisplay):
    """Shows steps as they come; without a terminal it speaks only at evaluations."""

    def __init__(self, title: str, *, quiet: bool = False, best: Callable[[float], str] = "best {:.2f}".format) -> None:
        super().__init__(quiet=quiet)
        self.title, self.best = title, best
        self.task: Any = None
        self.due = 0.0

    def draw_on(self, console: Any) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = BarColumn(bar_width=_BAR), TextColumn("{task.fields[state]}", markup=False)
        return Progress(*columns, console=console)

    def step(self, step: Any, progress: Any) -> None:
        """One optimiser step; it is shown now and then, as the losses of a GPU are waited for when they are read."""
        if time.monotonic() >= self.due:
            self._show(step, progress)

    def evaluated(self, step: Any, progress: Any, score: float | None) -> None:
        """A step after which the weights were scored; without a terminal it gets a line."""
        self._show(step, progress, with_line=True)

    def _show(self, step: Any, progress: Any, *, with_line: bool = False) -> None:
        """Speed and ETA go by the time of the fitting, which begins with its first step."""
        if self.quiet:
            return
        self.due = time.monotonic() + _SHOWN_EVERY
        speed = progress.pieces / max(1e-6, progress.seconds)
        best = self.best(progress.best) if math.isfinite(progress.best) else ""
        left = (step.total - step.number) * progress.seconds / max(1, step.number)
        parts = f"loss {step.loss:.4f}", f"rate {step.rate:.1e}", f"{speed:,.0f} pieces/s", best
        if self.bar:
            loss, rate, pace, best = parts
            self._draw(step, [f"ETA {clock_time(left)}", best, loss, pace, rate, f"for {clock_time(progress.seconds)}"])
        elif with_line:
            state = " ".join(filter(None, parts))
            self.note(f"{self.title}: step {step.number}/{step.total} {state} ETA {left:.0f} s")

    def _draw(self, step: Any, parts: Sequence[str]) -> None:
        """The bar, and beside it as much as the terminal has room for, the most telling first."""
        if self.task is None:
            self.note(self.title)
            self.task = self.bar.add_task("", total=step.total, completed=step.number - 1, state="")
        text = f"{step.number}/{step.total}"
        for part in filter(None, parts):
            if len(text) + 2 + len(part) <= self.bar.console.width - _BAR - 2:
                text += f"  {part}"
        self.bar.update(self.task, completed=step.number, state=text)


def clock_time(seconds: float) -> str:
    """1 h 02 min, 3 min 20 s, 12 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def unmarked(title: str) -> str:
    """A title for a bar, in which [brackets] are brackets."""
    from rich.markup import escape

    return escape(visible(title))
