"""Every call of a language model, one line each: the cache, the record, and the way to go on after a kill."""

import hashlib
import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from danseo.errors import DataError, WorkFailed
from danseo.files import remedy, write_atomically
from danseo.models.llm.asking import Message, Schema


@dataclass(frozen=True)
class Request:
    """One question as it is sent."""

    guid: str
    messages: list[Message]
    tokens: int
    """Most tokens of the reply."""
    schema: Schema | None = None
    grammar: str | None = None
    choices: dict[str, str] | None = None
    """Label -> reply, where every reply is weighed instead of one written."""
    ends: str = "object"
    """Where a reply that nothing holds to a shape is over: after an object, a line, or lines before a blank one."""
    told: dict[str, str] | None = field(default=None)
    """Every possible reply by its label, for servers that tell what they did not write; replies do not depend on it."""

    def key(self, source: dict[str, Any]) -> str:
        """A hash of all that the reply depends on."""
        whole = {**source, **{name: value for name, value in asdict(self).items() if name not in ("guid", "told")}}
        return hashlib.sha256(json.dumps(whole, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Call:
    """What became of a request."""

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
    """Of the whole reply, where it is known."""
    weights: dict[str, float] | None = field(default=None)
    """Label -> log-probability of its reply, where all were weighed."""


class Calls:
    """The calls of a run; where several processes or threads add lines, each is written at once."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.known = path, dict[str, Call]()
        self._lock = threading.Lock()
        if path and path.is_file():
            self._take_up(path)

    def _take_up(self, path: Path) -> None:
        """The calls of an earlier start; a line that a kill cut off goes."""
        content = path.read_bytes()
        whole, _, rest = content.rpartition(b"\n")
        if rest:
            write_atomically(path, whole + b"\n" if whole else b"")
        for number, line in enumerate(whole.decode("utf-8", "replace").split("\n") if whole else (), 1):
            try:
                call = Call(**json.loads(line))
            except (ValueError, TypeError):
                raise DataError(f"{path}, line {number}: not a call; remove the line, or the whole run") from None
            self.known[call.key] = call

    def add(self, call: Call) -> None:
        """Remember a call, on disk first."""
        with self._lock:
            if self.path:
                try:
                    with self.path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(call), ensure_ascii=False, allow_nan=False) + "\n")
                except OSError as error:
                    raise WorkFailed(f"{self.path} cannot be written: {error.strerror}; {remedy(error)}") from None
            self.known[call.key] = call

    @property
    def tokens(self) -> int:
        """All tokens that were read and written so far."""
        return sum_tokens(self.known.values())


def sum_tokens(calls: Iterable[Call]) -> int:
    """All tokens that were read and written."""
    return sum(call.prompt_tokens + call.reply_tokens for call in calls)
