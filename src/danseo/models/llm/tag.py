"""Entities of a sentence, as triplets of text, type and occurrence, as inline tags, or as lines."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from danseo.metrics.tagging import spans_of
from danseo.models.llm.asking import Asking, Schema, compact, object_schema, only_key
from danseo.models.llm.reply import Malformed, Reply, is_open, spoken, why_not
from danseo.models.llm.spans import Composed, Span, composed, occurrence_of, occurrences
from danseo.records import TextExample

_MOST = 60
"""Entities of one sentence; the richest of KLUE has 23."""
Item = tuple[str, str, int]


class Tag(Asking):
    """A sentence and its entities."""

    reply_tokens: ClassVar[int] = 512

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(label[2:] for label in self.task.labels if label != "O"))

    def shown(self, example: TextExample) -> dict[str, str]:
        return {"text": example.text}

    def schema(self, example: Any) -> Schema | None:
        if self.config.shape != "json":
            return None
        item = object_schema(
            text={"type": "string"},
            type={"type": "string", "enum": list(self.names)},
            occ={"type": "integer", "minimum": 0, "maximum": 99},
        )
        return object_schema(entities={"type": "array", "items": item, "maxItems": _MOST})

    def grammar(self, example: TextExample) -> str | None:
        """Triplets whose text can only be copied from the sentence."""
        if self.config.shape != "json":
            return None
        types = " | ".join(json.dumps(name) for name in self.names)
        return (
            f'start: "{{\\"entities\\":[" (item ("," item){{0,{_MOST - 1}}})? "]}}"\n'
            f'item: "{{\\"text\\":\\"" TEXT "\\",\\"type\\":\\"" ({types}) "\\",\\"occ\\":" OCC "}}"\n'
            f"OCC: /[0-9]|[1-9][0-9]/\n{copied('TEXT', composed(example.text))}"
        )

    def gold(self, example: TextExample) -> str:
        text = composed(example.text)
        writer = _WRITERS[self.config.shape]
        return writer(text, list(spans_of(example.gold)) if text == example.text else _composed_spans(example))

    def wrong(self, example: TextExample) -> tuple[str, ...]:
        return ("O",) * len(example.text)

    def read(self, example: Any, text: str, finish: str | None = None) -> Reply:
        reply = super().read(example, text, finish)
        if reply.has_failed and self.config.salvage and reply.errors["truncated"]:
            return self._salvaged(example, text, reply)
        return reply

    def _salvaged(self, example: TextExample, text: str, reply: Reply) -> Reply:
        """The complete items of a reply that was cut off."""
        items = complete_items(spoken(text))
        if not items:
            return reply
        answer, errors = self._tags(example, items)
        return Reply(answer, errors + Counter(["salvaged"]))

    def _read(self, example: TextExample, text: str, finish: str | None) -> Reply:
        if self.config.shape == "inline":
            return Reply(*self._inline(example, text, finish))
        if self.config.shape == "tsv":
            return Reply(*self._tags(example, _lines(text, finish)))
        found, errors = only_key(text, "entities", finish)
        if not isinstance(found, list):
            raise Malformed
        answer, more = self._tags(example, [_item(item) for item in found])
        return Reply(answer, errors + more)

    def _tags(self, example: TextExample, items: Sequence[Item]) -> tuple[tuple[str, ...], Counter[str]]:
        """A tag per character from triplets, and what was wrong with them."""
        sentence, errors, spans = Composed(example.text), Counter[str](), list[Span]()
        for part, kind, number in items:
            if number is None:
                errors["occ_missing"] += 1
            problem, start = self._found(sentence.text, part, kind, number or 0)
            if problem:
                errors[problem] += 1
            else:
                spans.append((start, start + len(part), kind))
        kept = resolved(spans, errors)
        return tagged(len(example.text), [(*sentence.original(start, end), kind) for start, end, kind in kept]), errors

    def _found(self, text: str, part: str, kind: str, number: int) -> tuple[str, int]:
        """What is wrong with a triplet, or where it stands."""
        if kind not in self.names:
            return "unknown_type", -1
        starts = list(occurrences(text, part)) if part else []
        if not starts:
            return "not_in_text", -1
        return ("", starts[number]) if 0 <= number < len(starts) else ("occ_out_of_range", -1)

    def _inline(self, example: TextExample, text: str, finish: str | None) -> tuple[tuple[str, ...], Counter[str]]:
        """Tags written into the sentence; without them it has to be the sentence itself."""
        sentence, errors = Composed(example.text), Counter[str]()
        line = composed(text.split("\n")[0])
        bare, spans = _untagged(line)
        if bare.strip() != sentence.text.strip():
            raise Malformed(*why_not(text, finish))
        shift = len(sentence.text) - len(sentence.text.lstrip()) - (len(bare) - len(bare.lstrip()))
        known = [(start + shift, end + shift, kind) for start, end, kind in spans if kind in self.names]
        errors["unknown_type"] += len(spans) - len(known)
        kept = resolved(known, errors)
        tags = tagged(len(example.text), [(*sentence.original(start, end), kind) for start, end, kind in kept])
        return tags, +errors


def copied(name: str, text: str) -> str:
    """A terminal of a Lark grammar: any stretch of the text, as JSON writes it."""
    characters = [json.dumps(character, ensure_ascii=False)[1:-1] for character in text]
    chunks = json.dumps({"substring_chunks": characters}, ensure_ascii=False)
    return f"{name}: ANY_{name} & /(?s:.+)/\nANY_{name}: %regex {chunks}\n"


def resolved(spans: Sequence[Span], errors: Counter[str]) -> list[Span]:
    """Spans that do not cross, in order: repeated ones go, then the shorter of two that overlap."""
    first: dict[tuple[int, int], str] = {}
    for start, end, kind in spans:
        if (known := first.get((start, end))) is not None:
            errors["duplicate" if known == kind else "type_conflict"] += 1
        else:
            first[start, end] = kind
    kept: list[Span] = []
    for (start, end), kind in sorted(first.items(), key=lambda item: item[0][0] - item[0][1]):
        if any(start < other[1] and other[0] < end for other in kept):
            errors["overlap"] += 1
        else:
            kept.append((start, end, kind))
    return sorted(kept)


def tagged(length: int, spans: Sequence[Span]) -> tuple[str, ...]:
    """A tag per character."""
    tags = ["O"] * length
    for start, end, kind in spans:
        tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return tuple(tags)


def _item(item: Any) -> Any:
    """A triplet of the right shape; the occurrence may be left out."""
    if not isinstance(item, dict) or not isinstance(item.get("text"), str) or not isinstance(item.get("type"), str):
        raise Malformed
    number = item.get("occ", None)
    if "occ" in item and (isinstance(number, bool) or not isinstance(number, int)):
        raise Malformed
    return composed(item["text"]), item["type"], number


def complete_items(text: str) -> list[Item]:
    """The whole triplets of a reply that breaks off."""
    decoder, items = json.JSONDecoder(), list[Item]()
    match = re.search(r'"entities"\s*:\s*\[', text)
    position = match.end() if match else len(text)
    while position < len(text):
        try:
            found, position = decoder.raw_decode(text, position)
            items.append(_item(found))
        except (ValueError, RecursionError, Malformed):
            break
        comma = re.compile(r"\s*,\s*").match(text, position)
        if not comma:
            break
        position = comma.end()
    return items


def _lines(text: str, finish: str | None) -> list[Any]:
    """Triplets from lines of text, type and occurrence, up to the first empty line."""
    items: list[Any] = []
    lines = text.split("\n\n")[0].split("\n")
    if [line.strip() for line in lines] == ["-"]:
        return []
    for line in lines:
        part, kind, count = [*line.split("\t"), "0", ""][:3]
        if line.count("\t") not in (1, 2) or not re.fullmatch(r"\s*[0-9]{1,3}\s*", count):
            raise Malformed(*why_not(text, finish))
        items.append((composed(part), kind.strip(), int(count) if line.count("\t") == 2 else None))
    return items


def _untagged(line: str) -> tuple[str, list[Span]]:
    """The line without its tags, and the spans that they marked."""
    bare, spans, opened = "", list[Span](), list[tuple[int, str]]()
    for number, part in enumerate(re.split(r"<(/?[A-Z]{2,8})>", line)):
        if number % 2 == 0:
            bare += part
        elif not part.startswith("/"):
            opened.append((len(bare), part))
        else:
            start, kind = opened.pop() if opened else (-1, "")
            if kind != part[1:]:
                raise Malformed
            spans += [(start, len(bare), kind)] if start < len(bare) else []
    if opened:
        raise Malformed(*(("truncated",) if is_open(line) else ()))
    return bare, spans


def _composed_spans(example: TextExample) -> list[Span]:
    """Gold spans in the characters of the composed sentence."""
    ends = [len(composed(example.text[:count])) for count in range(len(example.text) + 1)]
    return [(ends[start], ends[end], kind) for start, end, kind in spans_of(example.gold)]


def _write_json(text: str, spans: Sequence[Span]) -> str:
    items = [
        {"text": text[start:end], "type": kind, "occ": occurrence_of(text, start, text[start:end])}
        for start, end, kind in spans
    ]
    return compact({"entities": items})


def _write_inline(text: str, spans: Sequence[Span]) -> str:
    written, last = "", 0
    for start, end, kind in spans:
        written += f"{text[last:start]}<{kind}>{text[start:end]}</{kind}>"
        last = end
    return written + text[last:]


def _write_lines(text: str, spans: Sequence[Span]) -> str:
    lines = [f"{text[s:e]}\t{kind}\t{occurrence_of(text, s, text[s:e])}" for s, e, kind in spans]
    return "\n".join(lines) or "-"


_WRITERS: dict[str, Callable[[str, Sequence[Span]], str]] = {
    "json": _write_json,
    "inline": _write_inline,
    "tsv": _write_lines,
}
