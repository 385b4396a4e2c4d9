"""Tables on a terminal: nothing is ever cut; what is too wide is broken, set closer, or goes on below."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from textwrap import wrap
from typing import TYPE_CHECKING

from danseo.display.escaping import visible
from danseo.display.table import Best, Second, Strong, Table, TypedInt

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: dict[type, str] = {Best: "bold", Second: "underline", Strong: "bold"}
_STARS: dict[type, str] = {Best: "*", Second: "'"}
_EDGES = 2
_WHOLE = 40  # a text without spaces up to this long is a name: it is broken only where nothing else helps
_WIDE, _NARROW, _NAME = 40, 20, 10  # how narrow the columns of sentences may become, and at last those of names
_WORDS = 8  # a column name may be this long before it is broken
_Way = tuple[int, int | None, int | None, int | None]
_WAYS: tuple[
    _Way, ...
] = (  # gap between columns, room for a column name, least room for sentences and for names: roomy first
    (2, None, None, None),
    (2, _WORDS, None, None),
    (2, None, _WIDE, None),
    (2, _WORDS, _WIDE, None),
    (2, _WORDS, _NARROW, None),
    (2, 1, _NARROW, None),
    (1, 1, _NARROW, None),
    (1, 1, _NARROW, _NAME),
)


@dataclass(frozen=True)
class Layout:
    """How a table is set."""

    gap: int
    headers: list[str]
    widths: list[int]


def print_table(table: Table, console: "Console") -> None:
    """Print a table with its title and note; what does not fit side by side goes on below, beside the same keys."""
    from rich.text import Text

    stars = not console.is_terminal or console.color_system is None
    for heading, part in table.sections():
        title = f"{table.title}: {heading}" if heading else table.title
        for number, block in enumerate(_blocks(part.without_empty(), console.width, stars)):
            console.print(Text(visible(title) + (", continued" if number else ""), style="bold"))
            _print_grid(block, console, stars)
    if table.note:
        console.print(Text(visible(table.note, keep="\n"), style="dim"))
    console.print()


def _print_grid(table: Table, console: "Console", stars: bool) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    layout = _layout(table, console.width, stars) or _narrowest(table, stars)
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, layout.gap - 1, 0, 0))
    grid.width = sum(layout.widths) + layout.gap * (len(layout.widths) - 1) + _EDGES
    for header, numeric, width in zip(layout.headers, table.is_numeric(), layout.widths, strict=True):
        grid.add_column(
            Text(visible(header, keep="\n")), justify="right" if numeric else "left", width=width, no_wrap=True
        )
    for row, values in zip(_starred(table, stars), table.rows, strict=True):
        # Text, because [brackets] in a str would be read as markup
        cells = zip(row, values, layout.widths, strict=True)
        grid.add_row(*(Text(broken(cell, width), _STYLES.get(type(value), "")) for cell, value, width in cells))
    console.print(grid, crop=False)


def _starred(table: Table, stars: bool) -> list[tuple[str, ...]]:
    """The cells, with a sign where neither bold nor underlined can be seen."""
    if not stars:
        return table.cells()
    rows = zip(table.cells(), table.rows, strict=True)
    return [
        tuple(cell + _STARS.get(type(value), "") for cell, value in zip(cells, row, strict=True)) for cells, row in rows
    ]


# What fits


def _layout(table: Table, width: int, stars: bool, ways: Sequence[_Way] = _WAYS) -> Layout | None:
    """The roomiest way to set a table that fits; None where it has to go on below."""
    return next((found for way in ways if (found := _set(table, width, stars, *way))), None)


def _narrowest(table: Table, stars: bool) -> Layout:
    """The last way, however wide that comes out."""
    found = _set(table, None, stars, *_WAYS[-1])
    assert found
    return found


def _set(
    table: Table, width: int | None, stars: bool, gap: int, words: int | None, sentence: int | None, name: int | None
) -> Layout | None:
    cells, numeric = _starred(table, stars), table.is_numeric()
    full = [max((_width(row[k]) for row in cells), default=0) for k in range(len(table.columns))]
    heads = [_header(title, words and max(words, w)) for title, w in zip(table.columns, full, strict=True)]
    above = [max(map(_width, head.split("\n"))) for head in heads]
    limits = [None if numeric[k] else name if _is_name(cells, k) else sentence for k in range(len(full))]
    least = [max(a, w if limit is None else min(w, limit)) for a, w, limit in zip(above, full, limits, strict=True)]
    room = None if width is None else width - _EDGES - gap * (len(full) - 1)
    widths = _shrunk(list(map(max, full, above)), least, room)
    return Layout(gap, heads, widths) if widths else None


def _shrunk(widths: list[int], least: Sequence[int], room: int | None) -> list[int] | None:
    """The widths, the widest made narrower until all have room."""
    if room is None:
        return list(least)
    if sum(least) > room:
        return None
    widths = [min(width, max(room, low)) for width, low in zip(widths, least, strict=True)]
    while sum(widths) > room:
        position = max((k for k in range(len(widths)) if widths[k] > least[k]), key=lambda k: widths[k])
        widths[position] -= 1
    return widths


def _is_name(cells: Sequence[Sequence[str]], position: int) -> bool:
    """Guids, paths and ids broken in two are no use."""
    return all(" " not in row[position] and len(row[position]) <= _WHOLE for row in cells)


def _blocks(table: Table, width: int, stars: bool) -> list[Table]:
    """The table, or where it would not fit, parts of it that repeat the columns that tell rows apart."""
    if _layout(table, width, stars):
        return [table]
    table = _numbered(table)
    keys = list(range(table.keys or 0))
    blocks: list[list[int]] = [[]]
    for position in range(len(keys), len(table.columns)):
        if blocks[-1] and not _layout(table.only([*keys, *blocks[-1], position]), width, stars, _WAYS[:-1]):
            blocks.append([])
        blocks[-1].append(position)
    return [table.only([*keys, *block]) for block in blocks] if len(blocks) > 1 else [table]


def _numbered(table: Table) -> Table:
    """The table with its keys counted, and with numbers before them where they do not tell all rows apart."""
    numeric = table.is_numeric()
    keys = table.keys or len(list(takewhile(lambda k: not numeric[k], range(len(numeric)))))
    told = {cells[:keys] for cells in table.cells()}
    if len(told) == len(table.rows):
        return replace(table, keys=keys)
    rows: list[tuple[object, ...]] = [(TypedInt(number), *row) for number, row in enumerate(table.rows, 1)]
    return replace(table, columns=("#", *table.columns), rows=rows, keys=keys + 1)


# Texts


def _width(text: str) -> int:
    """Columns on the screen: Korean characters take two each."""
    from rich.cells import cell_len

    return cell_len(text)


def _header(title: str, room: int | None) -> str:
    """A column name in as few lines as there is room for; no word is broken."""
    return "\n".join(wrap(title, room, break_long_words=False, break_on_hyphens=False)) if room else title


def broken(text: str, width: int) -> str:
    """The text in lines of a width: between words, else behind signs such as - and /, else anywhere."""
    lines = [""]
    for piece in _pieces(text, width):
        if _width(lines[-1] + piece.rstrip()) > width and lines[-1]:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += piece if lines[-1] or piece.strip() else ""
    return "\n".join(line.rstrip() for line in lines)


def _pieces(text: str, width: int) -> list[str]:
    from rich.cells import chop_cells

    pieces: list[str] = []
    for word in re.findall(r"\S+\s*|\s+", text):
        if _width(word.rstrip()) <= width:
            pieces.append(word)
            continue
        for part in re.findall(r"[^-/_+@=,.:]*[-/_+@=,.:]+|[^-/_+@=,.:]+", word):
            pieces += [part] if _width(part.rstrip()) <= width else chop_cells(part, width)
    return pieces
