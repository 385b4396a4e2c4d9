"""Examples of a user's own data, one reader per kind."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.files import quote
from danseo.metrics.tagging import spans_of
from danseo.records import ChoiceExample, Entity, ParseExample, QuestionExample, RelationExample, TextExample
from danseo.rows import Row
from danseo.tasks.inputs import MOST_WORDS, text_of
from danseo.tasks.own.description import Description
from danseo.tasks.own.tables import blocks_of, rows_of, suffix_of

Check = Callable[[str], bool]
"""Whether a label is known; while labels are learnt, all are."""


def read_examples(path: Path, description: Description, known: Check) -> Iterator[Any]:
    """The examples of a file; guids are the id column, else the number of the example in the file."""
    kind = description.kind
    if kind == "tag" and not description.spans and not description.label:
        return _tagged(path, description, known)
    if kind == "parse":
        return _parsed(path, description, known)
    if kind == "answer":
        return _questions(path, description)
    makers: dict[str, Callable[[Row, int, Description, Check], Any]] = {
        "classify": _labelled,
        "labels": _several,
        "choose": _chosen,
        "score": _scored,
        "relation": _related,
        "tag": _spanned if description.spans else _token_lists,
    }
    rows = enumerate(rows_of(path, description), 1)
    return (makers[kind](row, number, description, known) for number, row in rows)


def guid_of(row: Row, number: int, description: Description) -> str:
    """The id column where it is named, else the example's number."""
    return word(row, description.id) if description.id else str(number)


def word(row: Row, key: str) -> str:
    """A field as a text: numbers and true or false are written out."""
    if key not in row.values:
        raise row.error(f"column {key!r} is missing; {row.remedy}")
    value = row.values[key]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if value is None:
        raise row.error(f"column {key!r} is empty")
    if not isinstance(value, str):
        raise row.error(f"column {key!r} should be a text or a number, not {quote(value)}")
    return row.text(key)


def label_of(row: Row, description: Description, known: Check) -> str:
    """The label, outer blanks cut off."""
    found = _plain(word(row, description.label), description)
    if not found:
        raise row.error(f"column {description.label!r} is empty; every row needs a label")
    return _known(found, row, description, known)


def _plain(label: str, description: Description) -> str:
    found = " ".join(label.split())
    return found.lower() if description.lower else found


def _known(label: str, row: Row, description: Description, known: Check) -> str:
    if not known(label):
        raise row.error(f"unknown label {quote(label)}; known: {', '.join(description.labels[:30])}")
    return label


def _group(row: Row, description: Description) -> str | None:
    return word(row, description.group) if description.group else None


def _texts(row: Row, description: Description) -> tuple[str, str | None]:
    return word(row, description.text), word(row, description.pair) if description.pair else None


def _labelled(row: Row, number: int, description: Description, known: Check) -> TextExample:
    text, pair = _texts(row, description)
    gold, guid = label_of(row, description, known), guid_of(row, number, description)
    return TextExample(guid, text=text, pair=pair, gold=gold, source=_group(row, description))


def _several(row: Row, number: int, description: Description, known: Check) -> TextExample:
    """A text with as many labels as it has, none among them."""
    text, pair = _texts(row, description)
    found = _listed(row, description) if description.label else _flagged(row, description)
    names = {_known(label, row, description, known) for label in found}
    position = {label: number for number, label in enumerate(description.labels)}
    gold = tuple(sorted(names, key=lambda label: (position.get(label, 0), label)))
    guid = guid_of(row, number, description)
    return TextExample(guid, text=text, pair=pair, gold=gold, source=_group(row, description))


def _listed(row: Row, description: Description) -> Iterator[str]:
    """The labels of a list, or of a text that is a JSON list or has a mark between them; an empty one has none."""
    key = description.label
    value = row.values.get(key)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value if '"' in value else value.replace("'", '"'))
        except (json.JSONDecodeError, RecursionError):
            raise row.error(f"column {key!r} should be a list of labels, not {quote(value)}") from None
    if value is None and key in row.values:
        value = []
    items = value if isinstance(value, list) else word(row, key).split(description.label_separator)
    for item in items:
        if not isinstance(item, str | int) or isinstance(item, bool):
            raise row.error(f"column {key!r} should hold labels, not {quote(item)}")
        if label := _plain(str(item), description):
            yield label


_FLAGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


def _flagged(row: Row, description: Description) -> Iterator[str]:
    """The labels whose columns hold 1."""
    for label in description.labels:
        found = word(row, label).strip().lower()
        if found not in _FLAGS:
            raise row.error(f"column {label!r} should be 0 or 1, not {quote(found)}")
        if _FLAGS[found]:
            yield label


def _chosen(row: Row, number: int, description: Description, known: Check) -> ChoiceExample:
    gold, guid = label_of(row, description, known), guid_of(row, number, description)
    return replace(choice_of(row, guid, description), gold=gold, source=_group(row, description))


def choice_of(row: Row, guid: str, description: Description) -> ChoiceExample:
    """The text (with the second one behind it, where there are two) and its candidates."""
    text, pair = _texts(row, description)
    choices = tuple(word(row, key) for key in description.choices)
    return ChoiceExample(guid, text=f"{text} {pair}" if pair else text, choices=choices, gold="")


def _scored(row: Row, number: int, description: Description, known: Check) -> TextExample:
    text, pair = _texts(row, description)
    found = word(row, description.label)
    try:
        gold = float(found)
    except ValueError:
        gold = math.nan
    if not math.isfinite(gold):
        raise row.error(f"column {description.label!r} should be a number, not {quote(found)}")
    return TextExample(
        guid_of(row, number, description), text=text, pair=pair, gold=gold, source=_group(row, description)
    )


def _related(row: Row, number: int, description: Description, known: Check) -> RelationExample:
    text = word(row, description.text)
    subject, other = (entity_of(row, key, text) for key in (description.subject, description.object))
    return RelationExample(
        guid_of(row, number, description),
        text=text,
        subject=subject,
        object=other,
        gold=label_of(row, description, known),
        source=_group(row, description),
    )


def entity_of(row: Row, key: str, text: str) -> Entity:
    """An entity: an object with start and end (exclusive) or start_idx and end_idx (inclusive), or a word."""
    value = row.values.get(key)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value.replace("'", '"') if '"' not in value else value)
        except json.JSONDecodeError:
            raise row.error(f"column {key!r} should be a JSON object, not {quote(value)}") from None
    if isinstance(value, dict):
        inner = Row(value, f"{row.where}, {key}")
        inclusive = "start_idx" in value
        start = inner.integer("start_idx" if inclusive else "start")
        end = inner.integer("end_idx") + 1 if inclusive else inner.integer("end")
        _check_span(inner, start, end, text)
        if isinstance(value.get("word"), str) and value["word"] != text[start:end]:
            raise inner.error(f"the text has {quote(text[start:end])} at {start}..{end}, not {quote(value['word'])}")
        kind = value.get("type") if isinstance(value.get("type"), str) else "entity"
        return Entity(text[start:end], start, end, str(kind))
    name = word(row, key)
    if not name or text.count(name) != 1:
        count = text.count(name) if name else 0
        raise row.error(f"{quote(name)} of column {key!r} stands in the text {count} times; give start and end")
    return Entity(name, text.index(name), text.index(name) + len(name), "entity")


def _check_span(row: Row, start: int, end: int, text: str) -> None:
    if not 0 <= start < end <= len(text):
        raise row.error(f"{start}..{end} does not lie in the text of {len(text)} characters; mend the span")


