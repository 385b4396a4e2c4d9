"""A small table of plain values, and its faces: terminal, Markdown, LaTeX and JSON."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_NOTHING = "–"
_UNBROKEN = 40
_GAP = 2
_HEADER = 8
_BREAKABLE = 20
_AS_TYPED = ("rate", "learning rate", "epochs", "batch", "seed")  # settings, which are shown as people write them
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": r"$-$",
        "–": "--",
        "…": r"\ldots{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)


class Best(float):
    """The best number of its column: bold, and with a star where nothing can be bold."""


class Second(float):
    """A number that is best among some: those of its size."""


class Strong(str):
    """A text that stands out."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """Rows of plain values under named columns; None stands for "does not apply"."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The table for JSON: full precision, lists for tuples, null for what is no finite number."""
        rows = [[_plain(value) for value in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "note": self.note}

    def cells(self) -> list[tuple[str, ...]]:
        """The rows as they are shown; the floats of a column have the same number of decimals."""
        decimals = [_decimals(name, column) for name, column in zip(self.columns, self._by_column(), strict=True)]
        return [tuple(map(_shown, row, decimals, self.columns)) for row in self.rows]

    def is_numeric(self) -> list[bool]:
        """Which columns hold nothing but numbers, and so stand to the right."""
        return [
            any(value is not None for value in column) and all(value is None or _is_number(value) for value in column)
            for column in self._by_column()
        ]

    def _by_column(self) -> list[list[object]]:
        return [[row[place] for row in self.rows] for place in range(len(self.columns))]


def print_tables(tables: Iterable[Table], console: "Console | None" = None) -> None:
    """Print tables one below the other; Korean characters take the two places they need."""
    from rich.console import Console

    console = console or Console()
    for table in tables:
        for block in _blocks(table, console.width):
            _print_table(block, console)


def _print_table(table: Table, console: "Console") -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    cells, whole = table.cells(), _is_whole(table)
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    columns = zip(_headers(table, console.width), table.is_numeric(), whole, strict=True)
    for header, numeric, unbroken in columns:
        grid.add_column(
            Text(header),
            justify="right" if numeric else "left",
            no_wrap=unbroken,
            overflow="ellipsis" if unbroken else "fold",
        )
    for row, values in zip(cells, table.rows, strict=True):
        # Text, because [brackets] in a str would be read as markup
        grid.add_row(
            *(
                Text(_starred(cell, value), _STYLES.get(type(value), ""))
                for cell, value in zip(row, values, strict=True)
            )
        )
    console.print(Text(table.title, style="bold"))
    console.print(grid)
    if table.note:
        console.print(Text(table.note, style="dim"))
    console.print()


def _is_whole(table: Table) -> list[bool]:
    """Which columns stay on one line: numbers and guids broken in two are no use."""
    columns = zip(*table.cells(), strict=True) if table.rows else [()] * len(table.columns)
    return [
        numeric or all(" " not in cell and len(cell) <= _UNBROKEN for cell in column)
        for column, numeric in zip(columns, table.is_numeric(), strict=True)
    ]


def _widths(table: Table) -> list[int]:
    """The places that the cells of each column take, its name aside."""
    from rich.cells import cell_len

    return [max((cell_len(row[place]) for row in table.cells()), default=0) for place in range(len(table.columns))]


def _headers(table: Table, width: int) -> list[str]:
    """The column names, broken into as few lines over the numbers as make the table fit."""
    from rich.cells import cell_len

    widths, names = _widths(table), list(table.columns)
    for room in (None, _HEADER, 1):
        if room:
            columns = zip(table.columns, widths, table.is_numeric(), strict=True)
            names = [_broken(name, max(needed, room)) if numeric else name for name, needed, numeric in columns]
        lines = [max(map(cell_len, name.split("\n"))) for name in names]
        if sum(map(max, widths, lines)) + _GAP * len(widths) <= width:
            break
    return names


def _broken(name: str, room: int) -> str:
    return "\n".join(wrap(name, room, break_long_words=False, break_on_hyphens=False))


def _blocks(table: Table, width: int) -> list[Table]:
    """The table, or where its numbers would not fit side by side, parts of it that repeat the first texts."""
    from rich.cells import cell_len

    words = [max(map(cell_len, name.split() or [""])) for name in table.columns]
    columns = zip(words, _widths(table), _is_whole(table), strict=True)
    needed = [_GAP + max(word, full if whole else min(full, _BREAKABLE)) for word, full, whole in columns]
    keys = list(takewhile(lambda place: not table.is_numeric()[place], range(len(needed))))
    blocks, room = [list(keys)], width - sum(needed[place] for place in keys)
    left = room
    for place in range(len(keys), len(needed)):
        if needed[place] > left and len(blocks[-1]) > len(keys):
            blocks.append(list(keys))
            left = room
        blocks[-1].append(place)
        left -= needed[place]
    return [table] if len(blocks) == 1 else [_part(table, places, places is blocks[-1]) for places in blocks]


def _part(table: Table, places: Sequence[int], last: bool) -> Table:
    rows = [tuple(row[place] for place in places) for row in table.rows]
    return Table(table.title, tuple(table.columns[place] for place in places), rows, table.note if last else "")


def to_markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown, with its title in bold above and its note below."""
    rules = ["---:" if numeric else "---" for numeric in table.is_numeric()]
    cells = [_decorated(row, cells, _MARKDOWN) for row, cells in zip(table.rows, table.cells(), strict=True)]
    lines = [_markdown_row(row) for row in (table.columns, rules, *cells)]
    parts = [f"**{table.title}**", "\n".join(lines), *([table.note] if table.note else [])]
    return "\n\n".join(parts) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |"


def to_latex(table: Table) -> str:
    """The table for LaTeX with the booktabs package, every special character escaped."""
    alignment = "".join("r" if numeric else "l" for numeric in table.is_numeric())
    escaped = [[cell.translate(_LATEX) for cell in row] for row in table.cells()]
    rows = [_decorated(row, cells, _LATEX_MARKS) for row, cells in zip(table.rows, escaped, strict=True)]
    head = [name.translate(_LATEX) for name in table.columns]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{'. '.join(filter(None, (table.title, table.note))).translate(_LATEX)}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(head) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_STYLES: dict[type, str] = {Best: "bold", Second: "underline", Strong: "bold"}
_MARKDOWN: dict[type, str] = {Best: "**{}**", Second: "*{}*", Strong: "**{}**"}
_LATEX_MARKS: dict[type, str] = {Best: r"\textbf{{{}}}", Second: r"\underline{{{}}}", Strong: r"\textbf{{{}}}"}


def _decorated(values: Sequence[object], cells: Sequence[str], marks: dict[type, str]) -> list[str]:
    return [marks.get(type(value), "{}").format(cell) for value, cell in zip(values, cells, strict=True)]


def _starred(cell: str, value: object) -> str:
    """A sign for where neither bold nor underlined can be seen."""
    return cell + ("*" if isinstance(value, Best) else "'" if isinstance(value, Second) else "")


def _plain(value: object) -> Any:
    """The value in types that JSON knows."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimals(name: str, column: Sequence[object]) -> int:
    """One for percentages, else enough to tell the values of the column apart."""
    if "%" in name:
        return 1
    if name in _AS_TYPED:
        return -1
    sizes = [abs(value) for value in column if isinstance(value, float) and math.isfinite(value) and value != 0]
    if not sizes:
        return 2
    return 4 if min(sizes) < 0.01 and max(sizes) <= 1 else 1 if max(sizes) >= 1000 else 2


def _shown(value: object, decimals: int, name: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _NOTHING
    if isinstance(value, list | tuple):
        return ", ".join(_shown(item, decimals, name) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value) if name in _AS_TYPED else f"{value:,}"
    if isinstance(value, float):
        if decimals < 0:
            return f"{value:g}"
        small = 10**-decimals
        return f"<{small}" if 0 < value < small / 2 else f"{value:,.{decimals}f}"
    return "".join(character if character.isprintable() else f"U+{ord(character):04X}" for character in str(value))
