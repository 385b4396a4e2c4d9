"""Tagging prompts: entities as JSON (text, type, occurrence), as inline tags, or as lines."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from danseo.metrics.tagging import list_entities
from danseo.models.base import Answers
from danseo.models.entity_spans import EntitySpan, make_certain_answers, make_tags
from danseo.models.llm.formats.base import PromptFormat, Schema, object_schema, read_key_value, to_compact_json
from danseo.models.llm.reply import MalformedReply, Reply, begins_with_object, explain_failure, is_open, strip_thoughts
from danseo.records import Prediction, TextExample
from danseo.tasktypes.tagging import get_entity_types
from danseo.text.normalization import compose, normalize_text

Span = tuple[int, int, str]


def occurrences(text: str, part: str) -> Iterator[int]:
    """Yield the start of every occurrence of a part; occurrences may overlap."""
    position = text.find(part)
    while position >= 0:
        yield position
        position = text.find(part, position + 1)


def occurrence_of(text: str, start: int, part: str) -> int:
    """Return the number of the occurrence that begins at start, counted from 0."""
    return sum(position < start for position in occurrences(text, part))


class NfcText:
    """An NFC-normalized text that maps its spans back to the original text."""

    def __init__(self, text: str) -> None:
        self.text, self._letters = compose(text), normalize_text(text)

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the same span in the original text."""
        return self._letters.to_original([(start, end)])[0]


_MOST = 60
"""Maximum number of entities in a reply; no sentence of KLUE has more than 23."""
Item = tuple[str, str, int]


