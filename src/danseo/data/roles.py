"""What the columns of a table are, going by their names and what they hold: text, label, candidates, group."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DataError

NAMES = {
    "id": ("id", "guid", "idx", "index", "번호"),
    "label": (
        "label", "labels", "gold_label", "answer", "score", "class", "category", "categories", "sentiment", "rating",
        "hate", "tags", "라벨", "레이블", "분류", "감정", "태그",
    ),
    "text": (
        "text", "document", "sentence1", "premise", "sentence", "context", "content", "review",
        "comment", "comments", "title",
        "문장", "내용", "텍스트", "리뷰", "본문", "제목",
    ),
    "pair": ("sentence2", "hypothesis", "question", "pair", "text2"),
    "group": (
        "group", "author", "user", "user_id", "author_id", "doc_id", "document_id", "article_id", "dialogue_id",
        "speaker", "작성자", "사용자", "문서번호",
    ),
}  # fmt: skip
_NOTHING = ("no_relation", "none", "na", "무관", "없음", "관계없음", "other")
_CHOICE = re.compile(
    r"(choice|option|ending|alternative|candidate|answer|보기|선택지)?[ _-]?([0-9]|[a-e])", re.IGNORECASE
)
TAG = re.compile(r"O|[BI]-\S+")
_MARKS = "|;,"
_SHARED = 0.1  # of the rows have a first text that another row has, too: the text makes a group
_LONGEST = 40  # characters of a label
_Texts = Mapping[str, Sequence[str]]


def is_number(text: str) -> bool:
    """Whether a text is a number: 3, -1.5."""
    return bool(re.fullmatch(r"[-+]?\d+(\.\d+)?", text.strip()))


def roles_of(rows: Sequence[Any], path: Path) -> dict[str, Any]:
    """The kind of a table and its columns, as a task file names them."""
    columns = [name for name in rows[0] if all(name in row for row in rows)]
    texts = {name: [str(row[name]) for row in rows] for name in columns}
    named = {
        role: next((c for n in names for c in columns if c.casefold() == n), None) for role, names in NAMES.items()
    }
    entities = [name for name in columns if _is_entity(rows, name)]
    if len(entities) >= 2 and named["text"]:
        return _relation(named, entities, texts)
    if spans := next((name for name in columns if _is_spans(rows, name)), None):
        return {"kind": "tag", "text": named["text"] or _longest(texts, {spans}), "spans": spans}
    if asked := _asked(rows, columns):
        return asked | _besides(texts, named, asked)
    if tagged := _tagged(rows, columns):
        return tagged
    if several := _several(rows, texts, named):
        return several | _besides(texts, named, several)
    label = named["label"] or _fewest(texts)
    if label is None:
        raise DataError(f"{path}: no column looks like a label ({', '.join(columns)}); write the task file by hand")
    return _labelled(texts, named, label)


def _asked(rows: Sequence[Any], columns: Sequence[str]) -> dict[str, Any] | None:
    """Passages with questions, and answers with their places."""
    found = {"kind": "answer", "text": "context", "question": "question"}
    if not {"context", "question"} <= set(columns):
        return None
    if {"answer", "answer_start"} <= set(columns):
        return found | {"answer": "answer", "answer_start": "answer_start"}
    is_listed = "answers" in columns and all(isinstance(row["answers"], dict) for row in rows)
    return found | {"answer": "answers"} if is_listed else None


def _tagged(rows: Sequence[Any], columns: Sequence[str]) -> dict[str, Any] | None:
    """A column of lists of tokens, and one of as many tags."""
    lists = [name for name in columns if _is_listed(rows, name)]
    tags = [name for name in lists if all(TAG.fullmatch(tag) for row in rows for tag in row[name])]
    for tag in tags:
        for name in lists:
            if name not in tags and all(len(row[name]) == len(row[tag]) for row in rows):
                return {"kind": "tag", "text": name, "label": tag}
    return None


def _labelled(texts: _Texts, named: Mapping[str, str | None], label: str) -> dict[str, Any]:
    """One label or number for each row, or the number of the candidate that is right."""
    text = _text(texts, named, {label})
    found: dict[str, Any] = {"kind": "score" if _is_score(texts[label]) else "classify", "text": text}
    found |= {"pair": named["pair"]} if named["pair"] and named["pair"] not in (label, text) else {}
    choices = _choices(texts, label, {text, named["pair"] or ""})
    if choices:
        found |= {"kind": "choose", "choices": choices}
    found |= {"label": label}
    return found | _besides(texts, named, found)


def _text(texts: _Texts, named: Mapping[str, str | None], others: set[str]) -> str:
    found = named["text"] if named["text"] not in others else None
    return found or _longest(texts, {*others, named["id"] or ""})


def _is_score(values: Sequence[str]) -> bool:
    numbers = [value for value in values if is_number(value)]
    return len(numbers) == len(values) and (len(set(numbers)) > 20 or any("." in value for value in numbers))


def _besides(texts: _Texts, named: Mapping[str, str | None], found: Mapping[str, Any]) -> dict[str, Any]:
    """What tells rows apart, and what belongs together."""
    more = {}
    if (id_ := named["id"]) and len(set(texts[id_])) == len(texts[id_]):
        more["id"] = id_
    group, rows = named["group"], len(texts[found["text"]])
    if group and 1 < len(set(texts[group])) < rows:
        more["group"] = group
    elif found.get("pair") and rows - len(set(texts[found["text"]])) >= max(2, _SHARED * rows):
        more["group"] = found["text"]  # several rows about the same text
    return more


def _choices(texts: _Texts, label: str, others: set[str]) -> list[str]:
    """Numbered columns of texts, as many as there are labels."""
    likely = [name for name in texts if name not in others and name != label and _CHOICE.fullmatch(name.strip())]
    stems = {(_CHOICE.fullmatch(name.strip()) or [""])[1] for name in likely}
    labels = len(set(texts[label]))
    are_texts = all(not all(map(is_number, texts[name])) for name in likely)
    return likely if len(likely) >= 2 and len(stems) == 1 and labels == len(likely) and are_texts else []


def _several(rows: Sequence[Any], texts: _Texts, named: Mapping[str, str | None]) -> dict[str, Any] | None:
    """A column of lists of labels, one with marks between labels, or columns that hold 0 or 1."""
    lists = [name for name in texts if _is_listed(rows, name)]
    label = named["label"] if named["label"] in lists else next(iter(lists), None)
    mark = "" if label or not named["label"] else _mark(texts[named["label"]])
    label = label or (named["label"] if mark else None)
    flags = [name for name, values in texts.items() if set(values) == {"0", "1"}]
    if not label and (len(flags) < 3 or named["label"]):
        return None
    text = _text(texts, named, {label} if label else set(flags))
    found: dict[str, Any] = {"kind": "labels", "text": text}
    found |= {"pair": named["pair"]} if named["pair"] and named["pair"] not in (label, text) else {}
    if not label:
        return found | {"labels": flags}
    return found | {"label": label} | ({"label_separator": mark} if mark not in ("", ",") else {})


def _is_listed(rows: Sequence[Any], name: str) -> bool:
    found = [row[name] for row in rows if row[name]]
    return bool(found) and all(isinstance(v, list) and all(isinstance(item, str) for item in v) for v in found)


def _mark(values: Sequence[str]) -> str:
    """What stands between labels: a mark that makes few short parts of many different values."""
    for mark in _MARKS:
        parts = [part.strip() for value in values for part in value.split(mark)]
        is_used = len(parts) > len(values) and max(map(len, parts)) <= _LONGEST
        if is_used and len(set(parts)) < len(set(values)) and 4 * len(set(parts)) <= len(parts):
            return mark
    return ""


def _relation(named: Mapping[str, Any], entities: Sequence[str], texts: _Texts) -> dict[str, Any]:
    subject = next((name for name in entities if "subj" in name.casefold()), entities[0])
    other = next(name for name in entities if name != subject)
    found = {"kind": "relation", "text": named["text"], "subject": subject, "object": other, "label": named["label"]}
    found |= _besides(texts, named, found)
    none = next((value for value in set(texts.get(named["label"], ())) if value.casefold() in _NOTHING), None)
    return found | ({"none": none} if none else {})


def _is_entity(rows: Sequence[Any], name: str) -> bool:
    value = rows[0][name]
    return (isinstance(value, dict) and ("start_idx" in value or "start" in value)) or (
        isinstance(value, str) and value.startswith("{") and "start" in value
    )


def _is_spans(rows: Sequence[Any], name: str) -> bool:
    found = [row[name] for row in rows if row[name]]
    return bool(found) and all(
        isinstance(v, list) and isinstance(v[0], dict) and {"start", "end"} <= v[0].keys() for v in found
    )


def _fewest(texts: _Texts) -> str | None:
    """The column with the fewest different values, if they repeat."""
    counts = {name: len(set(values)) for name, values in texts.items()}
    likely = {name: count for name, count in counts.items() if 2 <= count <= max(2, len(texts[name]) // 3)}
    return min(likely, key=lambda name: likely[name]) if likely else None


def _longest(texts: _Texts, without: set[str]) -> str:
    return max((name for name in texts if name not in without), key=lambda name: sum(map(len, texts[name])))
