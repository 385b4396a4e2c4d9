"""Infer a task file from data files for `danseo data describe`: type, columns, separator, header, encoding."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from danseo.encodings import detect_encoding
from danseo.errors import DanseoError, DataError
from danseo.files import make_encoding_error, open_unpacked, read_bytes
from danseo.language import _
from danseo.tasks.custom.annotations import count_clean_readings, doccano_offsets, is_binary, is_brat, recognise_format
from danseo.tasks.custom.tables import (
    fetch_hub_file,
    get_suffix,
    open_data_file,
    parse_hub_name,
    read_conll,
    read_table,
)
from danseo.tasktypes import CUSTOM_TYPES
from danseo.tasktypes.description import TaskDescription

_COLUMN_NAMES = {
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
_NO_RELATION_NAMES = ("no_relation", "none", "na", "무관", "없음", "관계없음", "other")
_CHOICE = re.compile(
    r"(choice|option|ending|alternative|candidate|answer|보기|선택지)?[ _-]?([0-9]|[a-e])", re.IGNORECASE
)
_TAG = re.compile(r"O|[BI]-\S+")
_LABEL_SEPARATORS = "|;,"
_SHARED_TEXTS = 0.1  # share of rows with the text of another row, from which the text is the group
_MAX_LABEL = 40  # characters
Columns = Mapping[str, Sequence[str]]
"""Column -> its values as texts."""


def _is_number(text: str) -> bool:
    """Return whether a text is a number: 3, -1.5."""
    return bool(re.fullmatch(r"[-+]?\d+(\.\d+)?", text.strip()))


def infer_columns(rows: Sequence[Any], path: Path) -> dict[str, Any]:
    """Return the task type of a table and its columns, as a task file names them."""
    columns = [name for name in rows[0] if all(name in row for row in rows)]
    texts = {name: [str(row[name]) for row in rows] for name in columns}
    named = {
        role: next((c for n in names for c in columns if c.casefold() == n), None)
        for role, names in _COLUMN_NAMES.items()
    }
    entities = [name for name in columns if _has_entities(rows, name)]
    if len(entities) >= 2 and named["text"]:
        return _infer_relation(named, entities, texts)
    if spans := next((name for name in columns if _has_spans(rows, name)), None):
        return {"type": "tagging", "text": named["text"] or _find_text_column(texts, {spans}), "spans": spans}
    if settings := _infer_questions(rows, columns):
        return settings | _find_id_and_group(texts, named, settings)
    if settings := _infer_tokens(rows, columns):
        return settings
    if settings := _infer_multilabel(rows, texts, named):
        return settings | _find_id_and_group(texts, named, settings)
    label = named["label"] or _find_label_column(texts)
    if label is None:
        raise DataError(
            _("{path}: no column looks like a label ({names}); write the task file by hand").format(
                path=path, names=", ".join(columns)
            )
        )
    return _infer_label(texts, named, label)


def _infer_questions(rows: Sequence[Any], columns: Sequence[str]) -> dict[str, Any] | None:
    """Return the columns of passages, questions and answers with their positions."""
    settings = {"type": "question_answering", "text": "context", "question": "question"}
    if not {"context", "question"} <= set(columns):
        return None
    if {"answer", "answer_start"} <= set(columns):
        return settings | {"answer": "answer", "answer_start": "answer_start"}
    has_answers = "answers" in columns and all(isinstance(row["answers"], dict) for row in rows)
    return settings | {"answer": "answers"} if has_answers else None


def _infer_tokens(rows: Sequence[Any], columns: Sequence[str]) -> dict[str, Any] | None:
    """Return a column of lists of tokens, and one of as many tags."""
    lists = [name for name in columns if _has_text_lists(rows, name)]
    tags = [name for name in lists if all(_TAG.fullmatch(tag) for row in rows for tag in row[name])]
    for tag in tags:
        for name in lists:
            if name not in tags and all(len(row[name]) == len(row[tag]) for row in rows):
                return {"type": "tagging", "text": name, "label": tag}
    return None


def _infer_label(texts: Columns, named: Mapping[str, str | None], label: str) -> dict[str, Any]:
    """Return the columns of rows with one label, one number, or the number of the correct candidate."""
    text = _choose_text(texts, named, {label})
    settings: dict[str, Any] = {"type": "regression" if _has_scores(texts[label]) else "classification", "text": text}
    settings |= {"pair": named["pair"]} if named["pair"] and named["pair"] not in (label, text) else {}
    if choices := _find_choices(texts, label, {text, named["pair"] or ""}):
        settings |= {"type": "multiple_choice", "choices": choices}
    settings |= {"label": label}
    return settings | _find_id_and_group(texts, named, settings)


def _choose_text(texts: Columns, named: Mapping[str, str | None], others: set[str]) -> str:
    text = named["text"] if named["text"] not in others else None
    return text or _find_text_column(texts, {*others, named["id"] or ""})


def _has_scores(values: Sequence[str]) -> bool:
    numbers = [value for value in values if _is_number(value)]
    return len(numbers) == len(values) and (len(set(numbers)) > 20 or any("." in value for value in numbers))


def _find_id_and_group(texts: Columns, named: Mapping[str, str | None], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the column of unique ids, and the one of rows that belong together."""
    columns = {}
    if (id_ := named["id"]) and len(set(texts[id_])) == len(texts[id_]):
        columns["id"] = id_
    group, rows = named["group"], len(texts[settings["text"]])
    if group and 1 < len(set(texts[group])) < rows:
        columns["group"] = group
    elif settings.get("pair") and rows - len(set(texts[settings["text"]])) >= max(2, _SHARED_TEXTS * rows):
        columns["group"] = settings["text"]  # several rows about the same text
    return columns


