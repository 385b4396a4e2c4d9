"""What commands print: tables, texts, JSON, notes and help."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import click

from danseo.display.escaping import say, to_json, visible
from danseo.language import translate_message

if TYPE_CHECKING:
    from danseo.display.table import Table

_PIPE_COLUMNS = 200  # without a terminal nothing is folded, so that pipes and files stay greppable


class Result(Protocol):
    """A result that is shown as tables or as a JSON document."""

    def tables(self) -> "Iterable[Table]": ...

    def as_dict(self) -> Mapping[str, Any]: ...


def show_result(result: Result, as_json: bool) -> None:
    show_tables(result.tables(), as_json, result.as_dict())


def show_table(table: "Table", as_json: bool) -> None:
    show_tables([table], as_json, table.as_dict())


def show_tables(tables: "Iterable[Table]", as_json: bool, document: Mapping[str, Any]) -> None:
    """Print tables, or with --json the document."""
    if as_json:
        click.echo(to_json(document))
        return
    from rich.console import Console

    from danseo.display.table import print_tables

    is_terminal = sys.stdout and sys.stdout.isatty()
    print_tables(tables, Console(highlight=False, width=None if is_terminal else _PIPE_COLUMNS))


def show_text(text: str, as_json: bool, document: Mapping[str, Any], keep: str = "") -> None:
    """Print a text, or with --json the document; unprintable characters that are not to keep are escaped."""
    click.echo(to_json(document) if as_json else visible(translate_message(text), keep))


def print_notes_unless(as_json: bool) -> Callable[[str], None]:
    """Return the function that prints notes; with --json they are dropped."""
    return (lambda line: None) if as_json else say


def show_help(context: click.Context) -> None:
    """Print the help of a group if no command is given."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
