"""A small table of plain values, and its faces: Markdown, LaTeX and JSON here, the terminal in terminal.py."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from danseo.display.escaping import visible

if TYPE_CHECKING:
    from rich.console import Console

_NOTHING = "–"
_PAGE = 90  # characters that a line of a page in LaTeX has room for
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
        "[": "{[}",  # at the start of a row they would belong to the end of the row before
        "*": "{*}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)
_MARKDOWN = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", **{character: f"\\{character}" for character in "\\|`*["}}
)


class Best(float):
    """The best number of its column: bold, and with a star where nothing can be bold."""


class Second(float):
    """A number that is best among some: those of its size."""


class TypedFloat(float):
    """A setting, shown as people type it: 5e-05 and never 0.00."""


class TypedInt(int):
    """A whole number that counts nothing, such as a seed: 2024 and never 2,024."""


class Strong(str):
    """A text that stands out."""

    __slots__ = ()


def as_typed(value: object) -> object:
    """A setting as a value of a table."""
    if isinstance(value, bool):
        return value
    return TypedInt(value) if isinstance(value, int) else TypedFloat(value) if isinstance(value, float) else value


def shown_interval(low: float | None, high: float | None, *, decimals: int = 2, signed: bool = False) -> str | None:
    """The ends of an interval; of a difference each with its sign."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return None
    low, high = (round(end, decimals) + 0.0 for end in (low, high))  # no -0.00
    return f"{low:+.{decimals}f} … {high:+.{decimals}f}" if signed else f"{low:.{decimals}f} – {high:.{decimals}f}"


@dataclass(frozen=True)
class Table:
    """Rows of plain values under named columns; None stands for "does not apply"."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    note: str = ""
    keys: int | None = None
    """How many columns at the left tell the rows apart; by default those before the first number."""
    section: str = ""
    """A column whose values may become headings, to save its room."""
    once: tuple[str, ...] = ()
    """Columns that may be said once below the table where all rows agree in them."""

    def as_dict(self) -> dict[str, Any]:
        """The table for JSON: full precision, lists for tuples, null for what is no finite number."""
        rows = [[_plain(value) for value in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "note": self.note}

    def cells(self) -> list[tuple[str, ...]]:
        """The rows as they are shown; the floats of a column have the same number of decimals."""
        decimals = [_decimals(name, column) for name, column in zip(self.columns, self.by_column(), strict=True)]
        return [tuple(map(_shown, row, decimals)) for row in self.rows]

    def is_numeric(self) -> list[bool]:
        """Which columns hold nothing but numbers, and so stand to the right."""
        return [
            any(value is not None for value in column) and all(value is None or _is_number(value) for value in column)
            for column in self.by_column()
        ]

    def by_column(self) -> list[list[object]]:
        """The values of every column."""
        return [[row[position] for row in self.rows] for position in range(len(self.columns))]

    def only(self, positions: Sequence[int]) -> "Table":
        """The table with some of its columns."""
        keys = None if self.keys is None else sum(position < self.keys for position in positions)
        rows = [tuple(row[position] for position in positions) for row in self.rows]
        return replace(self, columns=tuple(self.columns[position] for position in positions), rows=rows, keys=keys)

    def without_empty(self) -> "Table":
        """The table without columns that say nothing."""
        columns = enumerate(self.by_column())
        return self.only([k for k, column in columns if not self.rows or any(value is not None for value in column)])

    def sections(self) -> list[tuple[str, "Table"]]:
        """The table in parts, each with its heading."""
        if self.section not in self.columns:
            return [("", self)]
        at = self.columns.index(self.section)
        others = self.only([position for position in range(len(self.columns)) if position != at])
        parts: dict[str, list[tuple[object, ...]]] = {}
        for cells, row in zip(self.cells(), others.rows, strict=True):
            parts.setdefault(cells[at], []).append(row)
        return [(heading, replace(others, rows=rows)) for heading, rows in parts.items()]


def print_tables(tables: Iterable[Table], console: "Console | None" = None) -> None:
    """Print tables one below the other, as wide as the terminal is."""
    from rich.console import Console

    from danseo.display.terminal import print_table

    console = console or Console()
    for table in tables:
        print_table(table, console)


def to_markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown, with its title in bold above and its note below."""
    table = table.without_empty()
    rules = ["---:" if numeric else "---" for numeric in table.is_numeric()]
    escaped = [[_markdown(cell) for cell in row] for row in table.cells()]
    cells = [_decorated(row, cells, _MARKDOWN_MARKS) for row, cells in zip(table.rows, escaped, strict=True)]
    rows = [[_markdown(name) for name in table.columns], rules, *cells]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    parts = [f"**{_markdown(table.title)}**", "\n".join(lines), *([_markdown(table.note)] if table.note else [])]
    return "\n\n".join(parts) + "\n"


