"""danseo score, compare, published and reproduce: scores and paired tests of predictions; scores of others."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli import options
from danseo.cli.options import (
    NOT_NEGATIVE,
    PATH,
    POSITIVE,
    parse_task,
    show_result,
)
from danseo.language import _

if TYPE_CHECKING:
    from collections.abc import Sequence

    from danseo.scoring.compare import Paired
    from danseo.tasktypes.base import Task


@click.command("score", options_metavar="[OPTIONS]")
@click.argument("task", required=False, callback=parse_task)
@click.argument("gold", required=False)
@click.argument("predictions", required=False, type=PATH)
@click.option(
    "--bundle", metavar="ZIP", type=PATH, help="Verify this bundle (from `danseo export --to bundle`) instead."
)
@options.data
@options.details
@options.errors
@options.partial
@options.skip
@click.option(
    "--resamples", default=1000, type=NOT_NEGATIVE, help="Bootstrap resamples for the intervals; 0 for no intervals."
)
@options.bootstrap_seed
@click.option("--tokenizer", type=PATH, help="NER: also score on the tokens of this tokenizer.")
@click.option(
    "--batch",
    default=32,
    type=POSITIVE,
    help="NER with --tokenizer: batch size; F1 is averaged over batches, as in earlier reports.",
)
@options.as_json
def score_command(
    task: "Task | None",
    gold: str | None,
    predictions: Path | None,
    bundle: Path | None,
    data_dir: str | None,
    details: bool,
    resamples: int,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Score a prediction file, with intervals and baselines.

    GOLD is a data file, or the word dev or train for a file of the data folder. With --bundle, verify a bundle.
    """
    from danseo.data.find import find_train_examples, read_gold
    from danseo.display.progress import Waiting
    from danseo.scoring.tables import score_file

    if bundle:
        from danseo.export.bundle import verify_bundle

        if task:
            raise click.UsageError("--bundle names its own task and predictions; leave out TASK, GOLD and PREDICTIONS.")
        return show_result(verify_bundle(bundle, data_dir), as_json)
    if task is None or gold is None or predictions is None:
        missing = "TASK" if task is None else "GOLD" if gold is None else "PREDICTIONS"
        raise click.UsageError(_("Missing argument '{name}'.").format(name=missing))
    path, examples = read_gold(task, gold, data_dir)
    train = find_train_examples(task, gold, data_dir) if details else ()
    arguments |= {"details": details, "rounds": resamples, "train": train}
    with Waiting("resampling", quiet=as_json) as waiting:
        result = score_file(task, examples, path, predictions, on_progress=waiting, **arguments)
    show_result(result, as_json)


@click.command("compare", options_metavar="[OPTIONS]")
@click.argument("arguments", nargs=-1, metavar="RUN RUN… | TASK GOLD PREDICTIONS…")
@click.option("--over", type=click.Choice(["seeds"]), help="Treat runs that differ only in their seed as one system.")
@click.option(
    "--on", type=click.Choice(["report", "dev"]), help="Runs: the part of dev to compare on. [default: report]"
)
@click.option(
    "--all", "everything", is_flag=True, help="Show every metric, not only the main one; --json always has all."
)
@options.data
@options.partial
@options.skip
@click.option(
    "--resamples",
    default=2000,
    type=click.IntRange(min=100),
    help="Number of random permutations; with --over seeds: bootstrap resamples.",
)
@options.bootstrap_seed
@click.option(
    "--fail-if-worse",
    is_flag=True,
    help="Exit with 1 if a later system is significantly worse than the first in the main metric.",
)
@options.as_json
def compare_command(
    arguments: tuple[str, ...],
    over: str | None,
    on: str | None,
    everything: bool,
    data_dir: str | None,
    partial: bool,
    skip: tuple[str, ...],
    resamples: int,
    seed: int,
    fail_if_worse: bool,
    as_json: bool,
) -> None:
    """Test whether B is better than A, and by how much.

    Paired tests of runs, or of prediction files with a gold file.
    """
    from danseo.data.find import read_gold
    from danseo.display.progress import Waiting
    from danseo.scoring.tables import compare_files
    from danseo.tables.comparison import compare_runs

    testing: dict[str, Any] = {"skip": skip, "rounds": resamples, "seed": seed}
    testing["headline_only"] = not (everything or as_json)
    result: Any
    with Waiting("testing differences", quiet=as_json) as waiting:
        if arguments and Path(arguments[0]).exists() and any(Path(each, "config.toml").is_file() for each in arguments):
            if partial:
                raise click.UsageError("--partial is for prediction files; runs predict the whole dev set.")
            paths = [Path(argument) for argument in arguments]
            result = compare_runs(paths, data_dir, on=on or "report", over=over, on_progress=waiting, **testing)
        else:
            if over or on:
                raise click.UsageError("--over and --on are for run directories.")
            task, gold, predictions = _parse_files(arguments)
            path, examples = read_gold(task, gold, data_dir)
            result = compare_files(task, examples, path, predictions, partial=partial, on_progress=waiting, **testing)
    show_result(result, as_json)
    if fail_if_worse:
        _fail_if_worse(result.differences)


def _fail_if_worse(differences: "Sequence[Paired]") -> None:
    """Raise WorkFailed if a system is significantly worse than the first one in the first metric."""
    from danseo.display.escaping import say
    from danseo.errors import WorkFailed
    from danseo.scoring.tables import format_p

    metric, first = differences[0].metric, differences[0].a
    against = [each for each in differences if (each.metric, each.a) == (metric, first)]
    drops = [
        f"{each.b} {each.value:+.2f} (p = {format_p(each.p_holm)})"
        for each in against
        if each.is_significant and each.value < 0
    ]
    if drops:
        raise WorkFailed(
            _("significantly worse than {first} in {metric}: {systems}").format(
                first=first, metric=metric, systems=", ".join(drops)
            )
        )
    say(_("no system is significantly worse than {first} in {metric}").format(first=first, metric=metric))


def _parse_files(arguments: tuple[str, ...]) -> "tuple[Task, str, list[Path]]":
    """Return the task, the gold file and the prediction files of the arguments."""
    from danseo.tasks import get_task

    if arguments and arguments[0] and Path(arguments[0]).is_dir():
        raise click.UsageError(_("{path} is not a run directory (no config.toml).").format(path=arguments[0]))
    task = get_task(arguments[0]) if arguments else None
    if task is None or len(arguments) < 3:
        missing = ("TASK", "GOLD", "PREDICTIONS...")[len(arguments)]
        raise click.UsageError(_("Missing argument '{name}'.").format(name=missing))
    return task, arguments[1], [Path(argument) for argument in arguments[2:]]
