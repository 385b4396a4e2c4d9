"""danseo ensemble and danseo soup: several runs combined into one."""

from pathlib import Path
from typing import Any

import click

from danseo.cli import options
from danseo.cli.options import PATH, print_notes_unless, show_tables
from danseo.display.progress import Waiting

_members_argument = click.argument("members", nargs=-1, required=True, metavar="RUN RUN…", type=PATH)
_select_option = click.option(
    "--select", type=click.Choice(["greedy"]), help="Leave out runs that do not improve the score."
)


@click.command("ensemble")
@_members_argument
@click.option(
    "--method",
    type=click.Choice(["prob", "logprob", "logit", "vote"]),
    help="What to average, or vote. [default: prob; wos: vote]",
)
@click.option("--weights", metavar="fit|1,2", help="One weight per run, or fit. [default: equal weights]")
@_select_option
@options.data
@options.runs
@options.force
@options.no_wait
@options.as_json
def ensemble_command(
    members: tuple[Path, ...],
    method: str | None,
    weights: str | None,
    select: str | None,
    data_dir: str | None,
    runs: Path,
    force: bool,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Combine saved predictions of runs into a new run.

    No model is loaded. Weights are fitted on the select split of dev.
    """
    from danseo.ensembling.ensemble import EnsembleOptions, make_ensemble, make_ensemble_tables
    from danseo.tables.run_summary import make_run_document

    combination, on_note = EnsembleOptions(method, weights, select), print_notes_unless(as_json)
    with Waiting("combining and scoring the predictions", quiet=as_json):
        run = make_ensemble(members, data_dir, runs, combination, force=force, wait=not no_wait, on_note=on_note)
    show_tables(make_ensemble_tables(run), as_json, make_run_document(run))


@click.command("soup")
@_members_argument
@click.option("--weights", metavar="1,2", help="One weight per run. [default: equal weights]")
@_select_option
@options.data
@options.runs
@options.device
@options.trust_remote_code
@options.force
@options.no_wait
@options.as_json
def soup_command(
    members: tuple[Path, ...],
    weights: str | None,
    select: str | None,
    data_dir: str | None,
    runs: Path,
    no_wait: bool,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Average the weights of runs into a new model.

    The runs must have one architecture. The new model is scored.
    """
    from danseo.ensembling.ensemble import make_ensemble_tables
    from danseo.ensembling.soup import make_soup
    from danseo.tables.run_summary import make_run_document

    arguments |= {"wait": not no_wait, "on_note": print_notes_unless(as_json)}
    with Waiting("averaging and scoring the models", quiet=as_json):
        run = make_soup(members, data_dir, runs, weights, select, **arguments)
    show_tables(make_ensemble_tables(run), as_json, make_run_document(run))
