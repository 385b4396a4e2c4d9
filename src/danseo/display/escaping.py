"""Escaping: terminals and spreadsheets show texts of users and never run them."""

import csv
import io
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from danseo.language import translate_message

BYTE_ORDER_MARK = "\ufeff"
"""The start of a CSV file that Excel reads as UTF-8."""
_latest = time.monotonic()
_FORMULA = ("=", "+", "-", "@")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: object, keep: str = "") -> str:
    """Return the text with control characters and text directions as U+001B, line ends and tabs as \\n, \\r, \\t."""
    found = str(text)
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() or c in keep else _SHORT.get(c) or f"U+{ord(c):04X}" for c in found)


def say(line: object) -> None:
    """Print one or more lines on standard error."""
    global _latest
    _latest = time.monotonic()
    print(visible(translate_message(line), keep="\n"), file=sys.stderr, flush=True)


def get_last_print_time() -> float:
    """Return when a line was printed last (time.monotonic), or when danseo started."""
    return _latest


def to_json(document: Any, indent: int | None = 2) -> str:
    """Return the document as readable JSON in which all unprintable characters are escaped."""
    text = json.dumps(document, ensure_ascii=False, indent=indent, allow_nan=False)
    return "\n".join(line if line.isprintable() else "".join(map(_escape, line)) for line in text.split("\n"))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return json.dumps(character)[1:-1] if character != "\x7f" else r"\u007f"


def to_csv(rows: Iterable[Sequence[object]]) -> str:
    """Return the rows as CSV without formulas that a spreadsheet would run."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_csv_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _csv_cell(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = visible(value, keep="\n\t")
    return f"'{text}" if text.lstrip(" '\n\t").startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
