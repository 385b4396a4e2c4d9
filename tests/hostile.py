"""A Hub that does wrong, on 127.0.0.1: for tests and for bench/attack.py."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = b"<!DOCTYPE html><html><body>Please log in to the network.</body></html>"
HEADERS = {"ETag": '"0123456789abcdef"', "X-Repo-Commit": "0" * 40}


@dataclass
class Hub:
    """What is served as org/tiny, and what goes wrong: one of FAULTS."""

    folder: Path
    fault: str = ""
    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)


def silent(handler: BaseHTTPRequestHandler, hub: Hub, content: bytes) -> None:
    """Heads are answered and contents never come."""
    hub.ended.wait()


def drip(handler: BaseHTTPRequestHandler, hub: Hub, content: bytes) -> None:
    """A byte a second."""
    start(handler, 200, {**HEADERS, "Content-Length": str(len(content))})
    for position in range(len(content)):
        handler.wfile.write(content[position : position + 1])
        handler.wfile.flush()
        if hub.ended.wait(1.0):
            return


def portal(handler: BaseHTTPRequestHandler, hub: Hub, content: bytes) -> None:
    """A page to log in, with all the headers of the Hub: some networks answer in its name."""
    whole(handler, 200, PAGE, {"Content-Type": "text/plain"})


def cut(handler: BaseHTTPRequestHandler, hub: Hub, content: bytes) -> None:
    """Half of it."""
    start(handler, 200, {**HEADERS, "Content-Length": str(len(content))})
    handler.wfile.write(content[: len(content) // 2])


def trouble(handler: BaseHTTPRequestHandler, hub: Hub, content: bytes) -> None:
    """The Hub is ill."""
    whole(handler, 503, b"no")


def noise(handler: BaseHTTPRequestHandler, hub: Hub, content: bytes) -> None:
    """What is no HTTP."""
    handler.wfile.write(bytes(range(256)) * 16)


def circle(handler: BaseHTTPRequestHandler, hub: Hub, content: bytes) -> None:
    """Always elsewhere."""
    whole(handler, 302, b"", {"Location": handler.path + "?again"})


FAULTS: dict[str, Callable[[BaseHTTPRequestHandler, Hub, bytes], None]] = {
    each.__name__: each for each in (silent, drip, portal, cut, trouble, noise, circle)
}
"""The eighth is a Hub that is not there: a closed port."""


def start(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
    handler.send_response(status)
    for key, value in headers.items():
        handler.send_header(key, value)
    handler.end_headers()


def whole(handler: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
    start(handler, status, {**HEADERS, "Content-Length": str(len(content)), **(headers or {})})
    if handler.command == "GET":
        handler.wfile.write(content)


def handler_of(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.respond()

        def do_GET(self) -> None:
            with suppress(OSError):  # the caller has left
                self.respond()

        def respond(self) -> None:
            file = hub.folder / self.path.split("?")[0].rpartition("/main/")[2].rpartition("/")[2]
            content = file.read_bytes() if file.is_file() else b""
            is_head = self.command == "HEAD" and hub.fault not in ("trouble", "noise", "circle")
            if not content:
                whole(self, 404, b"", {"X-Error-Code": "EntryNotFound"})
            elif hub.fault and not is_head:
                FAULTS[hub.fault](self, hub, content)
            else:
                size = len(PAGE) if hub.fault == "portal" else len(content)
                start(self, 200, {**HEADERS, "Content-Length": str(size)})
                if self.command == "GET":
                    self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def serving(folder: Path, fault: str = "") -> Iterator[Hub]:
    """The Hub with a fault, until the block ends."""
    hub = Hub(folder, fault)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def closed_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def deaf() -> Iterator[str]:
    """An address that takes calls and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            with suppress(OSError):
                while True:
                    taken.append(server.accept()[0])

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for connection in taken:
            connection.close()
