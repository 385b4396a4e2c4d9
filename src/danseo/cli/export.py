"""danseo export: a run in the formats of other tools."""

from typing import Any

import click

from danseo.cli import options
from danseo.cli.options import show_table, show_tables
from danseo.display.progress import Waiting
from danseo.language import _, translate


def _check_format(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    from danseo.export.registry import get_format

    return get_format(name).name if name else None


class _ExportCommand(click.Command):
    """A command that also has the options of the formats, which are imported when it is used."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from danseo.export.registry import list_options

        declared = {parameter.name for parameter in self.params}
        for option, formats in list_options():
            if option.name not in declared:
                flag, text = f"--{option.name.replace('_', '-')}", f"{', '.join(formats)}: {option.help}"
                is_flag = option.metavar is None
                self.params.append(click.Option([flag], help=translate(text), metavar=option.metavar, is_flag=is_flag))
        return super().get_params(ctx)


@click.command("export", cls=_ExportCommand)
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option(
    "--to",
    "format_",
    metavar="FORMAT",
    callback=_check_format,
    help="Format; `danseo export` without options lists them.",
)
@click.option(
    "--out", metavar="PATH", help="Target file or folder, or OWNER/NAME on the Hub. [default: beside the run]"
)
@options.data
@options.as_json
def export_command(
    runs: tuple[str, ...], format_: str | None, out: str | None, data_dir: str | None, as_json: bool, **arguments: Any
) -> None:
    """Export a run to another format. Without --to, list the formats and the extra that each needs.

    A bundle may have several runs, one per task.
    """
    from danseo.display.table import Table
    from danseo.export.base import ExportRefused, ExportRequest
    from danseo.export.registry import export_run, list_formats

    if not runs and format_ is None:
        return show_table(list_formats(), as_json)
    if not runs or format_ is None:
        raise click.UsageError(
            _("Missing option '{name}'.").format(name="--to")
            if runs
            else _("Missing argument '{name}'.").format(name="RUN")
        )
    given = {name: value for name, value in arguments.items() if value not in (None, False, ())}
    try:
        with Waiting("exporting", quiet=as_json):
            exported = dict(export_run(format_, ExportRequest(runs[0], out, data_dir, given, runs[1:])))
    except ExportRefused as error:
        show_tables(error.tables, as_json, {"tables": [table.as_dict() for table in error.tables]})
        raise
    tables = exported.pop("tables", [])
    document = exported | ({"tables": [table.as_dict() for table in tables]} if tables else {})
    facts = [Table(f"exported to {format_}", ("what", "value"), list(exported.items()))] if "out" in exported else []
    show_tables([*facts, *tables], as_json, document)
