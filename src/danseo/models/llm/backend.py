"""The interface of backends, their requests, the log of calls (from which a killed run resumes), and progress."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from danseo.display.escaping import get_last_print_time
from danseo.display.progress import format_duration
from danseo.errors import DataError, WorkFailed
from danseo.files import suggest_remedy, write_atomically
from danseo.models.llm.formats.base import Message, Schema
from danseo.models.llm.reply import is_complete


@dataclass(frozen=True)
class PromptRequest:
    """One request to a language model."""

    guid: str
    messages: list[Message]
    tokens: int
    """Maximum number of tokens of the reply."""
    schema: Schema | None = None
    grammar: str | None = None
    choices: dict[str, str] | None = None
    """Label -> reply, if label probabilities are compared instead of generating text."""
    ends: str = "object"
    """Where an unconstrained reply ends: after an object, a line, or before an empty line."""
    label_replies: dict[str, str] | None = field(default=None)
    """Label -> reply, for servers that return top_logprobs; replies do not depend on it."""

    def key(self, backend: dict[str, Any]) -> str:
        """Return a hash of all that the reply depends on."""
        whole = {
            **backend,
            **{name: value for name, value in asdict(self).items() if name not in ("guid", "label_replies")},
        }
        return hashlib.sha256(json.dumps(whole, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class ModelCall:
    """The result of a request."""

    key: str
    guid: str
    text: str
    finish: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reply_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1
    logprob: float | None = None
    """Log-probability of the whole reply, if known."""
    label_logprobs: dict[str, float] | None = field(default=None)
    """Label -> log-probability of its reply, if they were compared."""


class CallLog:
    """The calls of a run; every call is one line, written at once."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.known = path, dict[str, ModelCall]()
        self._lock = threading.Lock()
        if path and path.is_file():
            self._take_up(path)

    def _take_up(self, path: Path) -> None:
        """Read the calls of an earlier start; drop an incomplete last line."""
        content = path.read_bytes()
        whole, _, rest = content.rpartition(b"\n")
        if rest:
            write_atomically(path, whole + b"\n" if whole else b"")
        for number, line in enumerate(whole.decode("utf-8", "replace").split("\n") if whole else (), 1):
            try:
                call = ModelCall(**json.loads(line))
            except (ValueError, TypeError, RecursionError):
                call = None
            if call is None or not all(isinstance(part, str) for part in (call.key, call.guid, call.text)):
                raise DataError(f"{path}, line {number}: not a call; remove the line, or the whole run") from None
            self.known[call.key] = call

    def add(self, call: ModelCall) -> None:
        """Add a call, first on disk."""
        with self._lock:
            if self.path:
                try:
                    with self.path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(call), ensure_ascii=False, allow_nan=False) + "\n")
                except OSError as error:
                    raise WorkFailed(
                        f"{self.path} cannot be written: {error.strerror}; {suggest_remedy(error)}"
                    ) from None
                except ValueError:
                    raise WorkFailed(f"the reply to {call.guid} has probabilities that are no numbers") from None
            self.known[call.key] = call

    def add_others(self, calls: Iterable[ModelCall], *, writes: bool) -> None:
        """Add the calls of other processes; the first process also writes them."""
        for call in calls:
            if call.key not in self.known:
                if writes:
                    self.add(call)
                self.known[call.key] = call

    @property
    def tokens(self) -> int:
        """Number of prompt and reply tokens so far."""
        return sum_tokens(self.known.values())


def sum_tokens(calls: Iterable[ModelCall]) -> int:
    """Return the number of prompt and reply tokens."""
    return sum(call.prompt_tokens + call.reply_tokens for call in calls)


def mean_tokens(calls: Collection[ModelCall]) -> dict[str, float]:
    """Return the mean number of prompt, cached and completion tokens; empty if no call has any."""
    if not sum_tokens(calls):
        return {}
    names = {"prompt": "prompt_tokens", "cached": "cached_tokens", "completion": "reply_tokens"}
    return {name: round(sum(getattr(c, field) for c in calls) / len(calls), 2) for name, field in names.items()}


OnCall = Callable[[ModelCall], None]
"""Called with every new call; it may raise to stop."""


class Backend(Protocol):
    """A source of replies."""

    scores_labels: bool
    """Whether it can compute the probability of every reply of a list."""
    reasons: bool
    """Whether the model reasons before it answers."""

    def identity(self) -> dict[str, Any]:
        """Return what replies depend on besides the request."""

    def prepare(self) -> dict[str, Any]:
        """Prepare for requests; return facts for environment.json."""

    def max_context(self) -> int | None:
        """Return the maximum number of tokens of prompt and reply; None if unknown."""

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the number of tokens of a prompt; servers estimate it."""

    def complete(self, requests: Sequence[PromptRequest], keys: Sequence[str], on_call: OnCall) -> list[str]:
        """Answer all requests; return a line for each that failed for good."""


@dataclass(frozen=True)
class CallLimits:
    """Limits of one command."""

    calls: int | None = None
    tokens: int | None = None
    concurrency: int = 8
    key_name: str = "DANSEO_API_KEY"
    """Environment variable with the server's API key."""
    timeout: float = 120.0


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