def _find_choices(texts: Columns, label: str, others: set[str]) -> list[str]:
    """Return numbered columns of texts if there are as many as labels."""
    likely = [name for name in texts if name not in others and name != label and _CHOICE.fullmatch(name.strip())]
    stems = {(_CHOICE.fullmatch(name.strip()) or [""])[1] for name in likely}
    labels = len(set(texts[label]))
    are_texts = all(not all(map(_is_number, texts[name])) for name in likely)
    return likely if len(likely) >= 2 and len(stems) == 1 and labels == len(likely) and are_texts else []


def _infer_multilabel(rows: Sequence[Any], texts: Columns, named: Mapping[str, str | None]) -> dict[str, Any] | None:
    """Return a column of lists of labels, one with separated labels, or columns of 0 and 1."""
    lists = [name for name in texts if _has_text_lists(rows, name)]
    label = named["label"] if named["label"] in lists else next(iter(lists), None)
    separator = "" if label or not named["label"] else _find_label_separator(texts[named["label"]])
    label = label or (named["label"] if separator else None)
    if label in lists and all(len(row[label]) == 1 for row in rows):
        return None  # one label each
    flags = [name for name, values in texts.items() if set(values) == {"0", "1"}]
    if not label and (len(flags) < 3 or named["label"]):
        return None
    text = _choose_text(texts, named, {label} if label else set(flags))
    settings: dict[str, Any] = {"type": "multilabel", "text": text}
    settings |= {"pair": named["pair"]} if named["pair"] and named["pair"] not in (label, text) else {}
    if not label:
        return settings | {"labels": flags}
    return settings | {"label": label} | ({"label_separator": separator} if separator not in ("", ",") else {})


def _has_text_lists(rows: Sequence[Any], name: str) -> bool:
    values = [row[name] for row in rows if row[name]]
    return bool(values) and all(isinstance(v, list) and all(isinstance(item, str) for item in v) for v in values)


def _find_label_separator(values: Sequence[str]) -> str:
    """Return the separator that splits many different values into few short labels; "" if none does."""
    for separator in _LABEL_SEPARATORS:
        parts = [part.strip() for value in values for part in value.split(separator)]
        is_used = len(parts) > len(values) and max(map(len, parts)) <= _MAX_LABEL
        if is_used and len(set(parts)) < len(set(values)) and 4 * len(set(parts)) <= len(parts):
            return separator
    return ""


def _infer_relation(named: Mapping[str, Any], entities: Sequence[str], texts: Columns) -> dict[str, Any]:
    subject = next((name for name in entities if "subj" in name.casefold()), entities[0])
    other = next(name for name in entities if name != subject)
    settings = {"type": "relation", "text": named["text"], "subject": subject, "object": other, "label": named["label"]}
    settings |= _find_id_and_group(texts, named, settings)
    none = next((value for value in set(texts.get(named["label"], ())) if value.casefold() in _NO_RELATION_NAMES), None)
    return settings | ({"none": none} if none else {})


def _has_entities(rows: Sequence[Any], name: str) -> bool:
    value = rows[0][name]
    return (isinstance(value, dict) and ("start_idx" in value or "start" in value)) or (
        isinstance(value, str) and value.startswith("{") and "start" in value
    )


def _has_spans(rows: Sequence[Any], name: str) -> bool:
    values = [row[name] for row in rows if row[name]]
    return bool(values) and all(
        isinstance(v, list) and isinstance(v[0], dict) and {"start", "end"} <= v[0].keys() for v in values
    )


