"""danseo published and reproduce: scores of others, and whether the official recipes reach them here."""

from typing import TYPE_CHECKING, Any

import click

from danseo.cli import options
from danseo.cli.options import NOT_NEGATIVE, MultiValueCommand, print_notes_unless, show_result, show_tables

if TYPE_CHECKING:
    from danseo.tasktypes.base import Task


@click.command("published")
@click.argument("task", required=False, callback=options.parse_task)
@click.option(
    "--model", default="", show_default=False, metavar="TEXT", help="Only models whose name or Hub id contains this."
)
@click.option(
    "--split", default="", show_default=False, metavar="NAME", help="Only scores on this split, such as dev or test."
)
@options.as_json
def published_command(task: "Task | None", model: str, split: str, as_json: bool) -> None:
    """List published scores on KLUE, with their sources.

    Scores of different metrics or splits are listed apart, because they are not comparable.
    """
    from danseo.tables.published import filter_published, make_published_document, make_published_table

    scores = filter_published(task, model, split)
    show_tables([make_published_table(scores)], as_json, make_published_document(scores))


@click.command("reproduce", cls=MultiValueCommand)
@click.argument("model")
@click.option("--tasks", multiple=True, metavar="TASK…", help="Only these tasks, such as ner dp. [default: all eight]")
@click.option(
    "--as",
    "published_model",
    default="",
    show_default=False,
    metavar="NAME",
    help="Compare with the published scores of this model. [default: of MODEL]",
)
@click.option(
    "--seed", "seeds", multiple=True, default=(42,), type=NOT_NEGATIVE, help="Seeds; the mean of several is compared."
)
@options.data
@options.runs
@options.assignments
@options.devices
@options.slots
@options.trust_remote_code
@options.timeout
@click.option("--dry-run", is_flag=True, help="Only show what is finished and how long the rest takes.")
@options.as_json
def reproduce_command(
    model: str,
    tasks: tuple[str, ...],
    published_model: str,
    seeds: tuple[int, ...],
    data_dir: str | None,
    dry_run: bool,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Train the official recipes and compare with published scores.

    MODEL is an encoder: a Hub id or a folder. Checkpoints are selected on dev, as in the official code.
    The same command resumes.
    """
    from danseo.data.find import data_root
    from danseo.errors import PartlyDone
    from danseo.sweeps.preparation import SweepOptions
    from danseo.sweeps.reproduction import describe_no_scores, find_published_model, plan_reproduction, reproduce
    from danseo.sweeps.sweep import forecast

    names = [name for text in tasks for name in text.split(",")]
    published = find_published_model(model, published_model)
    sweep = plan_reproduction(model, names, seeds)
    sweep_options = SweepOptions(data_root(data_dir), quiet=as_json, **arguments)
    if dry_run:
        show_result(forecast(sweep, sweep_options), as_json)
        if not published:
            print_notes_unless(as_json)(f"note: {describe_no_scores(model)}")
        return
    result = reproduce(sweep, sweep_options, published, published_model or model)
    show_result(result, as_json)
    if result.failed_runs:
        counts = f"{len(result.failed_runs)} of {len(result.records)}"
        raise PartlyDone(f"{counts} runs failed; the same command tries them again")
