"""Commands that make many runs: sweep, tune."""

from pathlib import Path
from typing import Any

import click

from danseo.cli.common import as_json_option, data_option, set_option, show, timeout_option, trust_option
from danseo.cli.tuning import tune


@click.command("sweep")
@click.argument("file", type=click.Path(path_type=Path))
@data_option
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path), help="Folder of runs.")
@set_option
@click.option("--devices", metavar="LIST", help="One slot each: cuda:0,cuda:1. [default: all GPUs, else the CPU]")
@click.option("--slots", type=click.IntRange(1, 1024), help="This many runs at a time, over the devices there are.")
@click.option(
    "--executor", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Where to run."
)
@click.option("--ray-address", metavar="ADDRESS", help="host:port or auto. [default: a local cluster]")
@click.option("--retries", default=0, show_default=True, type=click.IntRange(min=0), help="New tries of a failed run.")
@trust_option
@timeout_option
@click.option("--force", is_flag=True, help="Run anew what is done already.")
@click.option("--dry-run", is_flag=True, help="Show what varies, what is done, how long the rest takes; offline.")
@as_json_option
def sweep_command(file: Path, data_dir: str | None, dry_run: bool, as_json: bool, **named: Any) -> None:
    """Run many settings, by a grid, a list or a search, on all devices at once; the same command goes on."""
    from danseo.data.find import data_root
    from danseo.errors import PartlyDone
    from danseo.recipes import settings_file
    from danseo.sweeps.preparing import Options
    from danseo.sweeps.sweep import forecast, run_sweep

    options = Options(data_root(data_dir), quiet=as_json, **named)
    if dry_run:
        expected = forecast(settings_file(file, "sweeps"), options)
        show([expected.table()], as_json, expected.as_dict())
        return
    outcome = run_sweep(settings_file(file, "sweeps"), options)
    show(outcome.tables(), as_json, outcome.as_dict())
    if outcome.failed:
        raise PartlyDone(
            f"{len(outcome.failed)} of {len(outcome.records)} runs failed; the same command tries them again"
        )


COMMANDS: tuple[click.Command, ...] = (sweep_command, tune)
