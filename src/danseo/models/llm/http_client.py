"""HTTP calls with limits: a deadline for the whole call, a largest reply, no compressed replies, no redirects."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from danseo.errors import DanseoError, NetworkError

_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class HttpReply:
    """The status, headers and body of a reply."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The body as text for messages, whatever its bytes are."""
        return self.content.decode("utf-8", "replace")


def http() -> Any:
    """Import the HTTP library that huggingface_hub brings, under either of its names."""
    try:
        import httpx2 as library
    except ModuleNotFoundError:
        try:
            import httpx as library  # type: ignore[no-redef]
        except ModuleNotFoundError:
            raise DanseoError("no httpx2 or httpx here; run: pip install -U huggingface_hub") from None
    return library


class HttpClient:
    """Sends requests to a server; may be used by several threads at once.

    Redirects are not followed: the headers may contain an API key, which goes only to the given address.
    The calls run in an event loop, since only there a deadline ends a call at any point, also inside its headers.
    """

    def __init__(self, headers: Mapping[str, str], timeout: float, *, trust_env: bool) -> None:
        self.timeout, self._trust_env = timeout, trust_env
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._client: Any = None

    def post(self, url: str, body: Mapping[str, Any], max_bytes: int) -> HttpReply:
        """Return the reply, or raise NetworkError; the message may hold what the server wrote."""
        return self._call("POST", url, max_bytes, json=body)

    def get(self, url: str, max_bytes: int) -> HttpReply:
        """Return the reply to a GET, or raise NetworkError."""
        return self._call("GET", url, max_bytes)

    def _call(self, method: str, url: str, max_bytes: int, **options: Any) -> HttpReply:
        library = http()
        call = asyncio.run_coroutine_threadsafe(self._send(method, url, max_bytes, options), _event_loop())
        try:
            return call.result()
        except (TimeoutError, library.TimeoutException):
            raise NetworkError(f"took longer than {self.timeout:g} s") from None
        except (library.HTTPError, library.InvalidURL, OSError, ValueError) as error:
            raise NetworkError(f"cannot be reached ({error or type(error).__name__}); is it running?") from None
        finally:
            call.cancel()  # after an interrupt; otherwise the call has ended

    async def _send(self, method: str, url: str, max_bytes: int, options: Mapping[str, Any]) -> HttpReply:
        async with asyncio.timeout(self.timeout), self._open().stream(method, url, **options) as reply:
            encoding = reply.headers.get("content-encoding", "identity").strip().lower()
            if encoding not in ("", "identity"):
                raise NetworkError("sends a compressed reply, which was not asked for")
            content = bytearray()
            async for part in reply.aiter_raw():
                content += part
                if len(content) > max_bytes:
                    raise NetworkError(f"sends more than {max_bytes:,} bytes for one reply")
            return HttpReply(reply.status_code, reply.headers, bytes(content))

    def _open(self) -> Any:
        """Return the client of the library, made at the first call inside the event loop."""
        if self._client is None:
            library = http()
            timeout = library.Timeout(self.timeout, connect=min(_CONNECT_SECONDS, self.timeout))
            self._client = library.AsyncClient(
                headers=self._headers, timeout=timeout, trust_env=self._trust_env, follow_redirects=False
            )
        return self._client


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all calls, which runs in its own thread and ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="http", daemon=True).start()
    return loop
