"""danseo report, danseo board and danseo leaderboard: HTML pages of runs and bundles."""

from pathlib import Path

import click

from danseo.cli import options
from danseo.cli.options import PATH, print_notes_unless, show_result, show_text
from danseo.language import _


@click.command("report")
@click.argument("runs", nargs=-1, type=PATH)
@click.option("--out", default="report.html", type=PATH, help="The file to write.")
@options.data
@options.lang
@options.as_json
def report_command(runs: tuple[Path, ...], out: Path, data_dir: str | None, as_json: bool) -> None:
    """Write an HTML page with tables, plots and examples of runs.

    RUNS are runs or folders of runs. The file loads nothing from the network.
    """
    from danseo.report.build import write_report

    made = write_report(runs or (Path("runs"),), out, data_dir, on_note=print_notes_unless(as_json))
    size = f"{made['bytes'] / 1e6:.2f} MB"
    text = _("{out}: {runs} runs, {size}; open it in a browser").format(out=made["out"], runs=made["runs"], size=size)
    show_text(text, as_json, made)


@click.command("board")
@click.argument("runs", default="runs", type=PATH)
@click.option(
    "--host", default="127.0.0.1", help="Address to listen on. Addresses that other machines can reach need a token."
)
@options.port(8765)
@click.option(
    "--token",
    envvar="DANSEO_BOARD_TOKEN",
    help="Token that visitors must give. [default: random, if a token is needed]",
)
@click.option("--model", metavar="RUN", type=PATH, help="Also let visitors try the model of this run.")
@options.data
def board_command(
    runs: Path, host: str, port: int, token: str | None, model: Path | None, data_dir: str | None
) -> None:
    """Show a folder of runs live in the browser.

    Pages of progress, results and comparisons; nothing is changed.
    """
    from danseo.board.app import serve_board

    serve_board(runs, data_dir, host, port, token, model)


@click.command("leaderboard")
@click.argument("bundles", nargs=-1, required=True, type=PATH, metavar="BUNDLE…")
@click.option("--out", required=True, type=PATH, metavar="FOLDER", help="The folder to write or replace.")
@options.data
@options.as_json
def leaderboard_command(bundles: tuple[Path, ...], out: Path, data_dir: str | None, as_json: bool) -> int:
    """Write a static site that ranks verified bundles.

    Every score is computed again; a bundle that fails is listed with its reason (exit code 3).
    """
    from danseo.api.leaderboard import write_leaderboard

    written = write_leaderboard(bundles, out, data_dir, on_note=print_notes_unless(as_json))
    show_result(written, as_json)
    return written.exit_code