def _spanned(row: Row, number: int, description: Description, known: Check) -> TextExample:
    """A text with a list of spans: {"start": 0, "end": 3, "label": "PER"}, the end exclusive."""
    text = word(row, description.text)
    tags = ["O"] * len(text)
    spans = row.values.get(description.spans)
    if isinstance(spans, str):
        try:
            spans = json.loads(spans)
        except json.JSONDecodeError:
            spans = None
    if not isinstance(spans, list):
        raise row.error(f"column {description.spans!r} should be a list of spans")
    for position, span in enumerate(spans, 1):
        inner = Row(span if isinstance(span, dict) else {}, f"{row.where}, span {position}")
        start, end = inner.integer("start"), inner.integer("end")
        _check_span(inner, start, end, text)
        kind = inner.text("label" if "label" in inner.values else "type")
        if any(tag != "O" for tag in tags[start:end]):
            raise inner.error("it overlaps another span; keep one of them")
        tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
        _check_tag(f"B-{kind}", inner, description, known)
    return TextExample(guid_of(row, number, description), text=text, gold=tuple(tags), source=_group(row, description))


def _token_lists(row: Row, number: int, description: Description, known: Check) -> TextExample:
    """A list of tokens with a list of tags."""
    tokens, tags = (_texts_in(row, key) for key in (description.text, description.label))
    if len(tokens) != len(tags):
        raise row.error(f"{len(tokens)} tokens but {len(tags)} tags; one each is due")
    for tag in tags:
        _check_tag(tag, row, description, known)
    text, gold = spread(tokens, tags)
    return TextExample(guid_of(row, number, description), text=text, gold=gold, source=_group(row, description))


def _texts_in(row: Row, key: str) -> list[str]:
    value = row.values.get(key)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise row.error(f"column {key!r} should be a list of texts, not {quote(row.values.get(key))}")
    return value


def _check_tag(tag: str, row: Row, description: Description, known: Check) -> None:
    if tag != "O" and (tag[:2] not in ("B-", "I-") or len(tag) < 3):
        raise row.error(f"tag {quote(tag)} should be O, B-… or I-…")
    if not known(tag):
        raise row.error(f"unknown tag {quote(tag)}; known: {', '.join(description.labels[:30])}")


def _tagged(path: Path, description: Description, known: Check) -> Iterator[TextExample]:
    """Tokens with a tag each, the last field of a line; characters have the tags of their tokens."""
    for number, (_, _, lines) in enumerate(blocks_of(path, description), 1):
        tokens, tags = [], []
        for position, fields in lines:
            row = Row({}, f"{path}, line {position}")
            if len(fields) < 2:
                raise row.error("a token and its tag are due, with a tab or a blank between")
            _check_tag(fields[-1], row, description, known)
            tokens.append(fields[0])
            tags.append(fields[-1])
        text, gold = spread(tokens, tags)
        yield TextExample(str(number), text=text, gold=gold, source=None)


