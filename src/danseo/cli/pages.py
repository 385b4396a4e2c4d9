"""danseo report and danseo board: what people look at."""

from pathlib import Path

import click

from danseo.cli.common import as_json_option, data_option, print_json
from danseo.display.escaping import say, visible


@click.command("report")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--out", default="report.html", show_default=True, type=click.Path(path_type=Path), help="The file to write."
)
@data_option
@as_json_option
def report_command(runs: tuple[Path, ...], out: Path, data_dir: str | None, as_json: bool) -> None:
    """Write runs, or folders of them, as one HTML file with tables, plots and examples; it asks nobody for anything."""
    from danseo.report.making import write_report

    made = write_report(runs or (Path("runs"),), out, data_dir, on_note=lambda line: None if as_json else say(line))
    if as_json:
        print_json(made)
    else:
        click.echo(visible(f"{made['out']}: {made['runs']} runs, {made['bytes'] / 1e6:.2f} MB; open it in a browser"))


@click.command("board")
@click.argument("runs", default="runs", type=click.Path(path_type=Path))
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; beyond this machine a token is due."
)
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--token", envvar="DANSEO_BOARD_TOKEN", help="What readers have to show. [default: made up where due]")
@click.option("--model", metavar="RUN", type=click.Path(path_type=Path), help="A run to try in the browser beside it.")
@data_option
def board_command(
    runs: Path, host: str, port: int, token: str | None, model: Path | None, data_dir: str | None
) -> None:
    """Show a folder of runs live in the browser: progress, results, comparisons; it only reads."""
    from danseo.board.serving import serve_board

    serve_board(runs, data_dir, host, port, token, model)


COMMANDS = (report_command, board_command)
