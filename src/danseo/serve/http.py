"""The HTTP server of `serve` and `board`: bounded requests, readable rejections and a quick shutdown."""

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_HEADERS = 100
MAX_HEAD_BYTES = 1 << 16
"""Bytes of a request line with its headers."""
MAX_PIPELINED = 100
"""Requests of a connection that wait for the response to an earlier one."""
_MAX_DISCARDED_BYTES = 1 << 28
"""Bytes of a rejected body: most clients read the response only after sending all."""
_DISCARD_SECONDS = 30.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def make_server(app: ASGIApp, **options: Any) -> uvicorn.Server:
    """Return a server of the application; the options are those of uvicorn.Config."""
    usual = {"access_log": False, "server_header": False, "proxy_headers": False, "ws": "none"}
    limits = {"http": _make_protocol_class(), "h11_max_incomplete_event_size": MAX_HEAD_BYTES}
    return uvicorn.Server(uvicorn.Config(BodyDiscarder(app), **{**usual, **limits, **options}))


class BodyDiscarder:
    """Wraps an application: reads and discards the unread rest of a request after the response.

    A connection that is closed before resets, and the client never sees why it was refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]} if scope["type"] == "http" else set()
        if not names & {b"content-length", b"transfer-encoding"}:
            return await self.app(scope, receive, send)
        is_unread, is_announced = True, b"expect" in names

        async def receive_part() -> Message:
            nonlocal is_unread, is_announced
            is_announced = False  # receive() sends 100 Continue
            message = await receive()
            is_unread = bool(message.get("more_body", False))
            return message

        async def send_part(message: Message) -> None:
            if is_unread and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            if is_unread and message["type"] == "http.response.body" and not message.get("more_body"):
                await send({**message, "more_body": True})
                if not is_announced:
                    await _discard_body(receive)
                message = {**message, "body": b""}
            await send(message)

        return await self.app(scope, receive_part, send_part)


async def _discard_body(receive: Receive) -> None:
    """Read the rest of a body, within limits."""
    size, more = 0, True
    try:
        async with asyncio.timeout(_DISCARD_SECONDS):
            while more and size <= _MAX_DISCARDED_BYTES:
                message = await receive()
                size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    except TimeoutError:
        pass


class _AbortingProtocol:
    """A connection that does not delay the shutdown while its client neither sends nor reads."""

    cycle: Any
    flow: Any
    transport: Any

    def shutdown(self) -> None:
        cycle = self.cycle
        if cycle and not cycle.response_complete and (cycle.more_body or self.flow.write_paused):
            self.transport.abort()
        else:
            super().shutdown()  # type: ignore[misc]


class _BoundedProtocol(_AbortingProtocol):
    """A connection with bounded heads and pipelines; httptools itself accepts headers without end."""

    received = head_bytes = n_headers = 0
    """Bytes since the last complete head or part of a body; bytes and headers of the head so far."""
    is_complete = False
    open_cycles: tuple[Any, ...] = ()
    """The requests without a complete response."""

    def data_received(self, data: bytes) -> None:
        self.is_complete = False
        super().data_received(data)  # type: ignore[misc]
        self.received = 0 if self.is_complete else self.received + len(data)
        if self.received > MAX_HEAD_BYTES:  # a header that has no end is not yet counted as one
            self._reject()

    def on_message_begin(self) -> None:
        self.head_bytes = self.n_headers = 0
        super().on_message_begin()  # type: ignore[misc]

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)  # type: ignore[misc]

    def on_header(self, name: bytes, value: bytes) -> None:
        self.n_headers += 1
        self._count(len(name) + len(value))
        super().on_header(name, value)  # type: ignore[misc]

    def on_headers_complete(self) -> None:
        self.is_complete = True
        self.open_cycles = tuple(each for each in self.open_cycles if not each.response_complete)
        if len(self.open_cycles) >= MAX_PIPELINED:
            self.transport.close()
            raise ValueError("too many requests before the first answer")
        super().on_headers_complete()  # type: ignore[misc]
        self.open_cycles += (self.cycle,)

    def on_body(self, body: bytes) -> None:
        self.is_complete = True
        super().on_body(body)  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self.open_cycles:  # uvicorn ends only the last one, and would write to the others
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)  # type: ignore[misc]

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)  # type: ignore[misc]

    def _count(self, size: int) -> None:
        self.head_bytes += size
        if self.head_bytes > MAX_HEAD_BYTES or self.n_headers > MAX_HEADERS:
            self._reject()
            raise ValueError("the head of the request is too large")  # ends the parser

    def _reject(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()


def _make_protocol_class() -> type:
    """Return the protocol class: httptools if installed, else h11, which bounds requests itself."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        return type("H11", (_AbortingProtocol, H11Protocol), {})
    return type("HttpTools", (_BoundedProtocol, HttpToolsProtocol), {})