class TaggingFormat(PromptFormat):
    """The entities of a sentence."""

    output_formats: ClassVar[tuple[str, ...]] = ("json", "inline", "tsv")
    reply_tokens: ClassVar[int] = 512

    @property
    def label_names(self) -> tuple[str, ...]:
        return get_entity_types(self.task.labels)

    def schema(self, example: Any) -> Schema | None:
        if self.config.output_format != "json":
            return None
        item = object_schema(
            text={"type": "string"},
            type={"type": "string", "enum": list(self.label_names)},
            occ={"type": "integer", "minimum": 0, "maximum": 99},
        )
        return object_schema(entities={"type": "array", "items": item, "maxItems": _MOST})

    def grammar(self, example: TextExample) -> str | None:
        """Allow only entities whose text is copied from the sentence."""
        if self.config.output_format != "json":
            return None
        written = (json.dumps(name, ensure_ascii=False)[1:-1] for name in self.label_names)
        types = " | ".join(json.dumps(name, ensure_ascii=False) for name in written)
        return (
            f'start: "{{\\"entities\\":[" (item ("," item){{0,{_MOST - 1}}})? "]}}"\n'
            f'item: "{{\\"text\\":\\"" TEXT "\\",\\"type\\":\\"" ({types}) "\\",\\"occ\\":" OCC "}}"\n'
            f"OCC: /[0-9]|[1-9][0-9]/\n{make_substring_rule('TEXT', compose(example.text))}"
        )

    def gold_reply(self, example: TextExample) -> str:
        text = compose(example.text)
        writer = _WRITERS[self.config.output_format]
        return writer(text, list(list_entities(example.gold)) if text == example.text else _composed_spans(example))

    def make_answers(self, examples: Sequence[Any], predictions: list[Prediction]) -> Answers:
        return make_certain_answers(self.task, examples, predictions)

    def failed_answer(self, example: TextExample) -> tuple[str, ...]:
        return ("O",) * len(example.text)

    def parse_reply(self, example: Any, text: str, finish: str | None = None) -> Reply:
        reply = super().parse_reply(example, text, finish)
        if reply.has_failed and self.config.keep_truncated and reply.errors["truncated"]:
            return self._keep_complete_items(example, text, reply)
        return reply

    def _keep_complete_items(self, example: TextExample, text: str, reply: Reply) -> Reply:
        """Use the complete entities of a truncated reply."""
        visible = strip_thoughts(text)
        items = read_complete_items(visible) if begins_with_object(visible) else []
        if not items:
            return reply
        answer, errors = self._tags(example, items)
        return Reply(answer, errors + Counter(["salvaged"]))

    def _parse(self, example: TextExample, text: str, finish: str | None) -> Reply:
        if self.config.output_format == "inline":
            return Reply(*self._inline(example, text, finish))
        if self.config.output_format == "tsv":
            return Reply(*self._tags(example, _parse_lines(text, finish)))
        found, errors = read_key_value(text, "entities", finish)
        if not isinstance(found, list):
            raise MalformedReply
        answer, more = self._tags(example, [_check_item(item) for item in found])
        return Reply(answer, errors + more)

    def _tags(self, example: TextExample, items: Sequence[Item]) -> tuple[tuple[str, ...], Counter[str]]:
        """Return a tag per character from entities, and the errors found."""
        sentence, errors, spans = NfcText(example.text), Counter[str](), list[Span]()
        for part, type_, number in items:
            if number is None:
                errors["occ_missing"] += 1
            problem, start = self._find(sentence.text, part, type_, number or 0)
            if problem:
                errors[problem] += 1
            else:
                spans.append((start, start + len(part), type_))
        return _tag_spans(example, sentence, resolve_overlaps(spans, errors)), errors

    def _find(self, text: str, part: str, type_: str, number: int) -> tuple[str, int]:
        """Return the error of an entity, or where it starts."""
        if type_ not in self.label_names:
            return "unknown_type", -1
        starts = list(occurrences(text, part)) if part else []
        if not starts:
            return "not_in_text", -1
        return ("", starts[number]) if 0 <= number < len(starts) else ("occ_out_of_range", -1)

    def _inline(self, example: TextExample, text: str, finish: str | None) -> tuple[tuple[str, ...], Counter[str]]:
        """Parse inline tags; without them the reply must equal the sentence."""
        sentence, errors = NfcText(example.text), Counter[str]()
        line = compose(text.split("\n")[0])
        bare, spans = _remove_tags(line, self.label_names)
        if bare.strip() != sentence.text.strip():
            raise MalformedReply(*explain_failure(text, finish))
        shift = len(sentence.text) - len(sentence.text.lstrip()) - (len(bare) - len(bare.lstrip()))
        known = [(start + shift, end + shift, type_) for start, end, type_ in spans if type_ in self.label_names]
        errors["unknown_type"] += len(spans) - len(known)
        return _tag_spans(example, sentence, resolve_overlaps(known, errors)), +errors


def _tag_spans(example: TextExample, sentence: NfcText, spans: Sequence[Span]) -> tuple[str, ...]:
    """Return a tag per character of the original text."""
    return make_tags(len(example.text), [EntitySpan(*sentence.original(a, b), type_) for a, b, type_ in spans])


def make_substring_rule(name: str, text: str) -> str:
    """Return a Lark terminal that matches any substring of the text, escaped as in JSON."""
    characters = [json.dumps(character, ensure_ascii=False)[1:-1] for character in text]
    chunks = json.dumps({"substring_chunks": characters}, ensure_ascii=False)
    return f"{name}: ANY_{name} & /(?s:.+)/\nANY_{name}: %regex {chunks}\n"


def resolve_overlaps(spans: Sequence[Span], errors: Counter[str]) -> list[Span]:
    """Drop repeated spans and the shorter of two that overlap; return the others in order."""
    first: dict[tuple[int, int], str] = {}
    for start, end, type_ in spans:
        if (known := first.get((start, end))) is not None:
            errors["duplicate" if known == type_ else "type_conflict"] += 1
        else:
            first[start, end] = type_
    kept: list[Span] = []
    for (start, end), type_ in sorted(first.items(), key=lambda item: item[0][0] - item[0][1]):
        if any(start < other[1] and other[0] < end for other in kept):
            errors["overlap"] += 1
        else:
            kept.append((start, end, type_))
    return sorted(kept)


