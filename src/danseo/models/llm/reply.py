"""Parsing of replies (reasoning, JSON, errors), statistics of errors, and label log-probabilities of servers."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


ALTERNATIVES = 20
"""Maximum number of alternatives per token that servers return."""
_MAX_UNKNOWN = 0.01
"""Maximum share of probability that may be in tokens that were not returned."""


@dataclass(frozen=True)
class TokenLogprobs:
    """A token of a reply with its log-probability and its alternatives."""

    token: bytes
    logprob: float
    others: tuple[tuple[bytes, float], ...]


def read_token_logprobs(document: Mapping[str, Any]) -> list[TokenLogprobs] | None:
    """Return the tokens of a chat completion; None if the server returns no alternatives."""
    try:
        steps = [_read_step(entry) for entry in document["choices"][0]["logprobs"]["content"]]
    except (LookupError, TypeError, AttributeError):
        return None
    return steps if steps and any(step.others for step in steps) else None


def _read_step(entry: Mapping[str, Any]) -> TokenLogprobs:
    token = _read_bytes(entry)
    others = ((_read_bytes(other), check_logprob(other["logprob"])) for other in entry.get("top_logprobs") or ())
    return TokenLogprobs(
        token,
        check_logprob(entry["logprob"]),
        tuple(pair for pair in others if pair[0] != token and pair[1] > -math.inf),
    )


def check_logprob(value: Any) -> float:
    """Return a log-probability; raise ValueError for NaN or a positive number."""
    logprob = float(value)
    if not logprob < 1:
        raise ValueError(f"{logprob} is no log-probability")
    return logprob


def _read_bytes(entry: Mapping[str, Any]) -> bytes:
    """Return the bytes of a token, which may be part of a syllable."""
    values = entry.get("bytes")
    return bytes(values) if isinstance(values, list) and values else str(entry["token"]).encode()


def compute_label_logprobs(steps: Sequence[TokenLogprobs], replies: Mapping[str, str]) -> dict[str, float] | None:
    """Return label -> log-probability, from the tokens at which replies of labels differ.

    Return None if the reply is no label, or if more than a hundredth of the probability is not assigned to one label:
    it is outside of the alternatives, or in one that several labels share.
    """
    written = {label: _strip_whitespace(text.encode()) for label, text in replies.items()}
    if len(set(written.values())) < len(written):
        return None
    found: dict[str, float] = {}
    so_far, logprob, unknown = b"", 0.0, 0.0
    for step in steps:
        candidates = _match_labels(so_far, written)
        if len(candidates) < 2:
            break
        for token, alone in step.others:
            fits = _match_labels(so_far + token, written)
            if len(fits) == 1:
                found[fits[0]] = _add_logs(found.get(fits[0]), logprob + alone)
            elif fits:
                unknown += math.exp(logprob + alone)
        known = math.exp(step.logprob) + sum(math.exp(alone) for _, alone in step.others)
        unknown += math.exp(logprob) * max(0.0, 1 - known)
        so_far, logprob = _strip_whitespace(so_far + step.token), logprob + step.logprob
    candidates = _match_labels(so_far, written)
    if len(candidates) != 1:
        return None
    found[candidates[0]] = _add_logs(found.get(candidates[0]), logprob)
    if unknown > _MAX_UNKNOWN * sum(map(math.exp, found.values())) or not all(map(math.isfinite, found.values())):
        return None
    return {label: round(found[label], 6) for label in replies if label in found}


def _match_labels(begun: bytes, written: Mapping[str, bytes]) -> list[str]:
    """Return the labels whose replies begin like this, ignoring whitespace."""
    begun = _strip_whitespace(begun)
    return [label for label, text in written.items() if text.startswith(begun) or begun.startswith(text)]


def _strip_whitespace(text: bytes) -> bytes:
    return b"".join(text.split())


def _add_logs(old: float | None, new: float) -> float:
    """Return the log of the sum of two probabilities given as logs."""
    if old is None:
        return new
    high, low = max(old, new), min(old, new)
    return high + math.log1p(math.exp(low - high))
