"""Who may ask what: only GET and HEAD, only under the names of this machine, beyond loopback only with the token."""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """Wraps an application: refuses what is not allowed, and puts the headers on every answer."""

    def __init__(self, app: App, hosts: Sequence[str], token: str | None = None) -> None:
        self.app, self.hosts, self.token = app, tuple(hosts), token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        if refusal := self.refusal(scope):
            return await _refuse(guarded, *refusal)
        return await self.app(scope, receive, guarded)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why not, as a status and a line; None where all is well."""
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this board only shows: GET and HEAD"
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_known(headers.get(b"host", "")):
            return 421, "this board is not served under that name"
        if self.token and not hmac.compare_digest(self._given(scope, headers).encode(), self.token.encode()):
            return 401, "the token is missing or wrong; use the address that `danseo board` printed"
        return None

    def _is_known(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") and ":" in host else host
        return name.lower() in self.hosts

    def _given(self, scope: Scope, headers: dict[bytes, str]) -> str:
        bearer = headers.get(b"authorization", "")
        if bearer.lower().startswith("bearer "):
            return bearer[7:].strip()
        asked: str = scope.get("query_string", b"").decode("latin-1")
        return parse_qs(asked).get("token", [""])[0]


async def _refuse(send: Send, status: int, line: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers += [(b"allow", b"GET, HEAD")] if status == 405 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": line.encode() + b"\n"})
