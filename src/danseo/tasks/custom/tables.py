"""Read the rows of a user's file as a stream: CSV, TSV, JSON lines, JSON, parquet, CoNLL; gzipped or not."""

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

from danseo.errors import DataError
from danseo.files import open_text, parse_json, quote
from danseo.language import _
from danseo.rows import Row, read_parquet
from danseo.tasks.custom.annotations import AnnotationStats, Layout, merge_annotations, read_brat
from danseo.tasktypes.description import TaskDescription

_MAX_FIELD = 1 << 24  # characters


def get_suffix(path: Path) -> str:
    """Return the suffix that names the format: .tsv of ratings.tsv.gz."""
    return Path(path.name.removesuffix(".gz")).suffix.casefold()


def read_table(path: Path, description: TaskDescription, stats: AnnotationStats | None = None) -> Iterator[Row]:
    """Yield the records of a file; in the export of an annotation tool, all annotations of a text are one record."""
    if not description.format:
        return read_plain_table(path, description)
    keeps_rejected = description.format == "prodigy" and description.label == "answer"
    text = "" if description.format == "brat" else description.text
    layout = Layout(description.format, text, description.offsets, keep_rejected=keeps_rejected)
    if description.format == "brat":
        return read_brat(path, layout)
    return merge_annotations(read_plain_table(path, description), layout, stats)


def read_plain_table(path: Path, description: TaskDescription) -> Iterator[Row]:
    """Yield every record of a file unchanged."""
    suffix, remedy = get_suffix(path), _("correct the column names in {name}.toml").format(name=description.name)
    if suffix == ".parquet":
        records: Iterator[tuple[int, Any]] = enumerate(read_parquet(path), 1)
        word = "row"
    elif suffix == ".json":
        records, word = _read_json(path, description), "row"
    else:
        records, word = (
            (_read_json_lines if suffix in (".jsonl", ".ndjson") else _read_separated)(path, description),
            "line",
        )
    for number, values in records:
        where = f"{path}, {word} {number}"
        if not isinstance(values, dict):
            raise DataError(f"{where}: should be an object with named fields, not {quote(values)}")
        yield Row(values, where, f"it has {', '.join(list(map(str, values))[:12])}; {remedy}")


def open_data_file(path: Path, description: TaskDescription) -> AbstractContextManager[TextIO]:
    """Open a data file as text; its encoding is detected unless the task file names another than UTF-8."""
    is_default = description.encoding.casefold() in ("utf-8", "utf8")
    return open_text(path, "" if is_default else description.encoding)


def _read_separated(path: Path, description: TaskDescription) -> Iterator[tuple[int, dict[str, Any]]]:
    separator = description.separator or ("," if get_suffix(path) == ".csv" else "\t")
    quotes = description.quotes if description.quotes is not None else separator != "\t"
    csv.field_size_limit(min(_MAX_FIELD, sys.maxsize))
    with open_data_file(path, description) as text:
        lines = csv.reader(
            text, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE, strict=quotes
        )
        yield from _name_columns(_number_rows(lines, path), path, description)


def _number_rows(lines: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with their first line number: quoted fields may contain line breaks."""
    start = 1
    try:
        for fields in lines:
            yield start, fields
            start = lines.line_num + 1
    except csv.Error as error:
        problem = "a quotation mark is never closed" if "end of data" in str(error) else str(error)
        remedy = "correct the quotes, or write quotes = false in the task file"
        raise DataError(f"{path}, line {start}: {problem}; {remedy}") from None


def _name_columns(
    rows: Iterator[tuple[int, list[str]]], path: Path, description: TaskDescription
) -> Iterator[tuple[int, dict[str, Any]]]:
    names: list[str] | None = None
    for number, fields in rows:
        if not any(field.strip() for field in fields):
            continue
        if names is None:
            names = fields if description.header else [str(position) for position in range(1, len(fields) + 1)]
            if len(set(names)) < len(names):
                raise DataError(f"{path}, line 1: two columns have the same name; rename one, or write header = false")
            if description.header:
                continue
        if len(fields) != len(names):
            remedy = _("correct the line, or separator or quotes in the task file")
            raise DataError(
                _("{path}, line {number}: {n} fields instead of {expected}; {remedy}").format(
                    path=path, number=number, n=len(fields), expected=len(names), remedy=remedy
                )
            )
        yield number, dict(zip(names, fields, strict=True))


def _read_json_lines(path: Path, description: TaskDescription) -> Iterator[tuple[int, Any]]:
    with open_data_file(path, description) as text:
        for number, line in enumerate(text, 1):
            if line.strip():
                yield number, parse_json(line, path, number, "correct the line")


def _read_json(path: Path, description: TaskDescription) -> Iterator[tuple[int, Any]]:
    """Yield the objects of a list, or of the first list in an object, such as data."""
    with open_data_file(path, description) as text:
        try:
            document = json.load(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{path}: not JSON ({quote(str(error))}); for JSON lines name the file .jsonl") from None
    if isinstance(document, dict):
        document = next((value for value in document.values() if isinstance(value, list)), document)
    if not isinstance(document, list):
        raise DataError(f"{path}: expected a list of objects; write one object per line and name the file .jsonl")
    yield from enumerate(document, 1)


def read_conll(
    path: Path, description: TaskDescription
) -> Iterator[tuple[int, list[str], list[tuple[int, list[str]]]]]:
    """Yield the sentences of a CoNLL file: first line number, comments, numbered lines of fields."""
    comments: list[str] = []
    lines: list[tuple[int, list[str]]] = []
    with open_data_file(path, description) as text:
        for number, line in enumerate(text, 1):
            line = line.rstrip("\r\n")
            if not line.strip() or line.startswith("-DOCSTART-"):
                if lines:
                    yield lines[0][0], comments, lines
                comments, lines = [], []
            elif not lines and line.startswith("#") and "\t" not in line:
                comments.append(line)
            else:
                lines.append((number, line.split("\t") if "\t" in line else line.split(" ")))
    if lines:
        yield lines[0][0], comments, lines
