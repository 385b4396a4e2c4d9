"""Progress of long work: a bar with ETA on a terminal, lines elsewhere."""

import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from danseo.display.escaping import get_last_print_time, say, visible

MOST_SILENT = 9.0  # seconds between two lines, at most
_SHOWN_EVERY = 0.2  # seconds
_BAR_AFTER = 3.0  # seconds, on a terminal
_BAR = 20  # characters


class Reminder:
    """Call a function from a thread whenever no line was printed for some seconds."""

    def __init__(self, remind: Callable[[], None], seconds: float, first: float | None = None) -> None:
        self.remind, self.seconds, now = remind, seconds, time.monotonic()
        is_new = now - get_last_print_time() > 2 * seconds  # nothing was being done before
        first = seconds if first is None and is_new else first
        self.first = None if first is None else now + first
        self._ended = threading.Event()

    def is_due(self, early: float = 0.0) -> bool:
        """Return whether it is time for a line."""
        due = get_last_print_time() + self.seconds if self.first is None else self.first
        return time.monotonic() >= due - early

    def start(self) -> None:
        threading.Thread(target=self._watch, daemon=True, name="reminder").start()

    def stop(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            if self.is_due():
                self.first = None
                self.remind()


class Waiting:
    """Show that a computation is running, once it has taken a few seconds: a bar on a terminal, else a line at times.

    Call it with (done, total) where these are known; then the bar has an ETA.
    """

    def __init__(
        self, title: str, *, quiet: bool = False, after: float | None = None, every: float | None = None
    ) -> None:
        self.title, self.quiet = title, quiet
        self.start = time.monotonic()
        self.done = self.total = 0.0
        self.bar: Any = None
        after = _BAR_AFTER if after is None and sys.stderr.isatty() else after
        self.reminder = Reminder(self._show, MOST_SILENT if every is None else every, first=after)

    def __enter__(self) -> Self:
        if not self.quiet:
            self.reminder.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.reminder.stop()
        if self.bar:
            self.bar.stop()

    def __call__(self, done: float, total: float) -> None:
        """Report how much of the work is done."""
        self.done, self.total = done, total
        if self.bar:
            self.bar.update(self.bar.task_ids[0], completed=done, total=total)
        elif not self.quiet and 0 < done < total and self.reminder.is_due():
            self.reminder.first = None
            self._show()

    def _show(self) -> None:
        if self.bar:
            return
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            bar.add_task(escape_markup(self.title), total=self.total or None, completed=int(self.done))
            bar.start()
            self.bar = bar
        else:
            say(f"{self.title}: {_format_progress(self.done, self.total, time.monotonic() - self.start)}")


def _format_progress(done: float, total: float, seconds: float) -> str:
    """Return "25 %, ETA 3 s", or only the time if the total is unknown."""
    if 0 < done < total:
        return f"{100 * done / total:.0f} %, ETA {seconds * (total - done) / done:.0f} s"
    return (f"{done:,} done, " if done and not total else "") + f"{format_duration(seconds)} so far"


class LiveDisplay:
    """A display on a terminal with lines above it; without a terminal, a line at least every ten seconds."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.bar: Any = None
        self.activity = ""
        self.reminder = Reminder(self._remind, MOST_SILENT)
        self.work_on("")

    def draw_on(self, console: Any) -> Any:
        """Return the rich display to start and stop."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console

            self.bar = self.draw_on(Console(stderr=True))
            self.bar.start()
        elif not self.quiet:
            self.reminder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reminder.stop()
        if self.bar:
            self._end_activity()
            self.bar.stop()

    def _end_activity(self) -> None:
        """Remove the bar of the activity."""

    def note(self, text: str) -> None:
        """Print a line."""
        if self.quiet:
            return
        if self.bar:
            self.bar.console.print(visible(text, keep="\n"), highlight=False, markup=False)
        else:
            say(text)

    def work_on(self, activity: str, total: int = 0) -> None:
        """Set the present activity and its number of examples; it is shown if it takes long."""
        self.activity, self.done, self.total, self.began = activity, 0, total, time.monotonic()

    def advance(self, count: int) -> None:
        """Report that so many more examples of the activity are done."""
        self.done += count

    def _remind(self) -> None:
        if self.activity:
            self.note(f"{self.activity}: {_format_progress(self.done, self.total, time.monotonic() - self.began)}")


class TrainingProgress(LiveDisplay):
    """The progress of a training: a bar, or a line at evaluations and every few seconds."""

    def __init__(self, title: str, *, quiet: bool = False, best: Callable[[float], str] = "best {:.2f}".format) -> None:
        self._activity_task: Any = None
        super().__init__(quiet=quiet)
        self.title, self.best = title, best
        self.task: Any = None
        self.due = 0.0

    def draw_on(self, console: Any) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = BarColumn(bar_width=_BAR), TextColumn("{task.fields[state]}", markup=False)
        return Progress(*columns, console=console)

    def work_on(self, activity: str, total: int = 0) -> None:
        """Show a bar with the activity until the next step."""
        super().work_on(activity, total)
        if self.bar:
            self._end_activity()
            self._activity_task = self.bar.add_task("", total=total or None, state=visible(activity))
        elif self.reminder.is_due(early=MOST_SILENT * 2 / 3):  # libraries may keep the thread from printing for seconds
            self.reminder.first = None
            self._remind()

    def advance(self, count: int) -> None:
        super().advance(count)
        if self.bar and self._activity_task is not None:
            self.bar.advance(self._activity_task, count)

    def _end_activity(self) -> None:
        if self._activity_task is not None:
            self.bar.remove_task(self._activity_task)
            self._activity_task = None

    def step(self, step: Any, progress: Any) -> None:
        """Show an optimizer step at times; reading the loss of a GPU waits for it."""
        if self.bar:
            self._end_activity()
        else:
            super().work_on(f"{self.title}: after step {step.number}/{step.total}")
        if time.monotonic() >= self.due:
            self._show(step, progress, with_line=self.reminder.is_due(early=1.0))

    def report_evaluation(self, step: Any, progress: Any, score: float | None) -> None:
        """Show a step after an evaluation; without a terminal it gets a line."""
        if self.bar:
            self._end_activity()
        self._show(step, progress, with_line=True)

    def _show(self, step: Any, progress: Any, *, with_line: bool = False) -> None:
        """Show speed and ETA by the time since the first step."""
        if self.quiet or not (self.bar or with_line):
            return
        self.due = time.monotonic() + _SHOWN_EVERY
        speed = progress.tokens / max(1e-6, progress.seconds)
        best = self.best(progress.best) if math.isfinite(progress.best) else ""
        left = (step.total - step.number) * progress.seconds / max(1, step.number)
        parts = f"loss {step.loss:.4f}", f"rate {step.rate:.1e}", f"{speed:,.0f} tokens/s", best
        if self.bar:
            loss, rate, pace, best = parts
            self._draw(
                step,
                [f"ETA {format_duration(left)}", best, loss, pace, rate, f"for {format_duration(progress.seconds)}"],
            )
        elif with_line:
            state = " ".join(filter(None, parts))
            self.note(f"{self.title}: step {step.number}/{step.total} {state} ETA {left:.0f} s")

    def _draw(self, step: Any, parts: Sequence[str]) -> None:
        """Draw the bar and as many of the parts as fit, the most important first."""
        if self.task is None:
            self.note(self.title)
            self.task = self.bar.add_task("", total=step.total, completed=step.number - 1, state="")
        text = f"{step.number}/{step.total}"
        for part in filter(None, parts):
            if len(text) + 2 + len(part) <= self.bar.console.width - _BAR - 2:
                text += f"  {part}"
        self.bar.update(self.task, completed=step.number, state=text)


def format_duration(seconds: float) -> str:
    """Return a duration such as 1 h 02 min, 3 min 20 s or 12 s."""
    total = round(seconds)
    if total >= 3600:
        return f"{total // 3600} h {total % 3600 // 60:02d} min"
    return f"{total // 60} min {total % 60:02d} s" if total >= 60 else f"{total} s"


def escape_markup(title: str) -> str:
    """Return a title for a bar in which [brackets] are no markup."""
    from rich.markup import escape

    return escape(visible(title))
