"""Commands that make runs of runs: ensemble, soup."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from danseo.cli.common import as_json_option, data_option, no_wait_option, show, trust_option
from danseo.display.escaping import say

_members = click.argument("members", nargs=-1, required=True, metavar="RUN RUN…", type=click.Path(path_type=Path))
_runs = click.option(
    "--runs", default="runs", show_default=True, type=click.Path(path_type=Path), help="Folder of runs."
)
_select = click.option("--select", type=click.Choice(["greedy"]), help="Leave out members that do not help.")
_force = click.option("--force", is_flag=True, help="Start anew, whatever was there.")


def _noting(as_json: bool) -> Callable[[str], None]:
    """Where notes go: nowhere beside JSON."""
    return lambda line: None if as_json else say(line)


@click.command("ensemble")
@_members
@click.option(
    "--method",
    type=click.Choice(["prob", "logprob", "logit", "vote"]),
    help="What is averaged, or a vote. [default: prob; wos: vote]",
)
@click.option("--weights", metavar="fit|1,2", help="A number per run, or fitted. [default: equal]")
@_select
@data_option
@_runs
@_force
@no_wait_option
@as_json_option
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
    """Make a run of other runs' saved predictions; no model is loaded. Fitting sees the select half of dev only."""
    from danseo.ensembling.making import Options, make_ensemble
    from danseo.ensembling.tables import ensemble_tables
    from danseo.runs.layouts.single import run_document

    options = Options(method, weights, select)
    run = make_ensemble(members, data_dir, runs, options, force=force, wait=not no_wait, on_note=_noting(as_json))
    show(ensemble_tables(run), as_json, run_document(run))


@click.command("soup")
@_members
@click.option("--weights", metavar="1,2", help="A number per run. [default: equal]")
@_select
@data_option
@_runs
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps. [default: the best there is]")
@trust_option
@_force
@no_wait_option
@as_json_option
def soup_command(
    members: tuple[Path, ...],
    weights: str | None,
    select: str | None,
    data_dir: str | None,
    runs: Path,
    no_wait: bool,
    as_json: bool,
    **named: Any,
) -> None:
    """Average the weights of runs of one architecture into a new model, and score it."""
    from danseo.ensembling.soup import make_soup
    from danseo.ensembling.tables import ensemble_tables
    from danseo.runs.layouts.single import run_document

    run = make_soup(members, data_dir, runs, weights, select, wait=not no_wait, on_note=_noting(as_json), **named)
    show(ensemble_tables(run), as_json, run_document(run))


COMMANDS: tuple[click.Command, ...] = (ensemble_command, soup_command)
