"""Rows of a user's own file, one at a time: CSV, TSV, JSON lines, JSON, parquet; packed or not, in its encoding."""

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from danseo.errors import DataError
from danseo.files import parse_json, quote
from danseo.rows import Row, read_parquet
from danseo.tasks.own.description import Description
from danseo.tasks.own.encodings import complaint, unpacked

_MOST = 1 << 24  # characters of one field


def suffix_of(path: Path) -> str:
    """The suffix that tells the format: .tsv of ratings.tsv.gz."""
    return Path(path.name.removesuffix(".gz")).suffix.casefold()


def rows_of(path: Path, description: Description) -> Iterator[Row]:
    """Every record of a file with the place where it stands."""
    suffix, remedy = suffix_of(path), f"the columns are named in {description.name}.toml"
    if suffix == ".parquet":
        records: Iterator[tuple[int, Any]] = enumerate(read_parquet(path), 1)
        word = "row"
    elif suffix == ".json":
        records, word = _json(path, description), "row"
    else:
        records, word = (_json_lines if suffix in (".jsonl", ".ndjson") else _separated)(path, description), "line"
    for number, values in records:
        where = f"{path}, {word} {number}"
        if not isinstance(values, dict):
            raise DataError(f"{where}: should be an object with named fields, not {quote(values)}")
        yield Row(values, where, f"it has {', '.join(list(map(str, values))[:12])}; {remedy}")


@contextmanager
def opened(path: Path, description: Description) -> Iterator[TextIO]:
    """The text of a file; whatever its bytes cannot be is one line."""
    encoding = "utf-8-sig" if description.encoding.casefold() in ("utf-8", "utf8") else description.encoding
    try:
        with unpacked(path) as stream:
            yield io.TextIOWrapper(stream, encoding=encoding, newline="")
    except UnicodeDecodeError:
        raise complaint(path, description.encoding) from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{path}: the gzipped file is damaged or cut off; pack or fetch it again") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check train and dev in the task file") from None


def separator_of(path: Path, description: Description) -> str:
    """The separator that the description names, else that of the suffix."""
    return description.separator or ("," if suffix_of(path) == ".csv" else "\t")


def _separated(path: Path, description: Description) -> Iterator[tuple[int, dict[str, Any]]]:
    separator = separator_of(path, description)
    quotes = description.quotes if description.quotes is not None else separator == ","
    csv.field_size_limit(min(_MOST, sys.maxsize))
    with opened(path, description) as text:
        lines = csv.reader(
            text, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE, strict=quotes
        )
        yield from _named(_numbered(lines, path), path, description)


def _numbered(lines: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line where each begins: quoted fields may hold line breaks."""
    begins = 1
    try:
        for fields in lines:
            yield begins, fields
            begins = lines.line_num + 1
    except csv.Error as error:
        what = "a quote opens in this row and never ends" if "end of data" in str(error) else str(error)
        raise DataError(
            f"{path}, line {begins}: {what}; mend the quotes there, or say quotes = false in the task file"
        ) from None


def _named(
    rows: Iterator[tuple[int, list[str]]], path: Path, description: Description
) -> Iterator[tuple[int, dict[str, Any]]]:
    names: list[str] | None = None
    for number, fields in rows:
        if not any(field.strip() for field in fields):
            continue
        if names is None:
            names = fields if description.header else [str(position) for position in range(1, len(fields) + 1)]
            if len(set(names)) < len(names):
                raise DataError(f"{path}, line 1: a column name stands there twice; rename one, or say header = false")
            if description.header:
                continue
        if len(fields) != len(names):
            raise DataError(
                f"{path}, line {number}: {len(fields)} fields instead of {len(names)}; mend the line, or "
                "separator or quotes in the task file"
            )
        yield number, dict(zip(names, fields, strict=True))


def _json_lines(path: Path, description: Description) -> Iterator[tuple[int, Any]]:
    with opened(path, description) as text:
        for number, line in enumerate(text, 1):
            if line.strip():
                yield number, parse_json(line, path, number, "mend the line")


def _json(path: Path, description: Description) -> Iterator[tuple[int, Any]]:
    """A list of objects; an object that has one list of them, such as data, means that list."""
    with opened(path, description) as text:
        try:
            document = json.load(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{path}: not JSON ({quote(str(error))}); for JSON lines name the file .jsonl") from None
    if isinstance(document, dict):
        document = next((value for value in document.values() if isinstance(value, list)), document)
    if not isinstance(document, list):
        raise DataError(f"{path}: should be a JSON list of objects")
    yield from enumerate(document, 1)


def blocks_of(path: Path, description: Description) -> Iterator[tuple[int, list[str], list[tuple[int, list[str]]]]]:
    """Sentences of a CoNLL file: the line where each begins, its comments, and its numbered lines of fields."""
    comments: list[str] = []
    lines: list[tuple[int, list[str]]] = []
    with opened(path, description) as text:
        for number, line in enumerate(text, 1):
            line = line.rstrip("\r\n")
            if not line.strip():
                if lines:
                    yield lines[0][0], comments, lines
                comments, lines = [], []
            elif not lines and line.startswith("#") and "\t" not in line:
                comments.append(line)
            else:
                lines.append((number, line.split("\t") if "\t" in line else line.split(" ")))
    if lines:
        yield lines[0][0], comments, lines