def spread(tokens: Sequence[str], tags: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The text and a tag per character; an I- that continues nothing begins its entity."""
    characters: list[str] = []
    before = "O"
    for position, (token, tag) in enumerate(zip(tokens, tags, strict=True)):
        begins = tag[:1] == "B" or (tag[:1] == "I" and before[1:] != tag[1:])
        if position:
            characters.append("O" if begins or tag == "O" else f"I{tag[1:]}")
        inner = f"I{tag[1:]}" if tag != "O" else "O"
        characters += [f"B{tag[1:]}" if begins else inner, *[inner] * (len(token) - 1)] if token else []
        before = tag
    return " ".join(tokens), tuple(characters)


def _parsed(path: Path, description: Description, known: Check) -> Iterator[ParseExample]:
    """Sentences of CoNLL-U; ranges (1-2) and empty nodes (1.1) are left out."""
    for number, (line, comments, lines) in enumerate(blocks_of(path, description), 1):
        words: list[tuple[int, list[str]]] = [(k, fields) for k, fields in lines if fields[0].isdigit()]
        gold = []
        for position, (at, fields) in enumerate(words, 1):
            row = Row({}, f"{path}, line {at}")
            if len(fields) < 8:
                raise row.error(f"{len(fields)} fields instead of 10; is this CoNLL-U?")
            head, relation = fields[6], fields[7]
            if fields[0] != str(position) or not head.isdigit() or int(head) > len(words):
                raise row.error(
                    f"word {quote(fields[0])} with head {quote(head)}: numbers from 0 to {len(words)} are due"
                )
            if not known(relation):
                raise row.error(f"unknown relation {quote(relation)}; known: {', '.join(description.labels[:30])}")
            gold.append((int(head), relation))
        if not words:
            raise DataError(f"{path}, line {line}: the sentence has no words")
        if len(words) > MOST_WORDS:
            raise DataError(f"{path}, line {line}: {len(words)} words, but at most {MOST_WORDS} are parsed; split it")
        named = dict(comment[1:].split("=", 1) for comment in comments if "=" in comment)
        guid = next((value.strip() for key, value in named.items() if key.strip() == "sent_id"), str(number))
        forms = tuple(fields[1] for _, fields in words)
        pos = tuple(fields[3] for _, fields in words)
        lemmas = tuple(fields[2] for _, fields in words)
        yield ParseExample(guid, words=forms, gold=tuple(gold), text=" ".join(forms), lemmas=lemmas, pos=pos)


def _questions(path: Path, description: Description) -> Iterator[QuestionExample]:
    """SQuAD's JSON, or rows with a passage, a question and an answer."""
    if suffix_of(path) == ".json" and not description.question:
        yield from _squad(path)
        return
    for number, row in enumerate(rows_of(path, description), 1):
        text = word(row, description.text)
        found = _answers(row, text, description)
        yield QuestionExample(
            guid_of(row, number, description),
            text=text,
            question=word(row, description.question),
            gold=tuple(answer for answer, _ in found),
            starts=tuple(start for _, start in found),
        )


def _answers(row: Row, text: str, description: Description) -> list[tuple[str, int]]:
    """The answers with their places: one in a column, or lists of them as {"text": […], "answer_start": […]}."""
    value = row.values.get(description.answer)
    if isinstance(value, dict):
        lists = [value.get(key) for key in ("text", "answer_start")]
        if not all(isinstance(each, list) for each in lists) or len(lists[0] or ()) != len(lists[1] or ()):
            raise row.error(f"column {description.answer!r} should have as many text as answer_start")
        pairs = zip(lists[0] or (), lists[1] or (), strict=True)
        return [_answer(Row({"text": one, "answer_start": start}, row.where), text) for one, start in pairs]
    answer = word(row, description.answer) if value not in (None, "") else ""
    if not answer:
        return []
    position = word(row, description.answer_start) if description.answer_start else str(text.find(answer))
    if not position.isdigit() or text[int(position) : int(position) + len(answer)] != answer:
        raise row.error(f"the answer {quote(answer)} is not in the passage at {quote(position)}; mend it")
    return [(answer, int(position))]


def _squad(path: Path) -> Iterator[QuestionExample]:
    from danseo.rows import read_object

    for document in read_object(path).children("data"):
        for paragraph in document.children("paragraphs"):
            text = paragraph.text("context")
            for qa in paragraph.children("qas"):
                spans = [] if qa.values.get("is_impossible") else [_answer(row, text) for row in qa.children("answers")]
                yield QuestionExample(
                    word(qa, "id" if "id" in qa.values else "guid"),
                    text=text,
                    question=qa.text("question"),
                    gold=tuple(answer for answer, _ in spans),
                    starts=tuple(start for _, start in spans),
                    title=document.optional_text("title"),
                )


def _answer(row: Row, text: str) -> tuple[str, int]:
    answer, start = row.text("text"), row.integer("answer_start")
    if start < 0 or not answer.strip() or text[start : start + len(answer)] != answer:
        raise row.error(
            f"the answer {quote(answer)} is not in its context at {quote(start)}; mend text or answer_start"
        )
    return answer, start


def labels_of(kind: str, example: Any) -> Iterator[str]:
    """The labels in an example's gold."""
    if kind in ("classify", "choose", "relation"):
        yield example.gold
    elif kind == "labels":
        yield from example.gold
    elif kind == "tag":
        yield from (f"B-{name}" for _, _, name in spans_of(example.gold))
    elif kind == "parse":
        yield from (relation for _, relation in example.gold)


def question_row(row: Row, guid: str, description: Description) -> QuestionExample:
    """A user's own question."""
    passage, question = description.text or "context", description.question or "question"
    return QuestionExample(guid, text=text_of(row, passage), question=text_of(row, question), gold=())
