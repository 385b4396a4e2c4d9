"""Serve a model over HTTP (`danseo serve`): load it, bind the port, run until interrupted."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from danseo.display.escaping import say
from danseo.display.progress import Waiting
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.inference.predict import LoadedModel, open_model
from danseo.language import _
from danseo.models.base import LoadOptions

_GRACE = 30  # seconds for unfinished responses at shutdown
_OPTIONS: dict[str, Any] = {
    "log_level": "error",
    "lifespan": "on",
    "timeout_keep_alive": 60,
    "timeout_graceful_shutdown": _GRACE,
}


@dataclass(frozen=True)
class ModelServer:
    """A loaded model with its server and address."""

    loaded: LoadedModel
    uvicorn_server: Any
    listener: socket.socket
    address: str

    def run(self) -> None:
        """Serve until stopped; pending requests are finished."""
        self.uvicorn_server.run(sockets=[self.listener])


def prepare_server(
    path: Path, *, host: str, port: int, loading: LoadOptions, limits: Mapping[str, int], fix_particles: bool = False
) -> ModelServer:
    """Load the model and bind the port; raise if either fails."""
    require("starlette", "uvicorn")
    from danseo.serve.app import Limits, make_app
    from danseo.serve.http import make_server

    loaded = open_model(path, loading, fix_particles=fix_particles)
    names = ["127.0.0.1", "localhost", "[::1]", host] if is_loopback(host) else ["*"]
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise DanseoError(
            _("{host}:{port} cannot be used: {reason}; choose another --port or --host").format(
                host=host, port=port, reason=error.strerror
            )
        ) from None
    written_host = f"[{host}]" if ":" in host else host
    server = make_server(make_app(loaded, Limits(**limits), names), **_OPTIONS)
    return ModelServer(loaded, server, listener, f"http://{written_host}:{listener.getsockname()[1]}/")


def serve_model(path: Path, *, host: str, **options: Any) -> None:
    """Serve a model over HTTP until interrupted; the options are those of `prepare_server`."""
    with Waiting(f"loading {path}"):
        server = prepare_server(path, host=host, **options)
    say(f"{server.loaded.name} ({server.loaded.task.name}) is served at {server.address}; Ctrl-C stops it")
    if not is_loopback(host):
        say("WARNING: everyone who can reach this machine can use the model; there is no password, so use a proxy")
    server.run()


@contextmanager
def serve_in_thread(path: Path, host: str = "127.0.0.1") -> Iterator[ModelServer]:
    """Serve a model in a thread, on a free port, until the block ends."""
    server = prepare_server(path, host=host, port=0, loading=LoadOptions(), limits={})
    thread = threading.Thread(target=server.run, name="danseo-model", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.uvicorn_server.should_exit = True
        thread.join(_GRACE)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
