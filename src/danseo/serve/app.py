"""The HTTP service: POST /predict, /health, /schema, and the page at /."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from danseo import __version__
from danseo.data.lines import BadLine, Line, read_line
from danseo.errors import DanseoError
from danseo.predict.opening import Opened
from danseo.predict.records import Wanted, answered, schema
from danseo.serve.batching import Batcher, Busy
from danseo.tasks.task import Task

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
PAGES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}


@dataclass(frozen=True)
class Limits:
    """What a service takes."""

    most_bytes: int = 1 << 20
    """Of a request."""
    most_items: int = 256
    """Texts in a request."""
    batch: int = 64
    """Texts answered together."""
    room: int = 1024
    """Texts that may wait."""


class Refused(Exception):
    """A request that is not answered, with the status that says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Service:
    """One model, and what clients may ask of it."""

    def __init__(self, opened: Opened, limits: Limits) -> None:
        self.opened, self.limits = opened, limits
        self.batcher = Batcher(self._answer, most=limits.batch, room=limits.room)
        self.answered = 0

    def _answer(self, lines: Any, with_tags: bool) -> list[dict[str, Any]]:
        return answered(self.opened.model, self.opened.task, lines, Wanted(text=True, tags=with_tags))

    async def predict(self, request: Request) -> Response:
        """One text or many; an answer for each, in order."""
        try:
            asked = await self._read(request)
            items = asked if isinstance(asked, list) else [asked]
            lines = [self._line(item, number) for number, item in enumerate(items, 1)]
            hidden = {name for name in ("text", "tags") if request.query_params.get(name) not in ("1", "true")}
            records = await self.batcher.ask(lines, in_detail="tags" not in hidden) if lines else []
        except Refused as refusal:
            return said({"error": str(refusal)}, refusal.status)
        except Busy as busy:
            return said({"error": str(busy)}, 429, {"Retry-After": str(busy.seconds)})
        except DanseoError as error:
            return said({"error": str(error)}, 500)
        self.answered += len(records)
        records = [shortened(record, hidden) for record in records]
        return said(records if isinstance(asked, list) else records[0])

    async def _read(self, request: Request) -> Any:
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            raise Refused(415, "send JSON, with the header Content-Type: application/json")
        content = b""
        try:
            async for chunk in request.stream():
                content += chunk
                if len(content) > self.limits.most_bytes:
                    raise Refused(413, f"more than {self.limits.most_bytes:,} bytes; send less at a time")
        except ClientDisconnect:
            raise Refused(400, "the request broke off") from None
        try:
            asked = json.loads(content)
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not valid JSON") from None
        if isinstance(asked, list) and len(asked) > self.limits.most_items:
            raise Refused(413, f"more than {self.limits.most_items} texts; send less at a time")
        return asked

    def _line(self, item: Any, number: int) -> Line:
        """An example from a text, or from an object with the fields of the task."""
        if not isinstance(item, str | dict):
            raise Refused(422, f"item {number}: a text or an object is due")
        text = " ".join(item.splitlines()) if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
        if isinstance(item, str) and text.lstrip().startswith("{"):
            text = json.dumps({"text": text}, ensure_ascii=False)  # a text that begins with a brace is no object
        try:
            found = read_line(text.encode(), number, self.opened.task, with_pos=self.opened.model.reads_pos)
        except UnicodeEncodeError:
            raise Refused(422, f"item {number}: half a surrogate pair, which is no character") from None
        if isinstance(found, Line):
            return found
        reason = found.reason.removeprefix(f"line {number}: ") if isinstance(found, BadLine) else "the text is empty"
        raise Refused(422, f"item {number}: {reason}")

    async def health(self, request: Request) -> Response:
        """Whether it answers, and what waits."""
        facts = {"status": "ok", "model": self.opened.name, "task": self.opened.task.name, "danseo": __version__}
        return said({**facts, "answered": self.answered, "waiting": self.batcher.held})

    async def schema(self, request: Request) -> Response:
        """What goes in and comes out."""
        task = self.opened.task
        facts: dict[str, Any] = {"task": task.name, "title": task.title, "kind": task.kind, "form": task.form}
        facts |= {"model": self.opened.name, "labels": list(task.labels), "input": task.input.needs}
        facts["fields"] = fields_of(task)
        return said({**facts, "answer": schema(), "limits": vars(self.limits)})

    async def page(self, request: Request) -> Response:
        """The page to try it, and its parts."""
        name, kind = PAGES[request.url.path]
        content = files("danseo.serve").joinpath("pages", name).read_bytes()
        return Response(content, 200, HEADERS, f"{kind}; charset=utf-8")


def fields_of(task: Task) -> dict[str, Any]:
    """What the parts of an example are called in a request, where they have to be named."""
    names = {
        "relation": {"text": "sentence", "subject": "subject_entity", "object": "object_entity"},
        "question": {"text": "context", "question": "question"},
    }.get(task.form, {})
    own = task.own
    if own is None:
        return names
    parts = {name: getattr(own, name) or default for name, default in names.items()}
    if task.form == "choices":
        parts = {"text": own.text, **({"pair": own.pair} if own.pair else {}), "choices": list(own.choices)}
    return parts


def shortened(record: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    """A record without the parts that were not asked for."""
    texts = {"text", "pair", "question", "turns", "subject", "object"} if "text" in hidden else set()
    return {key: value for key, value in record.items() if key not in texts and (key != "tags" or "tags" not in hidden)}


def said(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON, with the policy that all answers carry."""
    return JSONResponse(document, status, {**HEADERS, **(headers or {})})


def make_app(opened: Opened, limits: Limits, hosts: list[str]) -> Starlette:
    """The application; hosts are the names it answers to."""
    service = Service(opened, limits)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        service.batcher.stop()

    routes = [
        Route("/predict", service.predict, methods=["POST"]),
        Route("/health", service.health),
        Route("/schema", service.schema),
        *(Route(path, service.page) for path in PAGES),
    ]
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    return Starlette(routes=routes, middleware=[guard], lifespan=lifespan)
