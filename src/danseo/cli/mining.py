"""danseo mine: hard examples and likely label errors."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli.common import (
    Once,
    as_json_option,
    data_option,
    set_option,
    show,
    task_argument,
    timeout_option,
    trust_option,
)

if TYPE_CHECKING:
    from danseo.tasks.task import Task

_share = click.FloatRange(0, 1)


@click.command("mine")
@task_argument
@click.option("-m", "--model", cls=Once, required=True, help="What `danseo train` takes; it has to give probabilities.")
@click.option(
    "--folds", default=5, show_default=True, type=click.IntRange(min=2), help="Parts of the training examples."
)
@data_option
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path), help="Folder of runs.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to write. [default: mined/TASK--MODEL]")
@click.option(
    "--threshold", default=0.55, show_default=True, type=_share, help="Hard: less than this for the own label."
)
@click.option("--boost", default=2.0, show_default=True, help="The weight at the threshold; it grows below it.")
@click.option("--cap", default=4.0, show_default=True, help="The largest weight.")
@click.option(
    "--sure", default=0.95, show_default=True, type=_share, help="To review: more than this for another label."
)
@set_option
@click.option("--devices", metavar="LIST", help="One slot each: cuda:0,cuda:1. [default: all GPUs, else the CPU]")
@click.option("--slots", type=click.IntRange(1, 1024), help="This many runs at a time, over the devices there are.")
@trust_option
@timeout_option
@as_json_option
def mine_command(
    task: "Task",
    model: str,
    folds: int,
    data_dir: str | None,
    out: Path | None,
    threshold: float,
    boost: float,
    cap: float,
    sure: float,
    as_json: bool,
    **named: Any,
) -> None:
    """Train on all folds but one, ask about that one: weights for hard examples, and labels that are likely wrong."""
    from danseo.data.find import data_root
    from danseo.mining.mine import mine
    from danseo.mining.rule import Rule
    from danseo.sweeps.preparing import Options

    options = Options(data_root(data_dir), quiet=as_json, **named)
    mined = mine(task, model, folds, options, out, Rule(threshold, boost, cap, sure))
    show(mined.tables(), as_json, mined.as_dict())


COMMANDS: tuple[click.Command, ...] = (mine_command,)
