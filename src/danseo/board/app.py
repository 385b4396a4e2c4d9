"""The web application of the board: access rules, pages as HTML or JSON, and its server."""

import hashlib
import hmac
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

from danseo.board.pages import PageBuilder, make_live_status
from danseo.board.run_cache import RecordStore, RunCache, open_store
from danseo.display.escaping import say, to_json
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.language import LANGUAGES, _, choose_page_language
from danseo.report.html import read_asset
from danseo.serve.server import is_loopback, serve_in_thread

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
    "vary": "accept-language",
}


class AccessGuard:
    """Wraps an application: allows only GET and HEAD under known host names, with the token where it is required."""

    def __init__(self, app: App, hosts: Sequence[str], token: str | None = None) -> None:
        self.app, self.hosts, self.token = app, tuple(hosts), token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        if refusal := self.find_refusal(scope):
            return await _send_refusal(send_with_headers, *refusal)
        return await self.app(scope, receive, send_with_headers)

    def find_refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and message of a rejection, or None."""
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "the board is read-only: use GET or HEAD"
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_known(headers.get(b"host", "")):
            return 421, "the board is not served under this host name"
        if self.token and not hmac.compare_digest(self._read_token(scope, headers).encode(), self.token.encode()):
            return 401, "the token is missing or wrong; use the address that `danseo board` printed"
        return None

    def _is_known(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") and ":" in host else host
        return name.lower() in self.hosts

    def _read_token(self, scope: Scope, headers: dict[bytes, str]) -> str:
        bearer = headers.get(b"authorization", "")
        if bearer.lower().startswith("bearer "):
            return bearer[7:].strip()
        query: str = scope.get("query_string", b"").decode("latin-1")
        return parse_qs(query).get("token", [""])[0]


async def _send_refusal(send: Send, status: int, line: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers += [(b"allow", b"GET, HEAD")] if status == 405 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": line.encode() + b"\n"})


_ASSETS = {"style.css": "text/css", "page.js": "text/javascript", "board.js": "text/javascript"}


def make_app(
    root: Path,
    data_dir: str | None = None,
    *,
    hosts: tuple[str, ...] = (),
    token: str | None = None,
    model_address: str | None = None,
    store: RecordStore | None = None,
) -> AccessGuard:
    """Return the board of a folder of runs with its access rules."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    site = PageBuilder(RunCache(root, data_dir, store), token, model_address)
    site.html("runs", {})  # fills the cache before the first request

    def answer(request: Request, content: str, kind: str, status: int = 200) -> Response:
        body = content.encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        if tag in (request.headers.get("if-none-match") or ""):
            return Response(status_code=304, headers={"etag": tag})
        return Response(body, status, {"etag": tag}, media_type=f"{kind}; charset=utf-8")

    def page(request: Request) -> Response:
        """Return a page as HTML, or as JSON if the address ends in .json."""
        key = request.path_params.get("key", "") or "overview"
        given = request.query_params
        query = {name: given.getlist(name) for name in given if name not in ("token", "lang")}
        chosen = given.get("lang", "") if given.get("lang") in LANGUAGES else ""
        language = choose_page_language(chosen, request.headers.get("accept-language", ""))
        if key in _ASSETS:
            return answer(request, read_asset(key), _ASSETS[key])
        if key == "live.json":
            return answer(request, to_json(make_live_status(site.index.snapshot())), "application/json")
        if key.endswith(".json") and site.page(key, query) is None:
            found = site.page("overview" if key == "index.json" else key.removesuffix(".json"), query)
            if found:
                return answer(request, to_json(found.as_dict()), "application/json")
        text = site.html(key, query, language, chosen)
        return answer(request, text, "text/html") if text else answer(request, "no such page\n", "text/plain", 404)

    routes: list[Any] = [Route("/", page, methods=["GET"]), Route("/{key:path}", page, methods=["GET"])]
    return AccessGuard(Starlette(routes=routes), (*LOOPBACK, *(host.lower() for host in hosts)), token)


_GRACE = 5  # seconds for unfinished responses at shutdown


def serve_board(
    root: Path, data_dir: str | None, host: str, port: int, token: str | None = None, model: Path | None = None
) -> None:
    """Serve the read-only board until interrupted, with a model beside it if one is named."""
    require("starlette", "uvicorn", extra="board")
    if model is None:
        return _run_board(root, data_dir, host, port, token)
    if not is_loopback(host):
        raise DanseoError("--model has no token: everyone who reaches it could use it; leave out --host, or --model")
    with serve_in_thread(model, host) as server:
        say(
            f"{server.loaded.name} ({server.loaded.task.name}) is served at {server.address}, linked as “Try the model”"
        )
        _run_board(root, data_dir, host, port, token, server.address)


def _run_board(
    root: Path, data_dir: str | None, host: str, port: int, token: str | None, model_address: str | None = None
) -> None:
    """Serve the board alone; beyond loopback require a token, and create one if none is given."""
    from danseo.serve.http import make_server

    if not is_loopback(host):
        token = token or secrets.token_urlsafe(24)
        say(f"WARNING: {host} can be reached from other machines; everyone with the token can read all runs")
    listener = open_listener(host, port)
    known = (host, f"[{host}]", socket.gethostname(), socket.getfqdn(), *_list_addresses(host))
    app = make_app(root, data_dir, hosts=known, token=token, model_address=model_address, store=open_store(root))
    written_host = f"[{host}]" if ":" in host else host
    address = f"http://{written_host}:{listener.getsockname()[1]}/"
    say(f"the board of {root} is at {address}{'?' + urlencode({'token': token}) if token else ''} (Ctrl-C stops it)")
    server = make_server(app, log_level="error", lifespan="off", timeout_graceful_shutdown=_GRACE)
    server.run(sockets=[listener])


def open_listener(host: str, port: int) -> socket.socket:
    """Return a bound socket; port 0 takes a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DanseoError(
            _("{host}:{port} cannot be used: {reason}; choose another --port or --host").format(
                host=host, port=port, reason=reason
            )
        ) from None
    return listener


def _list_addresses(host: str) -> list[str]:
    """Return the addresses of this machine if the board listens on all of them."""
    if host not in ("0.0.0.0", "::"):
        return []
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return []
    return [f"[{each}]" if ":" in each else each for each in sorted(found)]