def _markdown(text: str) -> str:
    """The text as it is, for a page that would read HTML, links, marks and columns in it."""
    return visible(text, keep="\n").translate(_MARKDOWN)


def to_latex(table: Table) -> str:
    """The table for LaTeX, every special character escaped, and scaled where it is wider than a page."""
    table = table.without_empty()
    parts = table.sections()
    columns, is_wide = parts[0][1].columns if parts else table.columns, _characters(table) > _PAGE
    numeric = [table.is_numeric()[table.columns.index(name)] for name in columns]
    lines = [
        r"% \usepackage{booktabs}" + (r" and \usepackage{graphicx}, to scale it to the page" if is_wide else ""),
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex('. '.join(filter(None, (table.title, table.note))))}}}",
        *([r"\resizebox{\textwidth}{!}{%"] if is_wide else []),
        rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in numeric)}}}",
        r"\toprule",
        " & ".join(_tex(name) for name in columns) + r" \\",
        *(line for heading, part in parts for line in _latex_part(heading, part)),
        r"\bottomrule",
        r"\end{tabular}" + ("}" if is_wide else ""),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_part(heading: str, part: Table) -> list[str]:
    """Rows below a rule, and below their heading where there is one."""
    escaped = [[_tex(cell) for cell in row] for row in part.cells()]
    rows = [_decorated(row, cells, _LATEX_MARKS) for row, cells in zip(part.rows, escaped, strict=True)]
    span = rf"\multicolumn{{{len(part.columns)}}}{{l}}"
    above = [rf"{span}{{\textit{{{_tex(heading)}}}}} \\"] if heading else []
    return [r"\midrule", *above, *(" & ".join(row) + r" \\" for row in rows)]


def _tex(text: str) -> str:
    """The text with every special character escaped; two hyphens stay two."""
    return visible(text, keep="\n").replace("--", "\0").translate(_LATEX).replace("\0", "-{}-")


def _characters(table: Table) -> int:
    """How long the longest line is, a heading's column aside."""
    positions = [position for position, name in enumerate(table.columns) if name != table.section]
    texts = [[cells[position] for cells in (table.columns, *table.cells())] for position in positions]
    return sum(2 + max(map(len, column)) for column in texts)


_MARKDOWN_MARKS: dict[type, str] = {Best: "**{}**", Second: "*{}*", Strong: "**{}**"}
_LATEX_MARKS: dict[type, str] = {Best: r"\textbf{{{}}}", Second: r"\underline{{{}}}", Strong: r"\textbf{{{}}}"}


def _decorated(values: Sequence[object], cells: Sequence[str], marks: dict[type, str]) -> list[str]:
    return [marks.get(type(value), "{}").format(cell) for value, cell in zip(values, cells, strict=True)]


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
    sizes = [abs(value) for value in column if isinstance(value, float) and math.isfinite(value) and value != 0]
    if not sizes:
        return 2
    return 4 if min(sizes) < 0.01 and max(sizes) <= 1 else 1 if max(sizes) >= 1000 else 2


def _shown(value: object, decimals: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _NOTHING
    if isinstance(value, list | tuple):
        return ", ".join(_shown(item, decimals) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, TypedInt | TypedFloat):
        return f"{value:g}" if isinstance(value, float) else str(int(value))
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        small = 10**-decimals
        if 0 < abs(value) < small / 2:
            return f"<{small}" if value > 0 else f">-{small}"
        return f"{value + 0.0:,.{decimals}f}"  # no -0.00
    return visible(value)
