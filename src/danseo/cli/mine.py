"""danseo mine: hard examples and likely label errors."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli import options
from danseo.cli.options import PATH, UniqueOption, show_result

if TYPE_CHECKING:
    from danseo.tasktypes.base import Task

_RATIO = click.FloatRange(0, 1)


@click.command("mine")
@options.task
@click.option(
    "-m", "--model", cls=UniqueOption, required=True, help="Model as in `danseo train`; it must output probabilities."
)
@click.option("--folds", default=5, type=click.IntRange(min=2), help="Number of folds of the training examples.")
@options.data
@options.runs
@click.option("--out", type=PATH, help="Output folder. [default: mined/TASK--MODEL]")
@click.option(
    "--threshold",
    default=0.55,
    type=_RATIO,
    help="An example is hard if its own label has a lower probability than this.",
)
@click.option("--boost", default=2.0, help="Weight of an example at the threshold; lower probabilities get more.")
@click.option("--cap", default=4.0, help="Maximum weight.")
@click.option(
    "--min-confidence",
    default=0.95,
    type=_RATIO,
    help="List an example for review if another label has a higher probability than this.",
)
@options.assignments
@options.devices
@options.slots
@options.trust_remote_code
@options.timeout
@options.as_json
def mine_command(
    task: "Task",
    model: str,
    folds: int,
    data_dir: str | None,
    out: Path | None,
    threshold: float,
    boost: float,
    cap: float,
    min_confidence: float,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Find hard examples and likely label errors, by folds.

    Train on all folds but one and predict that one. Writes weights for hard examples, and labels that are likely wrong.
    """
    from danseo.data.find import data_root
    from danseo.report.error_examples import write_review_page
    from danseo.sweeps.mining import MiningRule, mine
    from danseo.sweeps.preparation import SweepOptions

    sweep_options = SweepOptions(data_root(data_dir), quiet=as_json, **arguments)
    result = mine(task, model, folds, sweep_options, out, MiningRule(threshold, boost, cap, min_confidence))
    write_review_page(result, model, folds)
    show_result(result, as_json)
