"""Where words come from: what servers and models here have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from danseo.models.llm.asking import Message
from danseo.models.llm.calls import Call, Request

OnCall = Callable[[Call], None]
"""Called as soon as a reply is there; it may raise to stop."""


class Source(Protocol):
    """Answers requests, in whatever order is best."""

    weighs: bool
    """Whether every reply of a short list can be weighed."""

    def identity(self) -> dict[str, Any]:
        """What replies depend on besides the request."""

    def ready(self) -> dict[str, Any]:
        """Get ready to answer; facts for the record come out."""

    def room(self) -> int | None:
        """Most tokens of a prompt and its reply together; None where it is not known."""

    def count(self, messages: Sequence[Message]) -> int:
        """The tokens of a prompt; servers that do not tell are guessed."""

    def answer(self, requests: Sequence[Request], keys: Sequence[str], on_call: OnCall) -> list[str]:
        """Answer all requests; what went wrong for good comes back as a line each."""


@dataclass(frozen=True)
class Limits:
    """What a command may spend."""

    calls: int | None = None
    tokens: int | None = None
    at_a_time: int = 8
    key_name: str = "DANSEO_API_KEY"
    """The environment variable that holds the server's key."""
    timeout: float = 120.0
