"""What `danseo data describe` makes of files: kind, columns, separator, header and encoding, as a task file."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, DataError
from danseo.files import read_bytes
from danseo.tasks.own.description import Description
from danseo.tasks.own.tables import blocks_of, rows_of, suffix_of

_LOOKED_AT = 2000
_NAMES = {
    "id": ("id", "guid", "idx", "index", "번호"),
    "label": (
        "label", "gold_label", "answer", "score", "class", "category", "sentiment", "rating", "hate",
        "라벨", "레이블", "분류", "감정",
    ),
    "text": (
        "text", "document", "sentence1", "premise", "sentence", "context", "content", "review",
        "comment", "comments", "title",
        "문장", "내용", "텍스트", "리뷰", "본문", "제목",
    ),
    "pair": ("sentence2", "hypothesis", "question", "pair", "text2"),
}  # fmt: skip
_TAG = re.compile(r"O|[BI]-\S+")


def describe_files(files: Sequence[Path], out: Path) -> str:
    """The text of a task file for one file (a share is held out) or two (train and dev)."""
    if not 1 <= len(files) <= 2:
        raise DanseoError("name one file, or two: train and dev")
    path = files[0]
    encoding = _encoding(path)
    found: dict[str, Any] = {"encoding": encoding} if encoding != "utf-8" else {}
    base = Description(name=out.stem, folder=".", kind="classify", encoding=encoding)
    found |= _structure(path, base)
    places = [_relative(file, out) for file in files]
    if len(files) > 1 and found.get("label") and found["kind"] == "classify" and _differ_in_case(files, base, found):
        found["lower"] = True
    document = {"kind": found.pop("kind"), "train": places[0], "dev": places[1] if len(places) > 1 else 0.1, **found}
    return _written(document, path)


def _differ_in_case(files: Sequence[Path], base: Description, found: dict[str, Any]) -> bool:
    """Whether train and dev write the same labels with other capitals: TRUE and True."""
    given = {key: value for key, value in found.items() if key in ("separator", "header", "label")}
    seen = []
    for file in files:
        rows = islice(rows_of(file, replace(base, **given)), _LOOKED_AT)
        seen.append({str(row.values.get(found["label"])) for row in rows})
    return seen[0] != seen[1] and {x.lower() for x in seen[0]} == {x.lower() for x in seen[1]}


def _relative(file: Path, out: Path) -> str:
    try:
        return file.resolve().relative_to(out.resolve().parent).as_posix()
    except ValueError:
        return str(file.resolve())


def _encoding(path: Path) -> str:
    if suffix_of(path) == ".parquet":
        return "utf-8"
    content, line = read_bytes(path), 0
    for encoding in ("utf-8", "cp949"):
        try:
            content.decode(encoding)
            return encoding
        except UnicodeDecodeError as error:
            line = max(line, content[: error.start].count(b"\n") + 1)
    raise DataError(f"{path}, line {line}: neither UTF-8 nor CP949 throughout; convert the file to one encoding")


def _structure(path: Path, base: Description) -> dict[str, Any]:
    """Kind and columns."""
    suffix = suffix_of(path)
    if suffix == ".json" and _is_squad(path):
        return {"kind": "answer"}
    if suffix not in (".csv", ".json", ".jsonl", ".ndjson", ".parquet") and (kind := _conll(path, base)):
        return {"kind": kind}
    return _columns(path, base)


def _is_squad(path: Path) -> bool:
    try:
        document = json.loads(read_bytes(path))
        return isinstance(document, dict) and "paragraphs" in document["data"][0]
    except (ValueError, LookupError, TypeError):
        return False


def _conll(path: Path, base: Description) -> str | None:
    blocks = list(islice(blocks_of(path, base), 20))
    fields = [fields for _, _, lines in blocks for _, fields in lines]
    if fields and all(len(each) == 10 for each in fields) and all(re.fullmatch(r"[\d.-]+", f[0]) for f in fields):
        return "parse"
    tags = [each[-1] for each in fields]
    return "tag" if len(blocks) > 1 and all(_TAG.fullmatch(tag) for tag in tags) and set(tags) != {"O"} else None


def _columns(path: Path, base: Description) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if suffix_of(path) not in (".json", ".jsonl", ".ndjson", ".parquet"):
        found = _separation(path, base)
        base = replace(base, **found)
        found = {key: value for key, value in found.items() if value != getattr(Description, key, None)}
    rows = [row.values for row in islice(rows_of(path, base), _LOOKED_AT)]
    if not rows:
        raise DataError(f"{path} holds no rows; is it the right file?")
    return {**_roles(rows, path), **found}


def _separation(path: Path, base: Description) -> dict[str, Any]:
    """Separator and header, from the first lines."""
    lines = read_bytes(path).decode(base.encoding, errors="replace").splitlines()[:50]
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise DataError(f"{path} holds no rows; is it the right file?")
    counts = {mark: [line.count(mark) for line in lines] for mark in ("\t", ",", ";", "|")}
    due = "," if suffix_of(path) == ".csv" else "\t"
    mark = due if min(counts[due]) else max(counts, key=lambda m: (min(counts[m]), counts[m][0]))
    if not counts[mark][0]:
        raise DataError(f"{path}: no separator is to be seen in its first line; tabs or commas between columns are due")
    found: dict[str, Any] = {"separator": mark} if mark != due else {}
    first = [name.strip().strip('"').lstrip("\ufeff") for name in lines[0].split(mark)]
    known = {name for names in _NAMES.values() for name in names}
    is_header = any(name.casefold() in known for name in first) or not any(_is_number(name) for name in first)
    return found if is_header else {**found, "header": False}


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+]?\d+(\.\d+)?", text.strip()))


def _roles(rows: Sequence[Any], path: Path) -> dict[str, Any]:
    columns = [name for name in rows[0] if all(name in row for row in rows)]
    texts = {name: [str(row[name]) for row in rows] for name in columns}
    named = {
        role: next((c for n in names for c in columns if c.casefold() == n), None) for role, names in _NAMES.items()
    }
    entities = [name for name in columns if _is_entity(rows, name)]
    if len(entities) >= 2 and named["text"]:
        return _relation(named, entities, texts)
    if spans := next((name for name in columns if _is_spans(rows, name)), None):
        return {"kind": "tag", "text": named["text"] or _longest(texts, {spans}), "spans": spans}
    label = named["label"] or _fewest(texts)
    if label is None:
        raise DataError(f"{path}: no column looks like a label ({', '.join(columns)}); write the task file by hand")
    text = named["text"] if named["text"] != label else None
    text = text or _longest(texts, {label, named["id"] or ""})
    numbers = [value for value in texts[label] if _is_number(value)]
    is_score = len(numbers) == len(rows) and (len(set(numbers)) > 20 or any("." in value for value in numbers))
    found = {"kind": "score" if is_score else "classify", "text": text}
    found |= {"pair": named["pair"]} if named["pair"] and named["pair"] not in (label, text) else {}
    found |= {"label": label}
    ids = named["id"] and texts[named["id"]]
    return found | ({"id": named["id"]} if ids and len(set(ids)) == len(ids) else {})


def _relation(named: dict[str, Any], entities: Sequence[str], texts: dict[str, list[str]]) -> dict[str, Any]:
    subject = next((name for name in entities if "subj" in name.casefold()), entities[0])
    other = next(name for name in entities if name != subject)
    found = {"kind": "relation", "text": named["text"], "subject": subject, "object": other, "label": named["label"]}
    found |= {"id": named["id"]} if named["id"] else {}
    none = next((value for value in set(texts.get(named["label"], ())) if value.casefold() in _NOTHING), None)
    return found | ({"none": none} if none else {})


_NOTHING = ("no_relation", "none", "na", "무관", "없음", "관계없음", "other")


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


def _fewest(texts: dict[str, list[str]]) -> str | None:
    """The column with the fewest different values, if they repeat."""
    counts = {name: len(set(values)) for name, values in texts.items()}
    likely = {name: count for name, count in counts.items() if 2 <= count <= max(2, len(texts[name]) // 3)}
    return min(likely, key=lambda name: likely[name]) if likely else None


def _longest(texts: dict[str, list[str]], without: set[str]) -> str:
    return max((name for name in texts if name not in without), key=lambda name: sum(map(len, texts[name])))


_COMMENTS = {
    "kind": "classify, choose, score, tag, relation, parse or answer",
    "train": "paths start at this file",
    "dev": "a file, or the share of train that is held out",
    "text": "columns by name",
    "pair": "the second text",
    "label": "what is to be learnt",
    "id": "a column that tells rows apart",
    "none": "the label that says that there is nothing to find",
    "lower": "train and dev write the same labels with other capitals",
    "header": "columns are numbered: 1, 2, …",
}


def _written(document: dict[str, Any], path: Path) -> str:
    lines = [f"# Made from {path.name} by danseo data describe; read it through, then: danseo data check"]
    for key, value in document.items():
        line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
        lines.append(f"{line:38}  # {_COMMENTS[key]}" if key in _COMMENTS else line)
    return "\n".join(lines) + "\n"