def _check_item(item: Any) -> Any:
    """Validate an entity; the occurrence is optional."""
    if not isinstance(item, dict) or not isinstance(item.get("text"), str) or not isinstance(item.get("type"), str):
        raise MalformedReply
    number = item.get("occ", None)
    if "occ" in item and (isinstance(number, bool) or not isinstance(number, int)):
        raise MalformedReply
    return compose(item["text"]), item["type"], number


def read_complete_items(text: str) -> list[Item]:
    """Return the complete entities of a truncated reply."""
    decoder, items = json.JSONDecoder(), list[Item]()
    match = re.search(r'"entities"\s*:\s*\[', text)
    position = match.end() if match else len(text)
    while position < len(text):
        try:
            found, position = decoder.raw_decode(text, position)
            items.append(_check_item(found))
        except (ValueError, RecursionError, MalformedReply):
            break
        comma = re.compile(r"\s*,\s*").match(text, position)
        if not comma:
            break
        position = comma.end()
    return items


def _parse_lines(text: str, finish: str | None) -> list[Any]:
    """Parse lines of text, type and occurrence, up to the first empty line."""
    items: list[Any] = []
    lines = text.split("\n\n")[0].split("\n")
    if [line.strip() for line in lines] == ["-"]:
        return []
    for line in lines:
        part, type_, count = [*line.split("\t"), "0", ""][:3]
        if line.count("\t") not in (1, 2) or not re.fullmatch(r"\s*[0-9]{1,3}\s*", count):
            raise MalformedReply(*explain_failure(text, finish))
        items.append((compose(part), type_.strip(), int(count) if line.count("\t") == 2 else None))
    return items


def _remove_tags(line: str, names: Sequence[str]) -> tuple[str, list[Span]]:
    """Return the line without its tags, and the spans of the tags; names are the known types."""
    tag = "|".join(["[A-Z]{2,8}", *map(re.escape, names)])
    bare, spans, opened = "", list[Span](), list[tuple[int, str]]()
    for number, part in enumerate(re.split(f"<(/?(?:{tag}))>", line)):
        if number % 2 == 0:
            bare += part
        elif not part.startswith("/"):
            opened.append((len(bare), part))
        else:
            start, type_ = opened.pop() if opened else (-1, "")
            if type_ != part[1:]:
                raise MalformedReply
            spans += [(start, len(bare), type_)] if start < len(bare) else []
    if opened:
        raise MalformedReply(*(("truncated",) if is_open(line) else ()))
    return bare, spans


def _composed_spans(example: TextExample) -> list[Span]:
    """Return the gold spans in characters of the NFC-normalized sentence."""
    text = example.text
    return [(len(compose(text[:a])), len(compose(text[:b])), type_) for a, b, type_ in list_entities(example.gold)]


def _write_json(text: str, spans: Sequence[Span]) -> str:
    items = [
        {"text": text[start:end], "type": type_, "occ": occurrence_of(text, start, text[start:end])}
        for start, end, type_ in spans
    ]
    return to_compact_json({"entities": items})


def _write_inline(text: str, spans: Sequence[Span]) -> str:
    written, last = "", 0
    for start, end, type_ in spans:
        written += f"{text[last:start]}<{type_}>{text[start:end]}</{type_}>"
        last = end
    return written + text[last:]


def _write_lines(text: str, spans: Sequence[Span]) -> str:
    lines = [f"{text[s:e]}\t{type_}\t{occurrence_of(text, s, text[s:e])}" for s, e, type_ in spans]
    return "\n".join(lines) or "-"


_WRITERS: dict[str, Callable[[str, Sequence[Span]], str]] = {
    "json": _write_json,
    "inline": _write_inline,
    "tsv": _write_lines,
}
