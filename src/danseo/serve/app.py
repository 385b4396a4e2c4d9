"""The HTTP service: POST /predict, /health, /schema, and the page at /."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
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
from danseo.data.input_reader import BadLine, InputLine, make_line, read_line
from danseo.errors import DanseoError, DataError
from danseo.inference.output import RecordOptions, predict_records, read_record_schema
from danseo.inference.predict import LoadedModel
from danseo.language import LANGUAGES, choose_page_language, list_script_words, translate
from danseo.serve.batching import Batcher, QueueFull, count_characters

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Vary": "Accept-Language",
}
BODY_SECONDS = 60
PAGES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}


@dataclass(frozen=True)
class Limits:
    """Limits of a service."""

    most_bytes: int = 1 << 20
    """Bytes of a request."""
    most_items: int = 256
    """Texts in a request."""
    most_characters: int = 20_000
    """Characters of a text: others wait for it."""
    batch: int = 64
    """Texts per batch."""
    room: int = 1024
    """Texts that may wait in the queue."""


class RequestError(Exception):
    """A rejected request with its HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Service:
    """Handles the requests for one model."""

    def __init__(self, loaded: LoadedModel, limits: Limits) -> None:
        self.loaded, self.limits = loaded, limits
        self.batcher = Batcher(self._predict_lines, max_batch=limits.batch, room=limits.room)
        self.answered = 0

    def _predict_lines(self, lines: Any, with_tags: bool) -> list[dict[str, Any]]:
        options = RecordOptions(text=True, tags=with_tags, fixer=self.loaded.fixer)
        return predict_records(self.loaded.model, self.loaded.task, lines, options)

    async def handle_predict(self, scope: Scope, receive: Receive) -> Response:
        """Predict one text or a list of them; return one record each, in order."""
        try:
            payload = parse_body(await self._read_body(scope, receive), self.limits)
            items = payload if isinstance(payload, list) else [payload]
            lines = [self._parse_item(item, number) for number, item in enumerate(items, 1)]
            for number, line in enumerate(lines, 1):
                if count_characters(line) > (most := self.limits.most_characters):
                    raise RequestError(413, f"item {number}: more than {most:,} characters; send it in parts")
            hidden = list_hidden_fields(scope["query_string"])
            records = await self.batcher.submit(lines, with_details="tags" not in hidden) if lines else []
        except RequestError as refusal:
            return make_response({"error": str(refusal)}, refusal.status)
        except QueueFull as busy:
            return make_response({"error": str(busy)}, 429, {"Retry-After": str(busy.seconds)})
        except DanseoError as error:
            return make_response({"error": str(error)}, 500)
        self.answered += len(records)
        records = [remove_fields(record, hidden) for record in records]
        return make_response(records if isinstance(payload, list) else records[0])

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body; raise if it is too large or not JSON."""
        if get_header(scope, b"content-type").split(b";")[0].strip() != b"application/json":
            raise RequestError(415, "send JSON, with the header Content-Type: application/json")
        content, more, due = b"", True, int(get_header(scope, b"content-length") or 0)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more and max(due, len(content)) <= self.limits.most_bytes:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError(400, "the request is incomplete; send it again")
                    content, more = content + message.get("body", b""), message.get("more_body", False)
        except TimeoutError:
            raise RequestError(408, f"the body is incomplete after {BODY_SECONDS} s; send it faster") from None
        if max(due, len(content)) > self.limits.most_bytes:
            raise RequestError(413, f"more than {self.limits.most_bytes:,} bytes; send smaller requests")
        return content

    def _parse_item(self, item: Any, number: int) -> InputLine:
        """Return the example of a text, or of an object with the fields of the task."""
        if not isinstance(item, str | dict):
            raise RequestError(422, f"item {number}: not a text or an object; send one of them")
        try:
            text = " ".join(item.splitlines()) if isinstance(item, str) else to_strict_json(item)
        except (ValueError, RecursionError):
            raise RequestError(
                422, f"item {number}: a number is not finite, or the nesting is too deep; correct it"
            ) from None
        if isinstance(item, str) and text.lstrip().startswith("{"):
            item = {"text": text}  # a text that starts with a brace, not an object
        with_pos = self.loaded.model.reads_pos
        try:
            content = text.encode()
            if isinstance(item, dict):
                return make_line(item, number, self.loaded.task, with_pos=with_pos)
            found = read_line(content, number, self.loaded.task, with_pos=with_pos)
        except UnicodeEncodeError:
            raise RequestError(422, f"item {number}: a lone surrogate is not a character; correct the text") from None
        except DataError as error:
            found = BadLine(number, str(error))
        if isinstance(found, InputLine):
            return found
        reason = found.reason.removeprefix(f"line {number}: ") if isinstance(found, BadLine) else "the text is empty"
        raise RequestError(422, f"item {number}: {reason}")

    async def get_health(self, request: Request) -> Response:
        """Return the state of the service and its queue."""
        facts = {"status": "ok", "model": self.loaded.name, "task": self.loaded.task.name, "danseo": __version__}
        facts |= {"fixed_by": self.loaded.fixer.name} if self.loaded.fixer else {}
        return make_response({**facts, "answered": self.answered, "waiting": self.batcher.n_pending})

    async def get_schema(self, request: Request) -> Response:
        """Return the task, the input fields and the schema of a record."""
        task = self.loaded.task
        facts: dict[str, Any] = {"task": task.name, "title": task.title, "type": task.type.name}
        facts["is_pair"] = task.is_pair
        facts |= {"model": self.loaded.name, "labels": list(task.labels), "input": task.input.needs}
        facts["fields"] = task.type.request_fields(task)
        return make_response({**facts, "answer": read_record_schema(), "limits": vars(self.limits)})

    async def get_page(self, request: Request) -> Response:
        """Return the page to try the model, or one of its files."""
        name, kind = PAGES[request.url.path]
        content = read_page_file(name)
        if name == "page.html":
            accepted = request.headers.get("accept-language", "")
            content = self._render_page(content, choose_page_language(request.query_params.get("lang"), accepted))
        return Response(content, 200, HEADERS, f"{kind}; charset=utf-8")

    def _render_page(self, template: str, language: str) -> str:
        """Return the page in a language, with the words of its script."""
        from jinja2 import Environment

        task = self.loaded.task
        words = list_script_words(read_page_file("page.js"), language)
        words |= {text: translate(text, language) for text in (task.title, task.input.needs)}
        jinja = Environment(autoescape=True)
        context = {"_": partial(translate, language=language), "language": language, "languages": LANGUAGES}
        return jinja.from_string(template).render(**context, words=to_strict_json(words))


class PredictShortcut:
    """Sends POST /predict past the framework, whose layers cost a tenth of a small network's time."""

    def __init__(self, service: Service, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.service, self.app = service, app
        self.hosts = {host.encode() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, is_post = self.app, scope["type"] == "http" and scope["method"] == "POST"
        if is_post and scope["path"] == "/predict" and self._is_known_host(scope):
            app = await self.service.handle_predict(scope, receive)
        await app(scope, receive, send)

    def _is_known_host(self, scope: Scope) -> bool:
        """Return whether the host is known; the framework handles all others."""
        return b"*" in self.hosts or get_header(scope, b"host").split(b":")[0] in self.hosts


def read_page_file(name: str) -> str:
    """Return the text of a file of the page."""
    return files("danseo.serve").joinpath("pages", name).read_text("utf-8")


def get_header(scope: Scope, name: bytes) -> bytes:
    """Return the value of a header, or nothing."""
    return next((value for key, value in scope["headers"] if key == name), b"")


def parse_body(content: bytes, limits: Limits) -> Any:
    """Parse the JSON of a body and check its number of texts."""
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not valid JSON; correct it") from None
    if isinstance(payload, list) and len(payload) > limits.most_items:
        raise RequestError(413, f"more than {limits.most_items} texts; send smaller requests")
    return payload


def to_strict_json(document: Any) -> str:
    """Return JSON without NaN and infinity, like the output."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def list_hidden_fields(query: bytes) -> set[str]:
    """Return the optional fields that a query does not request."""
    given = dict(parse_qsl(query.decode("latin-1"))) if query else {}
    return {name for name in ("text", "tags") if given.get(name) not in ("1", "true")}


def remove_fields(record: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    """Return a record without the hidden fields."""
    texts = {"text", "pair", "question", "turns", "subject", "object"} if "text" in hidden else set()
    return {key: value for key, value in record.items() if key not in texts and (key != "tags" or "tags" not in hidden)}


def make_response(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response with the security headers."""
    return JSONResponse(document, status, {**HEADERS, **(headers or {})})


def make_app(loaded: LoadedModel, limits: Limits, hosts: list[str]) -> PredictShortcut:
    """Return the application; hosts are the accepted host names."""
    service = Service(loaded, limits)

    async def predict(request: Request) -> Response:
        return await service.handle_predict(request.scope, request.receive)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        service.batcher.stop()

    routes = [
        Route("/predict", predict, methods=["POST"]),
        Route("/health", service.get_health),
        Route("/schema", service.get_schema),
        *(Route(path, service.get_page) for path in PAGES),
    ]
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    return PredictShortcut(service, Starlette(routes=routes, middleware=[guard], lifespan=lifespan), hosts)
