"""danseo serve: open the model, say where, answer until told to stop."""

from ipaddress import ip_address
from pathlib import Path

from danseo.display.escaping import say
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.models.protocol import Loading
from danseo.predict.opening import open_model

_GRACE = 30  # seconds that answers on their way have at the end


def serve(path: Path, *, host: str, port: int, loading: Loading, limits: dict[str, int]) -> None:
    """Answer over HTTP until interrupted; what was asked before the end is answered."""
    require("starlette", "uvicorn")
    import socket

    import uvicorn

    from danseo.serve.app import Limits, make_app

    opened = open_model(path, loading)
    names = ["127.0.0.1", "localhost", "[::1]", host] if is_loopback(host) else ["*"]
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise DanseoError(f"{host}:{port} cannot be used: {error.strerror}; choose another --port or --host") from None
    shown = f"[{host}]" if ":" in host else host
    say(f"{opened.name} ({opened.task.name}) answers at http://{shown}:{listening.getsockname()[1]}/; Ctrl-C ends it")
    if not is_loopback(host):
        say("WARNING: whoever reaches this machine can ask; there is no password, so put a proxy before it")
    options = {"log_level": "error", "timeout_graceful_shutdown": _GRACE, "server_header": False, "lifespan": "on"}
    config = uvicorn.Config(make_app(opened, Limits(**limits), names), **options)  # type: ignore[arg-type]
    uvicorn.Server(config).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
