"""Any server that speaks OpenAI's chat completions: vLLM, llama.cpp, Ollama, a paid service."""

import json
import os
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any
from urllib.parse import urlsplit

from danseo.errors import DanseoError, NetworkError
from danseo.files import quote
from danseo.models.llm.asking import Message, object_schema
from danseo.models.llm.calls import Call, Request
from danseo.models.llm.settings import PromptConfig
from danseo.models.llm.source import Limits, OnCall
from danseo.models.llm.told import ALTERNATIVES, steps_of, told_weights

_ATTEMPTS = 6
_LONGEST_WAIT = 60.0  # seconds between two attempts
_ODD = "zq7319"  # what no model would say of its own accord
_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)


def http() -> Any:
    """The HTTP library that huggingface_hub brings, under either of its names."""
    try:
        import httpx2 as library
    except ModuleNotFoundError:
        try:
            import httpx as library  # type: ignore[no-redef]
        except ModuleNotFoundError:
            raise DanseoError("no httpx2 or httpx here; run: pip install -U huggingface_hub") from None
    return library


class Gate:
    """How many calls may be under way: fewer once the server says that they are too many."""

    def __init__(self, limit: int) -> None:
        self.limit, self.busy, self.until = max(1, limit), 0, 0.0
        self.lowest = self.limit
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.busy < self.limit)
            self.busy += 1
        while (left := self.until - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self.busy -= 1
            self._changed.notify_all()

    def narrow(self, wait: float) -> None:
        """Half as many at a time, and nobody before the wait is over."""
        with self._changed:
            self.limit = self.lowest = max(1, self.limit // 2)
            self.until = max(self.until, time.monotonic() + wait)


class Server:
    """A model behind a URL."""

    weighs = False

    def __init__(self, model: str, config: PromptConfig, limits: Limits | None = None, *, timer: Any = time) -> None:
        self.model, self.config, self.limits = model, config, limits or Limits()
        self.url, self.timer = checked_url(config.url), timer
        self.gate = Gate(self.limits.at_a_time)
        self._key = os.environ.get(self.limits.key_name, "")
        self._client: Any = None
        self._alternatives = ALTERNATIVES  # until the server says that it tells none
        self._stopped, self._noting = threading.Event(), threading.Lock()

    @property
    def client(self) -> Any:
        if self._client is None:
            library = http()
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            timeout = library.Timeout(self.limits.timeout, connect=min(10.0, self.limits.timeout))
            self._client = library.Client(headers=headers, timeout=timeout, trust_env=not _is_local(self.url))
        return self._client

    def identity(self) -> dict[str, Any]:
        return {"server": self.model, "think": self.config.think, "free": self.config.free}

    def ready(self) -> dict[str, Any]:
        """Ask for a word that no model would choose: does the server hold replies to their schema?"""
        if self.config.free:
            return {"enforced": None}
        schema = object_schema(word={"type": "string", "enum": [_ODD]})
        asked = [{"role": "user", "content": '대한민국의 수도를 {"word":"…"} 꼴로 답하세요.'}]
        body = self._body(Request("probe", asked, 32, schema))
        reply = self._post(body)
        if reply.status_code == 400:
            raise DanseoError(
                f"{self.url} takes no response_format of type json_schema ({self._why(reply)}); add --free, so that "
                "replies are read as they come"
            )
        if reply.status_code != 200:
            raise _failure(f"{self.url} does not answer: {self._why(reply)}", reply.status_code)
        text, _ = _spoken(_document(reply, self.url))
        try:
            return {"enforced": json.loads(text).get("word") == _ODD}
        except (ValueError, AttributeError):
            return {"enforced": False}

    def room(self) -> int | None:
        return self.config.context or None

    def count(self, messages: Sequence[Message]) -> int:
        """A guess: three bytes of UTF-8, which a Korean syllable has, make a token."""
        return sum(len(message["content"].encode()) // 3 + 8 for message in messages)

    def answer(self, requests: Sequence[Request], keys: Sequence[str], on_call: OnCall) -> list[str]:
        """Several at a time; replies are paired with their requests, in whatever order they come."""
        self._stopped.clear()
        with ThreadPoolExecutor(self.limits.at_a_time) as pool:
            pairs = zip(requests, keys, strict=True)
            futures = [pool.submit(self._noted, request, key, on_call) for request, key in pairs]
            try:
                problems = [found for future in as_completed(futures) if (found := future.result())]
            except BaseException:
                self._stopped.set()  # what is under way ends and is kept; what waits does not begin
                raise
        return problems

    def _noted(self, request: Request, key: str, on_call: OnCall) -> str | None:
        """One request, its reply noted as soon as it is there; a text says why it failed for good."""
        found = self._one(request, key)
        if isinstance(found, str):
            return found
        with self._noting:
            on_call(found)
        return None

    def _one(self, request: Request, key: str) -> Call | str:
        """One request with its repetitions; a text says why it failed for good."""
        began, why = self.timer.monotonic(), "stopped"
        for attempt in range(1, _ATTEMPTS + 1):
            if self._stopped.is_set():
                return f"{request.guid}: stopped"
            try:
                body = self._body(request)
                with self.gate:
                    reply = self._post(body)
                if reply.status_code == 200:
                    return self._call(request, key, _document(reply, self.url), began, attempt)
                if self._takes_no_alternatives(body, reply):
                    continue
                why, wait = self._why(reply), _wait(reply.headers.get("retry-after"), attempt)
                if reply.status_code in (401, 403, 404):
                    raise _failure(f"{self.url} does not answer: {why}", reply.status_code)
                if reply.status_code not in _AGAIN:
                    return f"{request.guid}: {why}"
                if reply.status_code == 429:
                    self.gate.narrow(wait)
            except NetworkError as error:
                why, wait = str(error), _wait(None, attempt)
            if attempt < _ATTEMPTS:
                self._stopped.wait(wait)
        return f"{request.guid}: {why} ({_ATTEMPTS} attempts)"

    def _body(self, request: Request) -> dict[str, Any]:
        thinking = self.config.think_tokens if self.config.think == "on" else 0
        body: dict[str, Any] = {
            "model": self.model,
            "messages": request.messages,
            "temperature": 0,
            "max_tokens": request.tokens + thinking,
            "logprobs": True,
        }
        if request.told is not None and self._alternatives:
            body["top_logprobs"] = self._alternatives
        if self.config.think != "auto":
            body["chat_template_kwargs"] = {"enable_thinking": self.config.think == "on"}
        if request.schema is not None and not self.config.free:
            shape = {"name": "reply", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        return body

    def _takes_no_alternatives(self, body: dict[str, Any], reply: Any) -> bool:
        """Whether a refusal is about alternatives to tokens; they are then asked for no more."""
        is_so = reply.status_code in (400, 422) and "top_logprobs" in body and "logprobs" in str(reply.text)
        self._alternatives = 0 if is_so else self._alternatives
        return is_so

    def _post(self, body: dict[str, Any]) -> Any:
        library = http()
        try:
            return self.client.post(f"{self.url}/chat/completions", json=body)
        except library.TimeoutException:
            raise NetworkError(f"{self.url} took longer than {self.limits.timeout:g} s") from None
        except (library.TransportError, library.DecodingError) as error:
            raise NetworkError(f"{self.url} cannot be reached ({self._hidden(str(error))}); is it running?") from None

    def _why(self, reply: Any) -> str:
        return f"HTTP {reply.status_code}, {quote(self._hidden(' '.join(reply.text.split())), 200)}"

    def _hidden(self, text: str) -> str:
        """What a server says, without the key that it may repeat."""
        return text.replace(self._key, "…") if self._key else text

    def _call(self, request: Request, key: str, document: dict[str, Any], began: float, attempt: int) -> Call:
        usage = document.get("usage") or {}
        text, finish = _spoken(document)
        steps = steps_of(document) if request.told else None
        return Call(
            key,
            request.guid,
            text,
            finish,
            prompt_tokens=_whole(usage.get("prompt_tokens")),
            cached_tokens=_whole((usage.get("prompt_tokens_details") or {}).get("cached_tokens")),
            reply_tokens=_whole(usage.get("completion_tokens")),
            seconds=round(self.timer.monotonic() - began, 4),
            attempts=attempt,
            logprob=_logprob(document),
            weights=told_weights(steps, request.told) if steps and request.told else None,
        )


def checked_url(url: str) -> str:
    """The address of a server, without its last slash."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not url:
        raise DanseoError("server: models need --url, such as --url http://127.0.0.1:8080/v1")
    if not is_good:
        raise DanseoError(f"--url {quote(url)} is no address; write one such as http://127.0.0.1:8080/v1")
    if parts.username or parts.password:
        raise DanseoError("--url holds a password; put the key into the environment variable DANSEO_API_KEY instead")
    return url.rstrip("/").removesuffix("/chat/completions")


def _is_local(url: str) -> bool:
    """Whether proxies have no part in it."""
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def _failure(message: str, status: int) -> DanseoError:
    hint = {401: "; is the key right?", 403: "; is the key right?", 404: "; are --url and the model's name right?"}
    return DanseoError(message + hint.get(status, ""))


def _document(reply: Any, url: str) -> dict[str, Any]:
    """The reply as JSON of the right shape; anything else is a failure of the line, and asked again."""
    try:
        document: dict[str, Any] = reply.json()
        message = document["choices"][0]["message"]
        if isinstance(message, dict):
            return document
    except (ValueError, KeyError, IndexError, TypeError):
        pass
    raise NetworkError(f"{url} answers with something that is no chat completion")


def _spoken(document: dict[str, Any]) -> tuple[str, str | None]:
    """The words of a reply and why they ended; thoughts that a server keeps apart come back inside their tags."""
    choice = document["choices"][0]
    message, finish = choice["message"], choice.get("finish_reason")
    text = message.get("content") if isinstance(message.get("content"), str) else ""
    if isinstance(message.get("refusal"), str) and not text:
        return message["refusal"], "content_filter"
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thoughts, str) and thoughts:
        text = f"<think>{thoughts}</think>{text}" if text else f"<think>{thoughts}"
    return text, finish if isinstance(finish, str) else None


def _logprob(document: dict[str, Any]) -> float | None:
    """The log-probability of the whole reply, where the server tells that of every token."""
    try:
        return round(sum(float(token["logprob"]) for token in document["choices"][0]["logprobs"]["content"]), 6)
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _wait(stated: str | None, attempt: int) -> float:
    """How long to wait: what the server says in seconds, else longer each time, and not all at once."""
    try:
        return min(_LONGEST_WAIT, max(0.0, float(stated or "")))
    except ValueError:
        return min(_LONGEST_WAIT, 0.5 * float(2 ** (attempt - 1)) * (1 + random.random() / 4))
