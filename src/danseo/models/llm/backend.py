"""The interface of backends, their requests, and the log of calls, from which a killed run resumes."""

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from danseo.errors import DataError, WorkFailed
from danseo.files import suggest_remedy, write_atomically
from danseo.models.llm.formats.base import Message, Schema


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
