"""Applications on a free port of loopback, for tests with real requests."""

import socket
import threading
import time
from http.client import HTTPConnection
from typing import Any

import uvicorn


class LoopbackServer:
    """Runs an ASGI application, or a server of one, in a thread."""

    def __init__(self, app: Any, **options: Any) -> None:
        is_server = isinstance(app, uvicorn.Server)
        self.server = app if is_server else uvicorn.Server(uvicorn.Config(app, log_level="critical", **options))
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self.port = self.address[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> tuple[int, dict, str]:
        """Return the status, the headers and the text of a response."""
        connection = HTTPConnection(*self.address, timeout=60)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        result = response.status, {key.lower(): value for key, value in response.getheaders()}, response.read().decode()
        connection.close()
        return result

    def end(self) -> float:
        """Stop the server; return the seconds that it took."""
        start = time.monotonic()
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()
        return time.monotonic() - start
