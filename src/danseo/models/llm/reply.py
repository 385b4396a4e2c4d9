"""Replies of language models: what was said after all thinking, the JSON in it, and what can be wrong with it."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

CLASSES = {
    "malformed": "no reply of the right shape; the whole reply counts as wrong",
    "truncated": "malformed, because the reply was cut off",
    "unclosed_think": "malformed, because the thinking never ended",
    "reasoning_exhausted": "malformed, because thinking used up all tokens",
    "refused": "malformed, because the model would not answer",
    "salvaged": "complete items taken from a reply that was cut off (only where asked for)",
    "not_in_text": "a text that does not stand in the example",
    "occ_out_of_range": "a text that does not occur that often",
    "occ_missing": "no occurrence named; the first one is taken (no mistake)",
    "unknown_type": "a label, type, relation or slot that does not exist",
    "out_of_range": "a number beyond its bounds",
    "wrong_length": "not one answer per word; the whole reply counts as wrong",
    "duplicate": "the same item again",
    "type_conflict": "the same text with another type; the first one counts",
    "overlap": "crosses a longer item, which counts",
}
"""Everything that can be found wrong with a reply."""
HARMLESS = ("occ_missing", "salvaged")
_CLOSING = re.compile(r"</(?:think|thinking|reasoning|thought)>")
_OPENING = re.compile(r"<(?:think|thinking|reasoning|thought)>")
_REFUSAL = re.compile(
    r"죄송|도와드릴 수 없|답변할 수 없|답할 수 없|제공할 수 없|I(?:'|’)?m sorry|I can(?:'|’)?t|I cannot|unable to",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reply:
    """What a reply says of its example; without an answer it has failed."""

    answer: Any = None
    errors: Counter[str] = field(default_factory=Counter)
    span: tuple[int, int] | None = None

    @property
    def has_failed(self) -> bool:
        return self.answer is None


class Malformed(Exception):
    """A reply of no use, and why."""

    def __init__(self, *classes: str) -> None:
        super().__init__(", ".join(classes))
        self.errors = Counter(dict.fromkeys(("malformed", *classes), 1))


def spoken(text: str, finish: str | None = None) -> str:
    """What comes after the last closing tag of thinking; nothing inside a block that never closes counts."""
    parts = _CLOSING.split(text)
    last = parts[-1]
    if _OPENING.search(last):
        raise Malformed("unclosed_think", *(("reasoning_exhausted",) if finish == "length" else ()))
    return last.strip()


def json_object(text: str, finish: str | None = None) -> tuple[dict[str, Any], int]:
    """The first JSON object of a reply, and how many keys stood in it twice; the first of them counts."""
    start = text.find("{")
    if start < 0:
        raise Malformed(*why_not(text, finish))
    repeated = 0

    def paired(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found: dict[str, Any] = {}
        for key, value in pairs:
            repeated += key in found
            found.setdefault(key, value)
        return found

    try:
        decoder = json.JSONDecoder(object_pairs_hook=paired, parse_constant=_refuse)
        document, _ = decoder.raw_decode(text, start)
        json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        raise Malformed(*why_not(text, finish)) from None
    return document, repeated


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def why_not(text: str, finish: str | None) -> tuple[str, ...]:
    """Why a reply holds nothing readable."""
    if finish == "length" or is_open(text):
        return ("truncated",)
    return ("refused",) if finish == "content_filter" or _REFUSAL.search(text) else ()


def is_open(text: str) -> bool:
    """Whether the text breaks off inside its first JSON object."""
    return next(iter(_ends(text)), None) is None and "{" in text


def is_complete(text: str) -> bool:
    """Whether the text holds a whole JSON object, so that a model need not go on."""
    return next(iter(_ends(text)), None) is not None


def _ends(text: str) -> Iterator[int]:
    """Where the first JSON object closes, by its braces outside of texts."""
    depth, is_text, is_escaped = 0, False, False
    for position, character in enumerate(text):
        if is_text:
            is_text, is_escaped = is_escaped or character != '"', character == "\\" and not is_escaped
        elif character == '"' and depth:
            is_text = True
        elif character in "{[" and (depth or character == "{"):
            depth += 1
        elif character in "}]" and depth:
            depth -= 1
            if not depth:
                yield position
                return
