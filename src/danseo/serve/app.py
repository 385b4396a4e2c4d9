"""The HTTP service: POST /predict, /health, /schema, and the page at /."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from danseo import __version__
from danseo.data.lines import BadLine, Line, given_line, read_line
from danseo.errors import DanseoError, DataError
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

    async def reply(self, scope: Scope, receive: Receive) -> Response:
        """One text or many; an answer for each, in order."""
        try:
            asked = parsed(await self._body(scope, receive), self.limits)
            items = asked if isinstance(asked, list) else [asked]
            lines = [self._line(item, number) for number, item in enumerate(items, 1)]
            hidden = hidden_parts(scope["query_string"])
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

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """What was sent, unless it is too much or something else."""
        if header(scope, b"content-type").split(b";")[0].strip() != b"application/json":
            raise Refused(415, "send JSON, with the header Content-Type: application/json")
        content, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the request broke off")
            content, more = content + message.get("body", b""), message.get("more_body", False)
            if len(content) > self.limits.most_bytes:
                raise Refused(413, f"more than {self.limits.most_bytes:,} bytes; send less at a time")
        return content

    def _line(self, item: Any, number: int) -> Line:
        """An example from a text, or from an object with the fields of the task."""
        if not isinstance(item, str | dict):
            raise Refused(422, f"item {number}: a text or an object is due")
        text = " ".join(item.splitlines()) if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
        if isinstance(item, str) and text.lstrip().startswith("{"):
            item = {"text": text}  # a text that begins with a brace is no object
        with_pos = self.opened.model.reads_pos
        try:
            content = text.encode()
            if isinstance(item, dict):
                return given_line(item, number, self.opened.task, with_pos=with_pos)
            found = read_line(content, number, self.opened.task, with_pos=with_pos)
        except UnicodeEncodeError:
            raise Refused(422, f"item {number}: half a surrogate pair, which is no character") from None
        except DataError as error:
            found = BadLine(number, str(error))
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


class Predict:
    """POST /predict; the framework leads here, and Direct does without it."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.service.reply(scope, receive)
        await response(scope, receive, send)


class Direct:
    """What comes to be predicted goes past the framework, whose layers cost a tenth of a small network's answer."""

    def __init__(self, predict: Predict, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.predict, self.app = predict, app
        self.hosts = {host.encode() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_short = scope["type"] == "http" and scope["path"] == "/predict" and scope["method"] == "POST"
        await (self.predict if is_short and self._knows(scope) else self.app)(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        """Whether the host is one of ours; of all others the framework decides."""
        return b"*" in self.hosts or header(scope, b"host").split(b":")[0] in self.hosts


def header(scope: Scope, name: bytes) -> bytes:
    """The value of a header; empty where it is not there."""
    return next((value for key, value in scope["headers"] if key == name), b"")


def parsed(content: bytes, limits: Limits) -> Any:
    """What a body says."""
    try:
        asked = json.loads(content)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON") from None
    if isinstance(asked, list) and len(asked) > limits.most_items:
        raise Refused(413, f"more than {limits.most_items} texts; send less at a time")
    return asked


def hidden_parts(query: bytes) -> set[str]:
    """The parts of records that a query does not ask for."""
    given = dict(parse_qsl(query.decode("latin-1"))) if query else {}
    return {name for name in ("text", "tags") if given.get(name) not in ("1", "true")}


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


def make_app(opened: Opened, limits: Limits, hosts: list[str]) -> Direct:
    """The application; hosts are the names it answers to."""
    service = Service(opened, limits)
    predict = Predict(service)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        service.batcher.stop()

    routes = [
        Route("/predict", predict, methods=["POST"]),
        Route("/health", service.health),
        Route("/schema", service.schema),
        *(Route(path, service.page) for path in PAGES),
    ]
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    return Direct(predict, Starlette(routes=routes, middleware=[guard], lifespan=lifespan), hosts)
