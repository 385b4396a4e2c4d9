"""How users' rows are read: inputs without gold, columns of tables, and offsets of spans."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from danseo.files import quote
from danseo.language import _
from danseo.records import TextExample
from danseo.rows import Row
from danseo.tasktypes.description import TaskDescription


@dataclass(frozen=True)
class Input:
    """How users' lines of a task are read."""

    needs: str
    """What a line should hold."""
    from_row: Callable[[Row, str], Any]
    """Return the example of a JSON object, with this guid."""
    from_text: Callable[[str, str], Any] | None = None
    """Return the example of a plain line, or raise ValueError; None if the task needs JSON objects."""


def text_input(*names: str) -> Input:
    """Return the input of tasks with one text, under the first of these names that the object has."""
    return Input(
        f"a line of text, or a JSON object with {' or '.join(names)}",
        lambda row, guid: TextExample(guid, text=text_of(row, *names), gold=None),
        lambda line, guid: TextExample(guid, text=line, gold=None),
    )


def pair_input(first: str, second: str) -> Input:
    """Return the input of tasks with two texts."""
    return Input(
        f"two texts with a tab between, or a JSON object with {first} and {second}",
        lambda row, guid: TextExample(guid, text=text_of(row, first), pair=text_of(row, second), gold=None),
        _read_pair,
    )


def _read_pair(line: str, guid: str) -> TextExample | None:
    if line.count("\t") != 1:
        return None
    first, second = line.split("\t")
    for text, which in ((first, "first"), (second, "second")):
        if not text.strip():
            raise ValueError(f"the {which} text is empty; write two texts with a tab between")
    return TextExample(guid, text=first, pair=second, gold=None)


def text_of(row: Row, *keys: str) -> str:
    """Return the text under the first of the names that the row has; raise DataError if it is empty."""
    key = next((key for key in keys if key in row.values), keys[0])
    text = row.text(key)
    if not text.strip():
        raise row.error(f"field {key!r} is empty")
    return text


# Columns of a table


def read_cell(row: Row, key: str) -> str:
    """Return a field as a text: numbers and booleans are written out, and a list of one text is that text."""
    if key not in row.values:
        raise row.error(_("column {key!r} is missing; {remedy}").format(key=key, remedy=row.remedy))
    value = row.values[key]
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    if value is None or value == []:
        raise row.error(_("column {key!r} is empty").format(key=key))
    if isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        raise row.error(f"column {key!r} should be a text or a number, not {quote(value)}")
    return row.text(key)


def read_guid(row: Row, number: int, description: TaskDescription) -> str:
    """Return the id column if the task file names one, else the number of the example."""
    return read_cell(row, description.id) if description.id else str(number)


def read_optional_cell(row: Row, key: str) -> str | None:
    """Return a field as a text; None if the task file names no such column."""
    return read_cell(row, key) if key else None


def read_label(row: Row, description: TaskDescription, is_known: Any) -> str:
    """Return the label without outer spaces."""
    label = normalize_label(read_cell(row, description.label), description)
    if not label:
        raise row.error(_("column {label!r} is empty; every row needs a label").format(label=description.label))
    return check_known(label, row, description, is_known)


def normalize_label(label: str, description: TaskDescription) -> str:
    """Return the label with single spaces, in lower case if the task file says so."""
    label = " ".join(label.split())
    return label.lower() if description.lower else label


def check_known(label: str, row: Row, description: TaskDescription, is_known: Any) -> str:
    """Return the label; raise DataError if the task does not know it."""
    if not is_known(label):
        raise row.error(
            _("unknown label {label}; known: {names}").format(
                label=quote(label), names=", ".join(description.labels[:30])
            )
        )
    return label


def read_json_list(value: Any) -> Any:
    """Return a list that a cell holds as JSON; other values unchanged, None if the JSON is malformed."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


# Offsets of spans


def place_span(row: Row, start: int, end: int, stored: object, text: str, offsets: str = "") -> tuple[int, int]:
    """Return the span in characters, checked against the text, and against the stored text of the span if there is one.

    Tools in a browser may count UTF-16 units, of which an emoji has two; the stored text shows which it is.
    """
    readings = {"characters": check_offsets(start, end, text), "utf-16": convert_utf16(start, end, text)}
    chosen = readings[offsets or "characters"]
    if not isinstance(stored, str):
        if chosen is None:
            fits = readings["utf-16"] is not None and not offsets
            remedy = 'say offsets = "utf-16" in the task file' if fits else "correct the span"
            raise row.error(f"{start}..{end} does not lie in the text of {len(text)} characters; {remedy}")
        return chosen
    for span in (chosen, *readings.values()):
        if span and _is_same_text(text[span[0] : span[1]], stored):
            return span
    actual = quote(text[max(0, start) : max(0, end)], 40)
    raise row.error(f"the text has {actual} at {start}..{end}, not {quote(stored, 40)}; correct the offsets")


def _is_same_text(one: str, two: str) -> bool:
    """Return whether two texts are the same; tools write line ends in their own way."""
    return one == two or one.split() == two.replace("\\n", "\n").split()


def check_offsets(start: int, end: int, text: str) -> tuple[int, int] | None:
    """Return the span if it lies in the text, else None."""
    return (start, end) if 0 <= start < end <= len(text) else None


def convert_utf16(start: int, end: int, text: str) -> tuple[int, int] | None:
    """Return offsets in UTF-16 units as offsets in characters; None if they are outside or inside a character."""
    units = text.encode("utf-16-le", "surrogatepass")
    if not 0 <= 2 * start < 2 * end <= len(units):
        return None
    try:
        before, marked = (units[a:b].decode("utf-16-le") for a, b in ((0, 2 * start), (2 * start, 2 * end)))
    except UnicodeDecodeError:
        return None
    return len(before), len(before) + len(marked)
