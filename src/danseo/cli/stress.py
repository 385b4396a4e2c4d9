"""danseo stress: runs on perturbed copies of dev."""

from pathlib import Path

import click

from danseo.cli import options
from danseo.cli.options import PATH, POSITIVE, print_notes_unless, show_result


@click.command("stress")
@click.argument("runs", nargs=-1, required=True, type=PATH, metavar="RUN…")
@click.option("--perturb", metavar="NAMES", help="Perturbations by comma, such as typos,nfd. [default: all]")
@click.option("--limit", type=POSITIVE, help="Use at most so many examples of the report split of dev.")
@click.option("--plot", type=PATH, help="Also draw the differences to this file (png, svg or pdf).")
@options.data
@options.device
@options.precision
@options.url
@options.trust_remote_code
@options.as_json
def stress_command(
    runs: tuple[Path, ...],
    perturb: str | None,
    limit: int | None,
    plot: Path | None,
    data_dir: str | None,
    device: str | None,
    precision: str | None,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Score runs on perturbed copies of dev: what breaks them.

    The result is stored in each run, for report and board.
    """
    from danseo.display.plots.image_files import get_plot_format, save_figures
    from danseo.display.progress import Waiting
    from danseo.inference.stress import parse_perturbations, stress_runs
    from danseo.models.base import LoadOptions
    from danseo.tables.stress import StressTables, draw_stress

    names = parse_perturbations(perturb)
    if plot:
        get_plot_format(plot)  # before the evaluation, which can be long
    loading = LoadOptions(device, precision, trust_remote_code, print_notes_unless(as_json))
    with Waiting("evaluating the runs", quiet=as_json) as waiting:
        results = stress_runs(runs, names, data_dir, limit=limit or 0, loading=loading, on_progress=waiting)
    if plot:
        save_figures(plot, [draw_stress(results)])
    show_result(StressTables(results), as_json)
