"""Tables of plain values as Markdown, LaTeX and JSON; terminal.py prints them."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from danseo.display.escaping import to_csv, to_json, visible
from danseo.language import Message, _, join, translate, translate_message

if TYPE_CHECKING:
    from rich.console import Console

_NOTHING = "–"
_YES = {True: _("yes"), False: _("no")}
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
    """The best number of its column: bold, or with a star without bold text."""


class Second(float):
    """The best number among models of the same size."""


class TypedFloat(float):
    """A setting that is printed as typed: 5e-05 and never 0.00."""


class TypedInt(int):
    """A whole number without separators, such as a seed: 2024 and never 2,024."""


class Strong(str):
    """A text in bold."""

    __slots__ = ()


def as_typed(value: object) -> object:
    """Return a setting as a value of a table."""
    if isinstance(value, bool):
        return value
    return TypedInt(value) if isinstance(value, int) else TypedFloat(value) if isinstance(value, float) else value


def format_interval(interval: Sequence[float | None] | None, *, decimals: int = 2, signed: bool = False) -> str | None:
    """Return the ends of an interval as text, with signs for a difference; None if an end is undefined."""
    ends = [round(end, decimals) + 0.0 for end in interval or () if end is not None and not math.isnan(end)]  # no -0.00
    if len(ends) != 2:
        return None
    low, high = ends
    return f"{low:+.{decimals}f} … {high:+.{decimals}f}" if signed else f"{low:.{decimals}f} – {high:.{decimals}f}"


@dataclass(frozen=True)
class Table:
    """Rows of plain values under named columns; None means "does not apply"."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    note: str = ""
    keys: int | None = None
    """The number of key columns at the left; by default those before the first number."""
    section: str = ""
    """A column whose values become headings."""
    once: tuple[str, ...] = ()
    """Columns that move to the note if all rows have the same value."""

    def as_dict(self) -> dict[str, Any]:
        """Return the table for JSON: full precision, and null for numbers that are not finite."""
        rows = [[_to_json_value(value) for value in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "note": self.note}

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as text; the floats of a column have the same number of decimals."""
        decimals = [_choose_decimals(name, column) for name, column in zip(self.columns, self.by_column(), strict=True)]
        return [tuple(map(_format_value, row, decimals)) for row in self.rows]

    def is_numeric(self) -> list[bool]:
        """Return for each column whether it holds only numbers."""
        return [
            any(value is not None for value in column) and all(value is None or _is_number(value) for value in column)
            for column in self.by_column()
        ]

    def by_column(self) -> list[list[object]]:
        """Return the values of every column."""
        return [[row[position] for row in self.rows] for position in range(len(self.columns))]

    def only(self, positions: Sequence[int]) -> "Table":
        """Return the table with some of its columns."""
        keys = None if self.keys is None else sum(position < self.keys for position in positions)
        rows = [tuple(row[position] for position in positions) for row in self.rows]
        return replace(self, columns=tuple(self.columns[position] for position in positions), rows=rows, keys=keys)

    def without(self, names: Collection[str]) -> "Table":
        """Return the table without some columns."""
        return self.only([position for position, name in enumerate(self.columns) if name not in names])

    def without_empty(self) -> "Table":
        """Return the table without empty columns."""
        columns = zip(self.columns, self.by_column(), strict=True)
        return self.without([name for name, column in columns if self.rows and all(value is None for value in column)])

    def sections(self) -> list[tuple[str, "Table"]]:
        """Return the parts of the table with their headings."""
        if not self.section or self.section not in self.columns:
            return [("", self)]
        at = self.columns.index(self.section)
        others = self.without([self.section])
        parts: dict[str, list[tuple[object, ...]]] = {}
        for cells, row in zip(self.cells(), others.rows, strict=True):
            parts.setdefault(cells[at], []).append(row)
        return [(heading, replace(others, rows=rows)) for heading, rows in parts.items()]


def translate_table(table: Table, language: str | None = None) -> Table:
    """Return the table with its title, names of columns, note, and the messages in its cells in a language."""
    return replace(
        table,
        title=translate(table.title, language),
        columns=tuple(translate(name, language) for name in table.columns),
        rows=[tuple(translate_cell(value, language) for value in row) for row in table.rows],
        note=translate(table.note, language),
        section=translate(table.section, language),
    )


def translate_cell(value: object, language: str | None = None) -> object:
    """Return the value of a cell; yes, no and messages in a language."""
    return translate(_YES[value], language) if isinstance(value, bool) else translate_message(value, language)


def print_tables(tables: Iterable[Table], console: "Console | None" = None) -> None:
    """Print tables in the width of the terminal."""
    from rich.console import Console

    from danseo.display.terminal import print_table

    console = console or Console()
    for table in tables:
        print_table(table, console)


def to_markdown(table: Table) -> str:
    """Return the table as GitHub-flavoured Markdown with title and note."""
    table = table.without_empty()
    rules = ["---:" if numeric else "---" for numeric in table.is_numeric()]
    escaped = [[_escape_markdown(cell) for cell in row] for row in table.cells()]
    cells = [_add_marks(row, cells, _MARKDOWN_MARKS) for row, cells in zip(table.rows, escaped, strict=True)]
    rows = [[_escape_markdown(name) for name in table.columns], rules, *cells]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    parts = [
        f"**{_escape_markdown(table.title)}**",
        "\n".join(lines),
        *([_escape_markdown(table.note)] if table.note else []),
    ]
    return "\n\n".join(parts) + "\n"


def _escape_markdown(text: str) -> str:
    """Escape HTML, links, marks and column separators."""
    return visible(text, keep="\n").translate(_MARKDOWN)


def to_latex(table: Table) -> str:
    """Return the table as LaTeX, scaled if it is wider than a page."""
    table = table.without_empty()
    parts = table.sections()
    columns, is_wide = parts[0][1].columns if parts else table.columns, _measure_line(table) > _PAGE
    numeric = [table.is_numeric()[table.columns.index(name)] for name in columns]
    lines = [
        r"% \usepackage{booktabs}" + (r" and \usepackage{graphicx}, to scale it to the page" if is_wide else ""),
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape_latex('. '.join(filter(None, (table.title, table.note))))}}}",
        *([r"\resizebox{\textwidth}{!}{%"] if is_wide else []),
        rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in numeric)}}}",
        r"\toprule",
        " & ".join(_escape_latex(name) for name in columns) + r" \\",
        *(line for heading, part in parts for line in _latex_part(heading, part)),
        r"\bottomrule",
        r"\end{tabular}" + ("}" if is_wide else ""),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_part(heading: str, part: Table) -> list[str]:
    """Return a rule, the heading if there is one, and the rows."""
    escaped = [[_escape_latex(cell) for cell in row] for row in part.cells()]
    rows = [_add_marks(row, cells, _LATEX_MARKS) for row, cells in zip(part.rows, escaped, strict=True)]
    span = rf"\multicolumn{{{len(part.columns)}}}{{l}}"
    above = [rf"{span}{{\textit{{{_escape_latex(heading)}}}}} \\"] if heading else []
    return [r"\midrule", *above, *(" & ".join(row) + r" \\" for row in rows)]


def _escape_latex(text: str) -> str:
    """Escape the special characters of LaTeX; two hyphens stay two."""
    return visible(text, keep="\n").replace("--", "\0").translate(_LATEX).replace("\0", "-{}-")


def _measure_line(table: Table) -> int:
    """Return the length of the longest line without the column of headings."""
    positions = [position for position, name in enumerate(table.columns) if name != table.section]
    texts = [[cells[position] for cells in (table.columns, *table.cells())] for position in positions]
    return sum(2 + max(map(len, column)) for column in texts)


_MARKDOWN_MARKS: dict[type, str] = {Best: "**{}**", Second: "*{}*", Strong: "**{}**"}
_LATEX_MARKS: dict[type, str] = {Best: r"\textbf{{{}}}", Second: r"\underline{{{}}}", Strong: r"\textbf{{{}}}"}


def _add_marks(values: Sequence[object], cells: Sequence[str], marks: dict[type, str]) -> list[str]:
    return [marks.get(type(value), "{}").format(cell) for value, cell in zip(values, cells, strict=True)]


def _to_json_value(value: object) -> Any:
    """Return the value in types of JSON."""
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _choose_decimals(name: str, column: Sequence[object]) -> int:
    """Return one for percentages, else enough decimals to distinguish the values of the column."""
    if "%" in name:
        return 1
    sizes = [abs(value) for value in column if isinstance(value, float) and math.isfinite(value) and value != 0]
    if not sizes:
        return 2
    return 4 if min(sizes) < 0.01 and max(sizes) <= 1 else 1 if max(sizes) >= 1000 else 2


def _format_value(value: object, decimals: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _NOTHING
    if isinstance(value, list | tuple):
        return ", ".join(_format_value(item, decimals) for item in value)
    if isinstance(value, bool):
        return _YES[value]
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


def format_table(table: Table, style: str) -> str:
    """Return the table as markdown, csv, json or latex."""
    if style == "json":
        return to_json(as_rows(table))
    if style == "csv":
        return to_csv([table.columns, *map(_csv_row, table.rows)]).rstrip("\n")
    return (to_latex if style == "latex" else to_markdown)(table).rstrip("\n")


def _csv_row(row: Sequence[object]) -> list[object]:
    return [" ".join(map(str, value)) if isinstance(value, list) else value for value in row]


def format_tables(tables: Sequence[Table], style: str) -> str:
    """Return one or several tables in a format."""
    if style == "json" and len(tables) > 1:
        rows, summary = (as_rows(table) for table in tables)
        document = {"std_ddof": 1, "population_std_ddof": 0, "runs": rows, "summary": summary}
        return to_json(document)
    return "\n\n".join(format_table(table, style) for table in tables)


def as_rows(table: Table) -> list[dict[str, Any]]:
    """Return every row as a dict; the names of the columns with a best number are listed too."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.as_dict()["rows"]]
    for kind, key in ((Best, "best"), (Second, "best of its size")):
        if any(isinstance(value, kind) for row in table.rows for value in row):
            for shown, row in zip(rows, table.rows, strict=True):
                columns = zip(table.columns, row, strict=True)
                shown[key] = [name for name, value in columns if isinstance(value, kind)]
    return rows


def compact(table: Table) -> Table:
    """Return the table with values that all rows share in its note instead of a column."""
    shared: list[str] = []
    left: list[int] = []
    for position, (name, column) in enumerate(zip(table.columns, table.by_column(), strict=True)):
        cells = zip(table.cells(), column, strict=True)
        known = [value if isinstance(value, Message) else row[position] for row, value in cells if value is not None]
        if name not in table.once or (len(set(known)) > 1 and not _is_by_task(table, name)):
            left.append(position)
        elif known:
            shared.append(join([Message(name), join(dict.fromkeys(known), ", ")]))
    note = join(filter(None, (join(shared, "; "), table.note)), "\n")
    return replace(table.only(left), note=note)


def _is_by_task(table: Table, name: str) -> bool:
    """Return whether the column is the metric and every task has only one."""
    if name != "metric" or "task" not in table.columns:
        return False
    tasks, metrics = (table.by_column()[table.columns.index(each)] for each in ("task", "metric"))
    pairs = {pair for pair in zip(tasks, metrics, strict=True) if pair[1] is not None}
    return len(pairs) == len({task for task, _ in pairs})
