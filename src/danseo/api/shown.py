"""Results look after themselves: as text, in a terminal through rich, in a notebook as HTML."""

from collections.abc import Iterator
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from danseo.display.table import Table, print_tables

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_WIDE = 200


class Shown:
    """Something that is shown as tables."""

    def tables(self) -> list[Table]:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._text(_WIDE)

    def _text(self, width: int) -> str:
        from rich.console import Console

        page = StringIO()
        print_tables(self.tables(), Console(file=page, width=width, highlight=False, no_color=True))
        return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n")

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        yield Text(self._text(options.max_width))

    def _repr_html_(self) -> str:
        return "\n".join(part for table in self.tables() for part in _html(table))


def _html(table: Table) -> Iterator[str]:
    """A table as HTML, everything in it escaped."""
    sides = ["right" if is_number else "left" for is_number in table.is_numeric()]
    yield f"<table><caption>{escape(table.title)}</caption>"
    heads = "".join(
        f'<th style="text-align:{side}">{escape(name)}</th>' for name, side in zip(table.columns, sides, strict=True)
    )
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for row in table.cells():
        cells = "".join(
            f'<td style="text-align:{side}">{escape(cell)}</td>' for cell, side in zip(row, sides, strict=True)
        )
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table>"
    if table.note:
        yield f"<p><small>{escape(table.note)}</small></p>"
