"""danseo board: start it, and say where it is."""

import secrets
import socket
from pathlib import Path
from urllib.parse import urlencode

from danseo.board.app import make_app
from danseo.board.guard import is_loopback
from danseo.board.store import store_of
from danseo.display.escaping import say
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.serve.command import beside


def serve_board(
    root: Path, data_dir: str | None, host: str, port: int, token: str | None = None, model: Path | None = None
) -> None:
    """Serve until interrupted, with a model beside it where one is named; the board itself only shows."""
    require("starlette", "uvicorn", extra="board")
    if model is None:
        return _serve(root, data_dir, host, port, token)
    if not is_loopback(host):
        raise DanseoError("--model answers everybody who reaches it, without a token; leave out --host, or --model")
    with beside(model, host) as ready:
        say(f"{ready.opened.name} ({ready.opened.task.name}) answers at {ready.address}, linked as “Try the model”")
        _serve(root, data_dir, host, port, token, ready.address)


def _serve(
    root: Path, data_dir: str | None, host: str, port: int, token: str | None, model_address: str | None = None
) -> None:
    """The board alone; beyond loopback a token is required, and made where none is given."""
    import uvicorn

    if not is_loopback(host):
        token = token or secrets.token_urlsafe(24)
        say(f"WARNING: {host} can be reached from other machines; everybody with the token can read all runs")
    listener = _bound(host, port)
    known = (host, f"[{host}]", socket.gethostname(), socket.getfqdn(), *_own_addresses(host))
    app = make_app(root, data_dir, hosts=known, token=token, model_address=model_address, store=store_of(root))
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}/"
    say(f"the board of {root} is at {address}{'?' + urlencode({'token': token}) if token else ''} (Ctrl-C ends it)")
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


def _bound(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DanseoError(f"{host}:{port} cannot be used: {reason}; choose another --port or --host") from None
    return listener


def _own_addresses(host: str) -> list[str]:
    """The addresses of this machine, where all of them are listened on."""
    if host not in ("0.0.0.0", "::"):
        return []
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return []
    return [f"[{each}]" if ":" in each else each for each in sorted(found)]
