"""Parsing of replies (reasoning removed, JSON extracted, errors classified), and statistics of errors."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from danseo.display.table import Table

CLASSES = {
    "malformed": "a reply in the wrong format; it counts as wrong",
    "truncated": "malformed, because the reply was truncated",
    "unclosed_think": "malformed, because the reasoning never ended",
    "reasoning_exhausted": "malformed, because reasoning used up all tokens",
    "refused": "malformed, because the model refused to answer",
    "salvaged": "complete items of a truncated reply (only if the settings say so)",
    "not_in_text": "a text that is not in the example",
    "occ_out_of_range": "a text that does not occur that often",
    "occ_missing": "no occurrence named; the first one is taken (no mistake)",
    "unknown_type": "a label, type, relation or slot that does not exist",
    "out_of_range": "a number beyond its bounds",
    "wrong_length": "not one answer per word; the whole reply counts as wrong",
    "duplicate": "the same item again",
    "type_conflict": "the same text with another type; the first one counts",
    "overlap": "crosses a longer item, which counts",
}
"""Error class -> meaning."""
MALFORMED_REASONS = ("truncated", "unclosed_think", "reasoning_exhausted", "refused")
INVALID_ITEMS = ("not_in_text", "occ_out_of_range", "unknown_type", "duplicate", "type_conflict", "overlap")
"""Error classes of single items, which are dropped and count as wrong."""
_CLOSING = re.compile(r"</(?:think|thinking|reasoning|thought)>")
_OPENING = re.compile(r"<(?:think|thinking|reasoning|thought)>")
_OPEN_AT_END = re.compile(r"<(think|thinking|reasoning|thought)>\s*$")
_BEFORE_OBJECT = re.compile(r"\s*(?:```\w*\s*)?")
_REFUSAL = re.compile(
    r"죄송|도와드릴 수 없|답변할 수 없|답할 수 없|제공할 수 없|I(?:'|’)?m sorry|I can(?:'|’)?t|I cannot|unable to",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reply:
    """The answer in a reply; without an answer it has failed."""

    answer: Any = None
    errors: Counter[str] = field(default_factory=Counter)
    span: tuple[int, int] | None = None

    @property
    def has_failed(self) -> bool:
        return self.answer is None


class MalformedReply(Exception):
    """A reply without a readable answer."""

    def __init__(self, *classes: str) -> None:
        super().__init__(", ".join(classes))
        self.errors = Counter(dict.fromkeys(("malformed", *classes), 1))


def strip_thoughts(text: str, finish: str | None = None) -> str:
    """Return the text after the reasoning; raise MalformedReply if the reasoning is not closed."""
    parts = _CLOSING.split(text)
    last = parts[-1]
    if _OPENING.search(last):
        raise MalformedReply("unclosed_think", *(("reasoning_exhausted",) if finish == "length" else ()))
    return last.strip()


def find_open_thought(prompt: str) -> str:
    """Return the tag of a thought that a prompt opens at its end, such as "think"; "" if there is none."""
    found = _OPEN_AT_END.search(prompt)
    return found[1] if found else ""


def is_thought_opened_by_prompt(replies: Iterable[str]) -> bool:
    """Return whether at least half of the replies close a thought that they did not open.

    Then the chat template of a server opens it, and a reply without a closing tag is an unclosed thought.
    """
    closings = [(text, _CLOSING.search(text)) for text in replies]
    bare = [text for text, closing in closings if closing and not _OPENING.search(text, 0, closing.start())]
    return len(bare) * 2 >= len(closings) > 0


def is_thought(text: str) -> bool:
    """Return whether a reply holds a tag of thinking."""
    return bool(_CLOSING.search(text) or _OPENING.search(text))


def mark_unclosed(text: str) -> str:
    """Return a reply to a prompt that opens a thought, with the opening tag if the thought is not closed."""
    return text if is_thought(text) else f"<think>{text}"


def begins_with_object(text: str) -> bool:
    """Return whether only blanks and a code fence precede the first JSON object."""
    before = _BEFORE_OBJECT.match(text)
    return text.startswith("{", before.end() if before else 0)


def json_object(text: str, finish: str | None = None) -> tuple[dict[str, Any], int]:
    """Return the first JSON object of a reply, and the number of repeated keys, of which the first counts."""
    start = text.find("{")
    if start < 0 or (finish == "length" and not begins_with_object(text)):  # cut off inside what may be a thought
        raise MalformedReply(*explain_failure(text, finish))
    repeated = 0

    def count_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found: dict[str, Any] = {}
        for key, value in pairs:
            repeated += key in found
            found.setdefault(key, value)
        return found

    try:
        decoder = json.JSONDecoder(object_pairs_hook=count_pairs, parse_constant=_refuse)
        document, _ = decoder.raw_decode(text, start)
        json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        raise MalformedReply(*explain_failure(text, finish)) from None
    return document, repeated


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def explain_failure(text: str, finish: str | None) -> tuple[str, ...]:
    """Return the reasons why a reply has no readable answer."""
    if finish == "length" or is_open(text):
        return ("truncated",)
    return ("refused",) if finish == "content_filter" or _REFUSAL.search(text) else ()


def is_open(text: str) -> bool:
    """Return whether the text ends inside its first JSON object."""
    return next(iter(_ends(text)), None) is None and "{" in text


def is_complete(text: str) -> bool:
    """Return whether the text contains a complete JSON object."""
    return next(iter(_ends(text)), None) is not None


def _ends(text: str) -> Iterator[int]:
    """Yield the end of the first JSON object, by its braces outside of strings."""
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


@dataclass
class ReplyStats:
    """Counts of all replies of a run."""

    asked: int = 0
    failed: int = 0
    failed_at_first: int = 0
    """Failed replies before any repair attempt."""
    classes: Counter[str] = field(default_factory=Counter)
    """Error class -> number of errors."""
    replies: Counter[str] = field(default_factory=Counter)
    """Error class -> number of replies that have it."""
    cuts: Counter[str] = field(default_factory=Counter)
    """Ways in which prompts were shortened -> number of prompts."""
    tokens_per_reply: dict[str, float] = field(default_factory=dict)
    """Mean number of prompt, cached and completion tokens of a reply; empty if the server does not report them."""

    def as_scores(self) -> dict[str, Any]:
        """Return the entries of scores.json: what every table reads, and the details of replies."""
        return {
            "failed_percent": self._percent(self.failed),
            "invalid_items": sum(self.classes[name] for name in INVALID_ITEMS),
            "extra_tables": [self.as_table().as_dict()],
            "replies": self.as_dict(),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return all counts as JSON values."""
        return {
            "asked": self.asked,
            "failed": self.failed,
            "failed_percent": self._percent(self.failed),
            "failed_at_first": self.failed_at_first,
            "failed_at_first_percent": self._percent(self.failed_at_first),
            "classes": dict(+self.classes),
            "replies_with": dict(+self.replies),
            **({"fitted": dict(+self.cuts)} if +self.cuts else {}),
            **({"tokens_per_reply": self.tokens_per_reply} if self.tokens_per_reply else {}),
        }

    def as_table(self) -> Table:
        """Return the counts as a table."""
        rows: list[tuple[object, ...]] = [
            ("prompted examples", self.asked),
            ("failed", self.failed),
            ("failed %", self._percent(self.failed)),
            ("failed before repair %", self._percent(self.failed_at_first)),
            *((_name_class(name), count) for name, count in (+self.classes).items()),
            *((name.replace("_", " "), count) for name, count in (+self.cuts).items()),
            *((f"{name} tokens per reply", count) for name, count in self.tokens_per_reply.items()),
        ]
        return Table("replies of the language model", ("count", "value"), rows, "failed replies count as wrong")

    def _percent(self, count: int) -> float:
        return round(count * 100 / max(1, self.asked), 4)


def _name_class(name: str) -> str:
    """Return the name of an error class; the reasons of malformed replies are part of that class."""
    text = name.replace("_", " ")
    return f"malformed, of these {text}" if name in MALFORMED_REASONS else text
