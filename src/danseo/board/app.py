"""The web application: addresses in, pages as HTML or JSON out."""

import hashlib
from pathlib import Path
from typing import Any

from danseo.board.guard import LOOPBACK, Guard
from danseo.board.index import RunIndex
from danseo.board.live import live
from danseo.board.site import Site
from danseo.board.store import RecordStore
from danseo.display.escaping import to_json
from danseo.report.html import asset

_ASSETS = {"style.css": "text/css", "page.js": "text/javascript", "board.js": "text/javascript"}


def make_app(
    root: Path,
    data_dir: str | None = None,
    *,
    hosts: tuple[str, ...] = (),
    token: str | None = None,
    model_address: str | None = None,
    store: RecordStore | None = None,
) -> Guard:
    """The board of a folder of runs, behind its guard."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    site = Site(RunIndex(root, data_dir, store), token, model_address)
    site.html("runs", {})  # before anybody asks

    def answer(request: Request, content: str, kind: str, status: int = 200) -> Response:
        body = content.encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        if tag in (request.headers.get("if-none-match") or ""):
            return Response(status_code=304, headers={"etag": tag})
        return Response(body, status, {"etag": tag}, media_type=f"{kind}; charset=utf-8")

    def page(request: Request) -> Response:
        """A page; with .json at its end, what it says as JSON."""
        key = request.path_params.get("key", "") or "overview"
        query = {name: request.query_params.getlist(name) for name in request.query_params}
        if key in _ASSETS:
            return answer(request, asset(key), _ASSETS[key])
        if key == "live.json":
            return answer(request, to_json(live(site.index.snapshot())), "application/json")
        if key.endswith(".json") and site.page(key, query) is None:
            found = site.page("overview" if key == "index.json" else key.removesuffix(".json"), query)
            if found:
                return answer(request, to_json(found.as_dict()), "application/json")
        text = site.html(key, query)
        return answer(request, text, "text/html") if text else answer(request, "no such page\n", "text/plain", 404)

    routes: list[Any] = [Route("/", page, methods=["GET"]), Route("/{key:path}", page, methods=["GET"])]
    return Guard(Starlette(routes=routes), (*LOOPBACK, *(host.lower() for host in hosts)), token)
