"""danseo serve: open the model, say where, answer until told to stop."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from danseo.display.escaping import say
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.models.protocol import Loading
from danseo.predict.opening import Opened, open_model

_GRACE = 30  # seconds that answers on their way have at the end
_OPTIONS: dict[str, Any] = {
    "log_level": "error",
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "ws": "none",
    "lifespan": "on",
    "timeout_keep_alive": 60,
    "timeout_graceful_shutdown": _GRACE,
}


@dataclass(frozen=True)
class Ready:
    """A model that is open, and where it will answer."""

    opened: Opened
    server: Any
    listening: socket.socket
    address: str

    def run(self) -> None:
        """Answer until told to stop; what was asked before is answered."""
        self.server.run(sockets=[self.listening])


def prepare(path: Path, *, host: str, port: int, loading: Loading, limits: Mapping[str, int]) -> Ready:
    """Open the model and take the port; whatever is wrong shows here."""
    require("starlette", "uvicorn")
    import uvicorn

    from danseo.serve.app import Limits, make_app

    opened = open_model(path, loading)
    names = ["127.0.0.1", "localhost", "[::1]", host] if is_loopback(host) else ["*"]
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise DanseoError(f"{host}:{port} cannot be used: {error.strerror}; choose another --port or --host") from None
    shown = f"[{host}]" if ":" in host else host
    app = make_app(opened, Limits(**limits), names)
    config = uvicorn.Config(app, **_OPTIONS)
    return Ready(opened, uvicorn.Server(config), listening, f"http://{shown}:{listening.getsockname()[1]}/")


def serve(path: Path, *, host: str, port: int, loading: Loading, limits: Mapping[str, int]) -> None:
    """Answer over HTTP until interrupted."""
    ready = prepare(path, host=host, port=port, loading=loading, limits=limits)
    say(f"{ready.opened.name} ({ready.opened.task.name}) answers at {ready.address}; Ctrl-C ends it")
    if not is_loopback(host):
        say("WARNING: whoever reaches this machine can ask; there is no password, so put a proxy before it")
    ready.run()


@contextmanager
def beside(path: Path, host: str = "127.0.0.1") -> Iterator[Ready]:
    """The model answers in a thread, on a free port, as long as the block goes on."""
    ready = prepare(path, host=host, port=0, loading=Loading(), limits={})
    thread = threading.Thread(target=ready.run, name="danseo-model", daemon=True)
    thread.start()
    try:
        yield ready
    finally:
        ready.server.should_exit = True
        thread.join(_GRACE)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
