"""What others wrote, in print: names and labels are shown to people and spreadsheets, never obeyed by them."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@")


def visible(text: object, keep: str = "") -> str:
    """The text with its control characters and reading directions written out (U+001B), so that nothing obeys them."""
    found = str(text)
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() or c in keep else f"U+{ord(c):04X}" for c in found)


def say(line: object) -> None:
    """A line, or several, on standard error."""
    print(visible(line, keep="\n"), file=sys.stderr, flush=True)


def to_json(document: Any, indent: int | None = 2) -> str:
    """The document for people and programs; what is not printable in it is escaped, which JSON reads as the same."""
    text = json.dumps(document, ensure_ascii=False, indent=indent, allow_nan=False)
    return "\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in text.split("\n"))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return json.dumps(character)[1:-1] if character != "\x7f" else r"\u007f"


def to_csv(rows: Iterable[Sequence[object]]) -> str:
    """The rows as CSV in which a spreadsheet finds texts and numbers but no formulas."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_csv_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _csv_cell(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = visible(value)
    return f"'{text}" if text.lstrip(" '").startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
