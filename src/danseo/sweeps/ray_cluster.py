"""Getting to a Ray cluster, or finding out quickly that there is none."""

import os
import socket
from typing import Any

from danseo.errors import DanseoError
from danseo.extras import require

_ANSWER_SECONDS = 5.0
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # the preface, and empty settings


def connect(address: str | None, slots: int | None = None) -> Any:
    """Ray, connected to the cluster, or to a small one of our own on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report home
    require("ray")
    import ray

    options: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if address is None:
        options |= {"num_cpus": slots or os.cpu_count(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address=address or "local", **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DanseoError(f"no Ray cluster at {address or 'this machine'}: {reason}") from None
    return ray


def check_address(address: str) -> None:
    """Refuse an address where nothing answers as Ray does, in seconds instead of Ray's minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise DanseoError(f"--ray-address {address}: should be host:port, ray://host:port or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(_HTTP2_HELLO)
            answer = connection.recv(9)
    except OSError as error:
        raise DanseoError(f"--ray-address {address}: nothing answers there ({error}); is the cluster up?") from None
    if len(answer) < 4 or answer[3] != 4:  # gRPC answers with its own settings
        raise DanseoError(f"--ray-address {address}: something answers there, but it is no Ray cluster")
