"""danseo sweep: many runs from one file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from danseo.cli import options
from danseo.cli.options import NOT_NEGATIVE, PATH, show_result
from danseo.language import _


@click.command("sweep")
@click.argument("file", type=PATH)
@options.data
@options.runs
@options.assignments
@options.devices
@options.slots
@click.option(
    "--executor", type=click.Choice(["local", "ray"]), default="local", help="Run on this machine, or on a Ray cluster."
)
@click.option("--ray-address", metavar="ADDRESS", help="host:port or auto. [default: a local cluster]")
@click.option("--retries", default=0, type=NOT_NEGATIVE, help="How many times a failed run is tried again.")
@options.track
@options.trust_remote_code
@options.timeout
@click.option("--force", is_flag=True, help="Run finished runs again.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only show what varies, what is finished and how long the rest takes; needs no network.",
)
@options.as_json
def sweep_command(
    file: Path, data_dir: str | None, track: str | None, dry_run: bool, as_json: bool, **arguments: Any
) -> None:
    """Run many settings: a grid, a list or a search.

    Uses all devices in parallel. The same command resumes.
    """
    from danseo.config.recipes import find_settings_file
    from danseo.data.find import data_root
    from danseo.errors import PartlyDone
    from danseo.export.live_tracker import make_sweep_tracker
    from danseo.sweeps.preparation import SweepOptions
    from danseo.sweeps.sweep import forecast, run_sweep

    path = find_settings_file(file, "sweeps")
    sweep_options = SweepOptions(data_root(data_dir), quiet=as_json, **arguments)
    if dry_run:
        return show_result(forecast(path, sweep_options), as_json)
    with make_sweep_tracker(track, sweep_options.runs, quiet=as_json) as tracker:
        result = run_sweep(path, replace(sweep_options, on_run=tracker.update if tracker else None))
    show_result(result, as_json)
    if result.failed_runs:
        raise PartlyDone(
            _("{n} of {all} runs failed; the same command tries them again").format(
                n=len(result.failed_runs), all=len(result.records)
            )
        )
    if result.ensemble_errors:
        count = len(result.ensemble_errors)
        raise PartlyDone(f"{count} ensemble{'s' if count > 1 else ''} failed: {result.ensemble_errors[0]}")
