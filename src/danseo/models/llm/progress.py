"""Report progress while a language model is loaded or prompted; needs no torch."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from danseo.display.escaping import get_last_print_time
from danseo.display.progress import format_duration
from danseo.models.llm.backend import ModelCall
from danseo.models.llm.reply import is_complete

_SHOWN_EVERY = 8.0  # seconds


class ProgressReporter:
    """Reports from a thread every few seconds what is being done."""

    def __init__(self, note: Callable[[str], None], activity: str) -> None:
        self.note = note
        self.started = time.monotonic()
        self.describe: Callable[[], str] = lambda: (
            f"{activity}: {format_duration(time.monotonic() - self.started)} so far"
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True, name="progress")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def __call__(self, pace: Any) -> None:
        """Report the pace of replies from now on; the first time at once, because a grammar may take long to build."""
        is_first, self.describe = self.describe != pace.line, pace.line
        if is_first and time.monotonic() - get_last_print_time() > _SHOWN_EVERY / 3:
            self.note(self.describe())

    def count(self, what: str, done: int, total: int, started: float) -> None:
        """Report a count of a total, such as tokenized prompts."""
        left = (time.monotonic() - started) * (total - done) / max(1, done)
        self.describe = lambda: f"{what}: {done:,}/{total:,}, ETA {format_duration(left)}"

    def _report(self) -> None:
        while not self._ended.wait(_SHOWN_EVERY):
            self.note(self.describe())


@dataclass
class PromptingProgress:
    """The progress of prompting."""

    total: int
    known: int
    allowed: int
    """Maximum number of calls of this command."""
    processes: int = 1
    """Number of processes; the counts are those of one."""
    fresh: int = 0
    tokens: int = 0
    unreadable: int = 0
    started: float = field(default_factory=time.monotonic)

    def count(self, call: ModelCall) -> None:
        """Count a reply."""
        self.fresh += 1
        self.tokens += call.prompt_tokens + call.reply_tokens
        self.unreadable += call.label_logprobs is None and not is_complete(call.text)

    def line(self) -> str:
        """Return the progress as text."""
        seconds = max(1e-9, time.monotonic() - self.started)
        done = self.known + self.fresh
        left = (self.allowed - self.fresh) * seconds / self.fresh if self.fresh else None
        who = " of this process" if self.processes > 1 else ""
        return (
            f"{done}/{self.total} replies{who}, {self.tokens / seconds:,.0f} tokens/s, {self.unreadable} without a "
            f"whole object, ETA {'unknown' if left is None else format_duration(left)}"
        )
