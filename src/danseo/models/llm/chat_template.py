"""Messages to tokens and back, by the model's chat template, rendered with time and memory limits."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from danseo.errors import DanseoError
from danseo.models.llm.formats.base import Message
from danseo.models.llm.reply import find_open_thought
from danseo.runs.provenance import get_peak_memory

_SECONDS = 5.0
_BYTES = 1 << 30
_LINES = 64  # between two memory checks


def render_limited(name: str, backend: Any, render: Callable[[], str]) -> str:
    """Return the rendered text; refuse a template that takes too much time or memory.

    The limits are checked at every line of the template; on Windows, only that of time. A power is refused before,
    since it may take for ever within one line.
    """
    if has_power(backend):
        raise DanseoError(f"{name}: its chat template computes a power (**), which no prompt needs; correct it")
    ends, most, lines = time.monotonic() + _SECONDS, (get_peak_memory() or 0) + _BYTES, 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        if time.monotonic() > ends or (lines % _LINES == 0 and (get_peak_memory() or 0) > most):
            sys.settrace(None)
            raise _OverLimitError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return render()
    except (_OverLimitError, MemoryError):
        raise DanseoError(
            f"{name}: its chat template takes longer than {_SECONDS:g} s or more than 1 GiB; correct it"
        ) from None
    finally:
        sys.settrace(before)


class _OverLimitError(BaseException):
    """A template exceeded its limits; no library catches this."""


def has_power(backend: Any) -> bool:
    """Return whether a template uses the operator ** between two values."""
    from jinja2 import Environment, TemplateError

    try:
        tokens = [(kind, text) for _, kind, text in Environment().lex(str(backend)) if kind != "whitespace"]
    except TemplateError:  # which the rendering reports
        return False
    return any(
        token == ("operator", "**") and before[1] not in ("(", ",")  # those of a call: f(**settings)
        for before, token in pairwise(tokens)
    )


_SAMPLE = "가나다"


class ChatTokenizer:
    """A tokenizer that renders prompts and replies."""

    def __init__(self, tokenizer: Any, think: str = "auto", ends: Sequence[int] = ()) -> None:
        self.tokenizer, self.think = tokenizer, think
        self.closes_thought = think == "off"
        self._known_ends = list(ends)
        if tokenizer.eos_token_id is None and not ends:
            raise DanseoError(f"{tokenizer.name_or_path}: its tokenizer has no end-of-text token (eos_token)")

    @property
    def is_chat(self) -> bool:
        """Whether the model has a chat template; others read plain text."""
        return bool(self.tokenizer.chat_template)

    @cached_property
    def thought(self) -> str:
        """The tag of the thought that the chat template opens before every reply; "" if it opens none."""
        messages = [{"role": role, "content": _SAMPLE} for role in ("system", "user")]
        return find_open_thought(self._render_chat(messages)) if self.is_chat else ""

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a prompt, the same in training and inference."""
        text = self._render_chat(messages) if self.is_chat else _plain(messages)
        if self.closes_thought and self.is_chat and (tag := find_open_thought(text)):
            text = f"{text.rstrip()}\n\n</{tag}>\n\n"
        ids: list[int] = self.tokenizer(text, add_special_tokens=not self.is_chat)["input_ids"]
        while not self.is_chat and ids and ids[-1] == self.tokenizer.eos_token_id:
            ids = ids[:-1]  # of tokenizers that end every text
        return ids

    def reply(self, text: str) -> list[int]:
        """Return the tokens of a reply without its end token."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Decode tokens."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    @cached_property
    def end(self) -> int:
        """The token that ends a reply: that of the chat template, or eos."""
        if self.is_chat:
            whole = self._render(
                [{"role": "user", "content": _SAMPLE}, {"role": "assistant", "content": _SAMPLE}], False
            )
            ending = whole.rpartition(_SAMPLE)[2]
            special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.added_tokens_decoder)
            tokens = self.tokenizer(ending, add_special_tokens=False)["input_ids"]
            if found := [token for token in tokens if token in special]:
                return int(found[0])
        ends = self._known_ends or [self.tokenizer.eos_token_id]
        return int(self.tokenizer.eos_token_id if self.tokenizer.eos_token_id is not None else ends[0])

    @property
    def ends(self) -> list[int]:
        """All tokens that end a reply."""
        own = [] if self.tokenizer.eos_token_id is None else [int(self.tokenizer.eos_token_id)]
        return list(dict.fromkeys([self.end, *own, *self._known_ends]))

    def _render_chat(self, messages: Sequence[Message]) -> str:
        """Render the chat template; without a system role, its text precedes the first question."""
        try:
            return self._render(messages, True)
        except TemplateFailed:
            first, second, *others = messages
            joined = {"role": "user", "content": f"{first['content']}\n\n{second['content']}"}
            return self._render([joined, *others], True)

    def _render(self, messages: Sequence[Message], asks: bool) -> str:
        options = {} if self.think == "auto" else {"enable_thinking": self.think == "on"}
        name, render = self.tokenizer.name_or_path, self.tokenizer.apply_chat_template
        try:
            return render_limited(
                name,
                self.tokenizer.chat_template,
                lambda: str(render(list(messages), tokenize=False, add_generation_prompt=asks, **options)),
            )
        except DanseoError:
            raise
        except Exception as error:  # a template may raise anything
            raise TemplateFailed(f"{name}: its chat template fails ({' '.join(str(error).split())[:120]})") from None


class TemplateFailed(DanseoError):
    """A chat template does not accept these messages."""


def _plain(messages: Sequence[Message]) -> str:
    """Return plain text: the task, shots with their replies, and the last question."""
    parts = [f"{message['content']}\n" + ("" if message["role"] == "user" else "\n") for message in messages]
    return "".join(parts)
