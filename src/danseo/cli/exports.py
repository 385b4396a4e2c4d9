"""danseo export: a run in the forms that others read."""

from typing import Any

import click

from danseo.cli.common import as_json_option, data_option, show, trust_option


def _formats(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    from danseo.exports.table import get_format

    return get_format(name).name if name else None


@click.command("export")
@click.argument("run", required=False)
@click.option(
    "--to", "format_", metavar="FORMAT", callback=_formats, help="The format; `danseo export` alone lists them."
)
@click.option("--out", metavar="PATH", help="A file, a folder, or OWNER/NAME. [default: beside the run]")
@click.option("--int8", is_flag=True, help="onnx: weights in bytes, smaller and faster; they are rounded.")
@trust_option
@click.option("--project", metavar="NAME", help="mlflow, wandb, trackio: where the run belongs. [default: danseo]")
@click.option("--private", is_flag=True, help="hub: a repository that only its owners see.")
@data_option
@as_json_option
def export_command(
    run: str | None, format_: str | None, out: str | None, data_dir: str | None, as_json: bool, **options: Any
) -> None:
    """Write a run in a form that others read; without a format, list the formats and the extra each needs."""
    from danseo.display.table import Table
    from danseo.exports.format import Request
    from danseo.exports.table import export, formats_table

    if run is None or format_ is None:
        if run is not None or format_ is not None:
            raise click.UsageError("Missing option '--to'." if run else "Missing argument 'RUN'.")
        table = formats_table()
        return show([table], as_json, table.as_dict())
    given = {name: value for name, value in options.items() if value not in (None, False, ())}
    made = export(format_, Request(run, out, data_dir, given))
    show([Table(f"exported to {format_}", ("what", "value"), list(made.items()))], as_json, made)


COMMANDS = (export_command,)
