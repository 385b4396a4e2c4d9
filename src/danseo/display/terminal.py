"""Tables on a terminal: rich wraps long texts, and columns that do not fit continue below; nothing is cut."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from textwrap import wrap
from typing import TYPE_CHECKING

from danseo.display.escaping import visible
from danseo.display.table import Best, Second, Strong, Table, TypedInt, translate_table
from danseo.language import _, translate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_STYLES: dict[type, str] = {Best: "bold", Second: "underline", Strong: "bold"}
_STARS: dict[type, str] = {Best: "*", Second: "'"}
_EDGES = 2
_NAME, _TEXT = 40, 20  # the longest text that counts as a name; the least width of a column of texts
_LAYOUTS = ((2, None), (2, 8), (2, 1), (1, 1))  # the gap between columns, and the width at which headers wrap


def print_table(table: Table, console: "Console") -> None:
    """Print a table with its title and note; columns that do not fit continue below, beside the same keys."""
    from rich.text import Text

    table = translate_table(table)
    use_stars = not console.is_terminal or console.color_system is None
    for heading, part in table.sections():
        title = f"{table.title}: {heading}" if heading else table.title
        for number, block in enumerate(_split_columns(part.without_empty(), console.width, use_stars)):
            console.print(Text(visible(title) + (translate(_(", continued")) if number else ""), style="bold"))
            console.print(_build_grid(block, console.width, use_stars), crop=False)
    if table.note:
        console.print(Text(visible(table.note, keep="\n"), style="dim"))
    console.print()


def _build_grid(table: Table, width: int, use_stars: bool) -> "RichTable":
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    cells = _mark_best(table, use_stars)
    layout = _choose_layout(table, cells, width)
    gap, header_width = layout or _LAYOUTS[-1]
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, gap - 1, 0, 0))
    for k, (name, is_number) in enumerate(zip(table.columns, table.is_numeric(), strict=True)):
        is_fixed = layout is not None and not _can_wrap(cells, k)
        title = _wrap_header(visible(name, keep="\n"), header_width, _cell_width(cells, k)) if is_fixed else name
        grid.add_column(
            Text(visible(title, keep="\n")), justify="right" if is_number else "left", no_wrap=is_fixed, overflow="fold"
        )
    for row, values in zip(cells, table.rows, strict=True):  # Text, because [brackets] in a str would be markup
        grid.add_row(*(Text(cell, _STYLES.get(type(value), "")) for cell, value in zip(row, values, strict=True)))
    return grid


def _mark_best(table: Table, use_stars: bool) -> list[tuple[str, ...]]:
    """Return the cells, with a sign where neither bold nor underlined text is visible."""
    if not use_stars:
        return table.cells()
    rows = zip(table.cells(), table.rows, strict=True)
    return [
        tuple(cell + _STARS.get(type(value), "") for cell, value in zip(cells, row, strict=True)) for cells, row in rows
    ]


def _choose_layout(table: Table, cells: Sequence[Sequence[str]], width: int) -> tuple[int, int | None] | None:
    """Return the first layout in which every column fits into the width; None if there is none."""
    for gap, header_width in _LAYOUTS:
        widths = [_least_width(name, cells, k, header_width) for k, name in enumerate(table.columns)]
        if sum(widths) + gap * (len(widths) - 1) + _EDGES <= width:
            return gap, header_width
    return None


def _least_width(name: str, cells: Sequence[Sequence[str]], k: int, header_width: int | None) -> int:
    """Return the width that a column needs: that of its longest cell, or less if it holds texts that can wrap."""
    from rich.cells import cell_len

    longest = _cell_width(cells, k)
    title = _wrap_header(name, 1 if _can_wrap(cells, k) else header_width, longest)
    return max(min(longest, _TEXT) if _can_wrap(cells, k) else longest, *map(cell_len, title.split("\n")))


def _cell_width(cells: Sequence[Sequence[str]], k: int) -> int:
    """Return the width of a column on the screen, where a Korean character takes two places."""
    from rich.cells import cell_len

    return max((cell_len(row[k]) for row in cells), default=0)


def _can_wrap(cells: Sequence[Sequence[str]], k: int) -> bool:
    """Return whether a column holds texts; numbers, names, paths and ids stay in one line."""
    return any(" " in row[k] or len(row[k]) > _NAME for row in cells)


def _wrap_header(name: str, header_width: int | None, least: int) -> str:
    """Wrap a column name between its words."""
    if header_width is None:
        return name
    return "\n".join(wrap(name, max(header_width, least), break_long_words=False, break_on_hyphens=False))


def _split_columns(table: Table, width: int, use_stars: bool) -> list[Table]:
    """Return the table, or parts of it that fit and repeat the key columns."""
    if _choose_layout(table, _mark_best(table, use_stars), width):
        return [table]
    table = _add_keys(table)
    keys = list(range(table.keys or 0))
    cells = _mark_best(table, use_stars)
    blocks: list[list[int]] = [[]]
    for position in range(len(keys), len(table.columns)):
        columns = [*keys, *blocks[-1], position]
        chosen = [[row[k] for k in columns] for row in cells]
        if blocks[-1] and not _choose_layout(table.only(columns), chosen, width):
            blocks.append([])
        blocks[-1].append(position)
    return [table.only([*keys, *block]) for block in blocks] if len(blocks) > 1 else [table]


def _add_keys(table: Table) -> Table:
    """Return the table with its number of keys, and with row numbers if the keys are not unique."""
    numeric = table.is_numeric()
    keys = table.keys or len(list(takewhile(lambda k: not numeric[k], range(len(numeric)))))
    if len({cells[:keys] for cells in table.cells()}) == len(table.rows):
        return replace(table, keys=keys)
    rows: list[tuple[object, ...]] = [(TypedInt(number), *row) for number, row in enumerate(table.rows, 1)]
    return replace(table, columns=("#", *table.columns), rows=rows, keys=keys + 1)