def _find_label_column(texts: Columns) -> str | None:
    """Return the column with the fewest different values, if they repeat."""
    counts = {name: len(set(values)) for name, values in texts.items()}
    likely = {name: count for name, count in counts.items() if 2 <= count <= max(2, len(texts[name]) // 3)}
    return min(likely, key=lambda name: likely[name]) if likely else None


def _find_text_column(texts: Columns, without: set[str]) -> str:
    names = [name for name in texts if name not in without]
    if not names:
        raise DataError("no column looks like a text; write the task file by hand")
    return max(names, key=lambda name: sum(map(len, texts[name])))


_MAX_ROWS = 2000
_SMALL = 1000  # rows; a tenth of fewer would be too small a dev set
_SHARE, _SHARE_OF_SMALL = 0.1, 0.2


def describe_files(files: Sequence[Path], out: Path) -> str:
    """Return the text of a task file for one file (a share is held out) or two (train and dev)."""
    if not 1 <= len(files) <= 2:
        raise DanseoError(f"{len(files)} files; name one, or two: train and dev")
    names = [str(file) for file in files]
    files = [_find_file(file, role) for file, role in zip(files, ("train", "dev"), strict=False)]
    encodings = {_detect_encoding(file) for file in files}
    settings: dict[str, Any] = {"encoding": "cp949"} if encodings == {"cp949"} else {}
    base = TaskDescription(name=out.stem, folder=".", type="classification")
    settings |= _infer_structure(files[0], base)
    paths = [name if _is_hub_name(name) else _make_relative(Path(name), out) for name in names]
    if len(files) > 1 and settings["type"] == "classification" and _differ_in_case(files, base, settings):
        settings["lower"] = True
    if settings.get("id") and not all(_has_unique_ids(file, base, settings) for file in files):
        del settings["id"]
    dev = [settings.pop("share", _SHARE)]
    document = {"type": settings.pop("type"), "train": paths[0], "dev": [*paths[1:], *dev][0], **settings}
    return _format_task_file(document, files[0])


def _is_hub_name(name: str) -> bool:
    return bool(parse_hub_name(name)) and not Path(name).exists()


def _find_file(file: Path, role: str) -> Path:
    """Return the file itself, or the dataset of that name on the Hub."""
    data = None if file.exists() else parse_hub_name(str(file))
    return fetch_hub_file(data, role) if data else file


def _differ_in_case(files: Sequence[Path], base: TaskDescription, settings: dict[str, Any]) -> bool:
    """Return whether the labels of train and dev differ only in case: TRUE and True."""
    labels = []
    for file in files:
        rows = islice(read_table(file, _select_layout(base, settings)), _MAX_ROWS)
        labels.append({str(row.values.get(settings["label"])) for row in rows})
    return labels[0] != labels[1] and {x.lower() for x in labels[0]} == {x.lower() for x in labels[1]}


def _select_layout(base: TaskDescription, settings: dict[str, Any]) -> TaskDescription:
    """Return the description with the settings that reading rows needs."""
    names = ("separator", "header", "format", "offsets", "text")
    return replace(base, **{key: value for key, value in settings.items() if key in names})


def _has_unique_ids(file: Path, base: TaskDescription, settings: dict[str, Any]) -> bool:
    ids = [str(row.values.get(settings["id"])) for row in read_table(file, _select_layout(base, settings))]
    return len(set(ids)) == len(ids)


def _make_relative(file: Path, out: Path) -> str:
    try:
        return file.resolve().relative_to(out.resolve().parent).as_posix()
    except ValueError:
        return str(file.resolve())


def _detect_encoding(path: Path) -> str:
    if get_suffix(path) == ".parquet" or is_brat(path):
        return "utf-8"
    read_bytes(path)  # reports missing, empty and unreadable files
    with open_unpacked(path) as stream:
        if encoding := detect_encoding(stream):
            return encoding
        raise make_encoding_error(path, stream)


def _infer_structure(path: Path, base: TaskDescription) -> dict[str, Any]:
    """Return the task type and the columns."""
    suffix = get_suffix(path)
    if is_brat(path):
        columns = {"text": "text", "spans": "spans", "group": "file", "id": "id"}
        rows = sum(1 for _ in read_table(path, replace(base, format="brat")))
        return {"type": "tagging", "format": "brat", **columns, "share": _choose_share(rows)}
    if suffix == ".json" and _is_squad(path):
        return {"type": "question_answering"}
    if suffix not in (".csv", ".json", ".jsonl", ".ndjson", ".parquet") and (type_ := _infer_conll(path, base)):
        return {"type": type_}
    return _infer_table(path, base)


def _is_squad(path: Path) -> bool:
    try:
        document = json.loads(read_bytes(path))
        return isinstance(document, dict) and "paragraphs" in document["data"][0]
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def _infer_conll(path: Path, base: TaskDescription) -> str | None:
    blocks = list(islice(read_conll(path, base), 20))
    fields = [fields for _, _, lines in blocks for _, fields in lines]
    if fields and all(len(each) == 10 for each in fields) and all(re.fullmatch(r"[\d.-]+", f[0]) for f in fields):
        return "parsing"
    tags = [each[-1] for each in fields]
    return "tagging" if len(blocks) > 1 and all(_TAG.fullmatch(tag) for tag in tags) and set(tags) != {"O"} else None


def _choose_share(rows: int) -> float:
    return _SHARE if rows >= _SMALL else _SHARE_OF_SMALL


def _infer_table(path: Path, base: TaskDescription) -> dict[str, Any]:
    layout: dict[str, Any] = {}
    if get_suffix(path) not in (".json", ".jsonl", ".ndjson", ".parquet"):
        layout = _infer_separator(path, base)
        base = replace(base, **layout)
    rows = [row.values for row in islice(read_table(path, base), _MAX_ROWS)]
    if not rows:
        raise DataError(_("{path} contains no rows; is it the right file?").format(path=path))
    if tool := recognise_format(rows):
        layout |= {"format": tool} | _infer_offsets(rows, tool)
        base = replace(base, label="answer" if tool == "prodigy" and is_binary(rows) else "")
        rows = [row.values for row in read_table(path, replace(base, **layout))]
        if not rows:
            raise DataError(f"{path} is an export of {tool} without any annotated text; annotate some first")
    return {**infer_columns(rows, path), **layout, "share": _choose_share(len(rows))}


def _infer_offsets(rows: Sequence[Any], tool: str) -> dict[str, Any]:
    """Return what doccano's offsets count: the reading in which more spans look like words."""
    clean = Counter[str]()
    for row in rows if tool == "doccano" else ():
        text = next((row[name] for name in ("text", "data") if isinstance(row.get(name), str)), "")
        if max(text, default="") > "\uffff":
            for start, end in doccano_offsets(row):
                characters, units = count_clean_readings(text, start, end)
                clean.update({"characters": characters, "utf-16": units})
    return {"offsets": "utf-16"} if clean["utf-16"] > clean["characters"] else {}


def _infer_separator(path: Path, base: TaskDescription) -> dict[str, Any]:
    """Return separator and header of a table, from its first lines."""
    with open_data_file(path, base) as text:
        lines = [line.rstrip("\r\n") for line in islice(text, 50) if line.strip()]
    if not lines:
        raise DataError(_("{path} contains no rows; is it the right file?").format(path=path))
    counts = {mark: [line.count(mark) for line in lines] for mark in ("\t", ",", ";", "|")}
    default = "," if get_suffix(path) == ".csv" else "\t"
    separator = default if min(counts[default]) else max(counts, key=lambda m: (min(counts[m]), counts[m][0]))
    if not counts[separator][0]:
        raise DataError(f"{path}: its first line has no separator; put tabs or commas between columns")
    settings: dict[str, Any] = {"separator": separator} if separator != default else {}
    first = [name.strip().strip('"') for name in lines[0].split(separator)]
    known = {name for names in _COLUMN_NAMES.values() for name in names}
    is_header = any(name.casefold() in known for name in first) or not any(_is_number(name) for name in first)
    return settings if is_header else {**settings, "header": False}


_COMMENTS = {
    "type": f"{', '.join(CUSTOM_TYPES[:-1])} or {CUSTOM_TYPES[-1]}",
    "train": "paths start at this file",
    "dev": "a file, or the share of train that is held out",
    "text": "columns by name",
    "pair": "the second text",
    "label": "the column to predict",
    "labels": "columns of 0 and 1",
    "label_separator": "between the labels of a text",
    "choices": "columns of the candidates, in the order of the labels",
    "group": "rows of a group stay on one side of a split",
    "id": "unique ids",
    "none": "the label for no relation",
    "lower": "the labels of train and dev differ in case",
    "format": "an export of this tool; the majority of several annotators counts",
    "offsets": "spans count UTF-16 units: an emoji is two",
    "header": "columns are numbered: 1, 2, …",
}


def _format_task_file(document: dict[str, Any], path: Path) -> str:
    lines = [f"# Made from {path.name} by danseo data describe; read it through, then: danseo data check"]
    for key, value in document.items():
        line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
        lines.append(f"{line:38}  # {_COMMENTS[key]}" if key in _COMMENTS else line)
    return "\n".join(lines) + "\n"
