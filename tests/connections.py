"""Attempts of Python processes to contact another machine: written down, and refused."""

from pathlib import Path

WATCH = """
import os, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # others are sockets of this machine
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    if isinstance(host, str) and host not in ("", "localhost", "::1") and not host.startswith("127."):
        with open(LOG, "a") as file:
            print(os.environ.get("COMMAND"), event, host, file=file)
        raise ConnectionRefusedError(f"{host} is not this machine")

sys.addaudithook(watch)
"""


def watch_connections(packages: Path, folder: Path) -> None:
    """Let every process of an environment, whose packages are there, report its attempts to the folder."""
    (packages / "watch_connections.py").write_text(f"LOG = {str(folder / 'attempts.txt')!r}\n{WATCH}")
    (packages / "a.pth").write_text("import watch_connections\n")


def read_attempts(folder: Path) -> list[str]:
    """Return what was tried, and forget it."""
    log = folder / "attempts.txt"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines
