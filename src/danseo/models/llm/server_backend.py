"""The server backend: any server with OpenAI's chat completions (vLLM, llama.cpp, Ollama, paid services)."""

import json
import math
import os
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from danseo.errors import DanseoError, NetworkError
from danseo.files import quote
from danseo.language import _
from danseo.models.llm.backend import CallLimits, ModelCall, OnCall, PromptRequest
from danseo.models.llm.formats.base import Message, object_schema
from danseo.models.llm.gbnf import write_gbnf
from danseo.models.llm.http_client import HttpClient, HttpReply
from danseo.models.llm.reply import ALTERNATIVES, check_logprob, compute_label_logprobs, is_thought, read_token_logprobs
from danseo.models.llm.settings import PromptSettings

_ATTEMPTS = 6
_LONGEST_WAIT = 60.0  # seconds between two attempts
_PROBE_WORD = "zq7319"  # a word that no model would choose
_RETRIED = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_REPLY_BYTES, _TOKEN_BYTES, _MAX_BYTES = 1 << 20, 1 << 14, 1 << 25
"""Maximum bytes of a reply: a base, an amount per token (with 20 alternatives), and an upper limit."""
_LEAST_SECRET = 4  # characters; a shorter key is a placeholder, and common text
_MAX_TOKENS = 1 << 40
_ODD_REPLY = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError)
"""Exceptions of reading a reply that is not a chat completion."""


class Gate:
    """Limits the number of concurrent calls; fewer after the server reports too many."""

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
        """Halve the number of concurrent calls, and pause new ones for the wait."""
        with self._changed:
            self.limit = self.lowest = max(1, self.limit // 2)
            self.until = max(self.until, time.monotonic() + wait)


class ServerBackend:
    """A model on a server."""

    scores_labels = False

    def __init__(
        self, model: str, config: PromptSettings, limits: CallLimits | None = None, *, timer: Any = time
    ) -> None:
        self.model, self.config, self.limits = model, config, limits or CallLimits()
        self.url, self.timer = check_url(config.url), timer
        self.reasons = config.thinking == "on"
        self.takes_grammar = False
        """Whether a GBNF grammar constrains replies: with a schema, llama.cpp may write endless whitespace."""
        self.is_llama_cpp = False
        """Whether replies come from llama.cpp, which takes cache_prompt; others may refuse a field they do not know."""
        self.gate = Gate(self.limits.concurrency)
        self._key = read_key(self.limits.key_name)
        self._alternatives = ALTERNATIVES  # until the server refuses them
        self._stopped, self._noting, self._reading = threading.Event(), threading.Lock(), threading.Lock()

    @cached_property
    def client(self) -> HttpClient:
        headers = make_headers(self.limits.key_name)
        is_local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        return HttpClient(headers, self.limits.timeout, trust_env=not is_local)  # no proxy to this machine

    def identity(self) -> dict[str, Any]:
        return {"server": self.model, "think": self.config.thinking, "free": self.config.unconstrained}

    def prepare(self) -> dict[str, Any]:
        """Check with a probe word whether the server constrains replies to their schema."""
        if self.config.unconstrained:
            return {"enforced": None}
        schema = object_schema(word={"type": "string", "enum": [_PROBE_WORD]})
        messages = [{"role": "user", "content": '대한민국의 수도를 {"word":"…"} 꼴로 답하세요.'}]
        request = PromptRequest("probe", messages, 32, schema)
        reply = self._post(self._make_body(request))
        if reply.status_code == 400:
            raise DanseoError(
                f"{self.url} takes no response_format of type json_schema ({self._explain(reply)}); add "
                "--unconstrained, so that replies are not constrained"
            )
        if reply.status_code != 200:
            raise _make_error(
                _("{url} does not answer: {why}").format(url=self.url, why=self._explain(reply)), reply.status_code
            )
        text = self._read_call(request, "", reply, 0.0, 1).text
        is_enforced = _is_probe_word(text)
        if self.is_llama_cpp and not self.reasons and not is_thought(text):
            self.takes_grammar = True
            reply = self._post(self._make_body(request))
            is_answer = reply.status_code == 200
            self.takes_grammar = is_answer and _is_probe_word(self._read_call(request, "", reply, 0.0, 1).text)
        return {"enforced": is_enforced or self.takes_grammar} | ({"grammar": "gbnf"} if self.takes_grammar else {})

    def max_context(self) -> int | None:
        return self.config.max_context_length or None

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Estimate the number of tokens: three bytes of UTF-8 (a Korean syllable) per token."""
        return sum(len(message["content"].encode()) // 3 + 8 for message in messages)

    def complete(self, requests: Sequence[PromptRequest], keys: Sequence[str], on_call: OnCall) -> list[str]:
        """Answer requests concurrently; every reply is paired with its request.

        Requests with the same beginning follow each other, so that the server finds it in its prefix cache.
        """
        self._stopped.clear()
        with ThreadPoolExecutor(self.limits.concurrency) as pool:
            pairs = sorted(
                zip(requests, keys, strict=True), key=lambda pair: [message["content"] for message in pair[0].messages]
            )
            futures = [pool.submit(self._send, request, key, on_call) for request, key in pairs]
            try:
                problems = [found for future in as_completed(futures) if (found := future.result())]
            except BaseException:
                self._stopped.set()  # running calls end and are kept; waiting ones do not start
                raise
        return problems

    def _send(self, request: PromptRequest, key: str, on_call: OnCall) -> str | None:
        """Send one request and log its reply; return why it failed for good."""
        found = self._try_request(request, key)
        if isinstance(found, str):
            return found
        with self._noting:
            on_call(found)
        return None

    def _try_request(self, request: PromptRequest, key: str) -> ModelCall | str:
        """Send one request with retries; return the call, or why it failed for good."""
        began, why = self.timer.monotonic(), "stopped"
        for attempt in range(1, _ATTEMPTS + 1):
            if self._stopped.is_set():
                return f"{request.guid}: stopped"
            try:
                body = self._make_body(request)
                with self.gate:
                    reply = self._post(body)
                if reply.status_code == 200:
                    return self._read_call(request, key, reply, began, attempt)
                if self._takes_no_alternatives(body, reply) or self._takes_no_grammar(body, reply):
                    continue
                why, wait = self._explain(reply), _choose_wait(reply.headers.get("retry-after"), attempt)
                if reply.status_code in (401, 403, 404):
                    raise _make_error(
                        _("{url} does not answer: {why}").format(url=self.url, why=why), reply.status_code
                    )
                if reply.status_code not in _RETRIED:
                    return f"{request.guid}: {why}"
                if reply.status_code == 429:
                    self.gate.narrow(wait)
            except NetworkError as error:
                why, wait = str(error), _choose_wait(None, attempt)
            if attempt < _ATTEMPTS:
                self._stopped.wait(wait)
        return f"{request.guid}: {why} ({_ATTEMPTS} attempts)"

    def _make_body(self, request: PromptRequest) -> dict[str, Any]:
        thinking = self.config.max_thinking_tokens if self.reasons else 0
        body: dict[str, Any] = {
            "model": self.model,
            "messages": request.messages,
            "temperature": 0,
            "max_tokens": request.tokens + thinking,
            "logprobs": True,
        }
        if request.label_replies is not None and self._alternatives:
            body["top_logprobs"] = self._alternatives
        if self.config.thinking != "auto":
            body["chat_template_kwargs"] = {"enable_thinking": self.config.thinking == "on"}
        if request.schema is not None and not self.config.unconstrained and self.takes_grammar:
            body["grammar"] = write_gbnf(request.schema)
        elif request.schema is not None and not self.config.unconstrained:
            shape = {"name": "reply", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        if self.is_llama_cpp:
            body["cache_prompt"] = True
        return body

    def _takes_no_alternatives(self, body: dict[str, Any], reply: HttpReply) -> bool:
        """Return whether a refusal is about alternatives to tokens, and stop requesting them."""
        is_so = reply.status_code in (400, 422) and "top_logprobs" in body and "logprobs" in reply.text
        self._alternatives = 0 if is_so else self._alternatives
        return is_so

    def _takes_no_grammar(self, body: dict[str, Any], reply: HttpReply) -> bool:
        """Return whether a server refuses a grammar, such as a long one, and use schemas from then on."""
        is_so = reply.status_code == 400 and "grammar" in body and "grammar" in reply.text
        self.takes_grammar = self.takes_grammar and not is_so
        return is_so

    def _post(self, body: dict[str, Any]) -> HttpReply:
        most = min(_MAX_BYTES, _REPLY_BYTES + _TOKEN_BYTES * int(body["max_tokens"]))
        try:
            reply = self.client.post(f"{self.url}/chat/completions", body, most)
        except NetworkError as error:
            raise NetworkError(f"{self.url} {self._mask_key(str(error))}") from None
        self.is_llama_cpp = self.is_llama_cpp or "llama.cpp" in reply.headers.get("server", "")
        return reply

    def _explain(self, reply: HttpReply) -> str:
        text = reply.text
        with suppress(*_ODD_REPLY):  # inside JSON the key may be written with escapes
            text = json.dumps(self._mask_key(json.loads(text)), ensure_ascii=False)
        return f"HTTP {reply.status_code}, {quote(self._mask_key(' '.join(text.split())), 200)}"

    def _mask_key(self, value: Any) -> Any:
        """Return a text, or all texts of a JSON document, without the API key."""
        if isinstance(value, str):
            return value.replace(self._key, "…") if len(self._key) >= _LEAST_SECRET else value
        if isinstance(value, list):
            return [self._mask_key(each) for each in value]
        if isinstance(value, dict):
            return {self._mask_key(name): self._mask_key(each) for name, each in value.items()}
        return value

    def _read_call(self, request: PromptRequest, key: str, reply: HttpReply, began: float, attempt: int) -> ModelCall:
        """Read a chat completion; raise NetworkError for anything else, which is retried."""
        try:
            with self._reading:  # never two at once: as objects a reply is twenty times as large
                document = self._mask_key(json.loads(reply.content.decode(), parse_constant=_parse_constant))
                text, finish = _read_message(document)
                usage = _get_object(document, "usage")
                steps = read_token_logprobs(document) if request.label_replies else None
                return ModelCall(
                    key,
                    request.guid,
                    text,
                    finish,
                    prompt_tokens=_get_count(usage, "prompt_tokens"),
                    cached_tokens=_count_cached(document, usage),
                    reply_tokens=_get_count(usage, "completion_tokens"),
                    seconds=round(self.timer.monotonic() - began, 4),
                    attempts=attempt,
                    logprob=_sum_logprobs(document),
                    label_logprobs=compute_label_logprobs(steps, request.label_replies)
                    if steps and request.label_replies
                    else None,
                )
        except _ODD_REPLY as error:
            why = quote(self._mask_key(str(error)) or type(error).__name__, 80)
            raise NetworkError(f"{self.url} answers with something that is no chat completion ({why})") from None


def _is_probe_word(text: str) -> bool:
    """Return whether a reply is the probe word."""
    try:
        return bool(json.loads(text).get("word") == _PROBE_WORD)
    except (ValueError, AttributeError, RecursionError):
        return False


def read_key(variable: str) -> str:
    """Return the key in an environment variable, which must be one that HTTP can carry."""
    key = os.environ.get(variable, "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise DanseoError(f"{variable} holds characters that no key has; set it again, without spaces and quotes")
    return key


def make_headers(variable: str) -> dict[str, str]:
    """Return the headers with the key in an environment variable."""
    key = read_key(variable)
    return {"Authorization": f"Bearer {key}"} if key else {}


def check_url(url: str) -> str:
    """Return the address of a server without its last slash; refuse an invalid one."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not url:
        raise DanseoError(_("server: models need --url, such as --url http://127.0.0.1:8080/v1"))
    if not is_good:
        raise DanseoError(
            _("--url {url} is no address; write one such as http://127.0.0.1:8080/v1").format(url=quote(url))
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise DanseoError("--url holds a password or a query; put the key into the variable DANSEO_API_KEY instead")
    return url.rstrip("/").removesuffix("/chat/completions")


def _make_error(message: str, status: int) -> DanseoError:
    hint = {401: "; is the key right?", 403: "; is the key right?", 404: "; are --url and the model's name right?"}
    return DanseoError(message + hint.get(status, ""))


def _parse_constant(name: str) -> float:
    """Read -Infinity, which some servers write for a probability of 0; refuse NaN and Infinity."""
    if name == "-Infinity":
        return -math.inf
    raise ValueError(f"{name} is no number")


def _get_object(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a reply; one that is absent is empty."""
    found = document.get(name)
    if not isinstance(found, dict | None):
        raise TypeError(f"{name} is no object")
    return found or {}


def _read_message(document: dict[str, Any]) -> tuple[str, str | None]:
    """Return the text of a reply and why it ended; separate reasoning is put inside tags."""
    choice = document["choices"][0]
    finish = choice.get("finish_reason")
    message = choice["message"]
    if not isinstance(message, dict):
        raise TypeError("message is no object")
    text = content if isinstance(content := message.get("content"), str) else ""
    if isinstance(message.get("refusal"), str) and not text:
        return _as_text(message["refusal"]), "content_filter"
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thoughts, str) and thoughts:
        text = f"<think>{thoughts}</think>{text}" if text else f"<think>{thoughts}"
    return _as_text(text), _as_text(finish) if isinstance(finish, str) else None


def _as_text(text: str) -> str:
    """Return the text with U+FFFD in place of lone surrogates, which cannot be written to a file."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _sum_logprobs(document: dict[str, Any]) -> float | None:
    """Return the log-probability of the whole reply, if the server returns that of every token."""
    try:
        total = sum(check_logprob(token["logprob"]) for token in document["choices"][0]["logprobs"]["content"])
    except (LookupError, TypeError):
        return None
    return round(total, 6) if math.isfinite(total) else None


def _get_count(usage: dict[str, Any], name: str) -> int:
    """Return a number of tokens; 0 if the server does not report it."""
    value = usage.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return 0
    if value > _MAX_TOKENS:
        raise ValueError(f"{name} is too large")
    return value


def _count_cached(document: dict[str, Any], usage: dict[str, Any]) -> int:
    """Return the prompt tokens that were in the prefix cache; llama.cpp may report them only in its timings."""
    cached = _get_count(_get_object(usage, "prompt_tokens_details"), "cached_tokens")
    timings = document.get("timings")
    return cached or (_get_count(timings, "cache_n") if isinstance(timings, dict) else 0)


def _choose_wait(stated: str | None, attempt: int) -> float:
    """Return the seconds to wait: what the server asks for, else exponential backoff with jitter."""
    try:
        return min(_LONGEST_WAIT, max(0.0, float(stated or "")))
    except ValueError:
        return min(_LONGEST_WAIT, 0.5 * float(2 ** (attempt - 1)) * (1 + random.random() / 4))
