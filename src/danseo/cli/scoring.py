"""danseo score and danseo compare: what prediction files are worth."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli.common import (
    Positive,
    as_json_option,
    data_option,
    details_option,
    errors_option,
    parse_task,
    partial_option,
    seed_option,
    show,
    skip_option,
    train_beside,
)

if TYPE_CHECKING:
    from danseo.tasks.task import Task


def _optional_task(context: click.Context, parameter: click.Parameter, name: str | None) -> "Task | None":
    return parse_task(context, parameter, name) if name else None


def _verify(bundle: Path, data_dir: str | None, as_json: bool, task: "Task | None") -> None:
    """Tell whether a bundle is what it says."""
    from danseo.exports.verify import verify_bundle

    if task:
        raise click.UsageError("--bundle names its own task and predictions; leave out TASK, GOLD and PREDICTIONS.")
    verdict = verify_bundle(bundle, data_dir)
    show(verdict.tables(), as_json, verdict.as_dict())


@click.command("score", options_metavar="[OPTIONS]")
@click.argument("task", required=False, callback=_optional_task)
@click.argument("gold", required=False)
@click.argument("predictions", required=False, type=click.Path(path_type=Path))
@click.option("--bundle", metavar="ZIP", type=click.Path(path_type=Path), help="Verify this bundle instead.")
@data_option
@details_option
@errors_option
@partial_option
@skip_option
@click.option("--resamples", default=1000, show_default=True, type=Positive(), help="For the intervals; 0 for none.")
@seed_option
@click.option("--tokenizer", type=click.Path(path_type=Path), help="NER: also score on this tokenizer's pieces.")
@click.option(
    "--batch",
    default=32,
    show_default=True,
    type=click.IntRange(min=1),
    help="NER with --tokenizer: the old report's batch size.",
)
@as_json_option
def score_command(
    task: "Task | None",
    gold: str | None,
    predictions: Path | None,
    bundle: Path | None,
    data_dir: str | None,
    details: bool,
    resamples: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Score anybody's predictions: GOLD is a raw file, or dev or train of the data folder; or verify a bundle."""
    from danseo.data.find import read_gold
    from danseo.display.progress import Waiting
    from danseo.scoring.tables import score_file

    if bundle:
        return _verify(bundle, data_dir, as_json, task)
    if task is None or gold is None or predictions is None:
        missing = next(
            name for name, value in (("TASK", task), ("GOLD", gold), ("PREDICTIONS", predictions)) if not value
        )
        raise click.UsageError(f"Missing argument '{missing}'.")
    path, examples = read_gold(task, gold, data_dir)
    train = train_beside(task, gold, data_dir) if details else ()
    options |= {"details": details, "rounds": resamples, "train": train}
    with Waiting("resampling", quiet=as_json) as waiting:
        result = score_file(task, examples, path, predictions, on_progress=waiting, **options)
    show(result.tables(), as_json, result.as_dict())


@click.command("compare", options_metavar="[OPTIONS]")
@click.argument("arguments", nargs=-1, metavar="RUN RUN… | TASK GOLD PREDICTIONS…")
@click.option("--over", type=click.Choice(["seeds"]), help="Runs that differ only in their seed are one system.")
@click.option("--on", type=click.Choice(["report", "dev"]), help="Runs: which part of dev. [default: report]")
@click.option("--all", "everything", is_flag=True, help="Every metric, not only the first; --json always has them all.")
@data_option
@partial_option
@skip_option
@click.option("--resamples", default=2000, show_default=True, type=click.IntRange(min=100), help="For all tests.")
@seed_option
@as_json_option
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
    as_json: bool,
) -> None:
    """Is B better than A, by how much, how sure: paired tests of runs, or of prediction files against a gold file."""
    from danseo.data.find import read_gold
    from danseo.display.progress import Waiting
    from danseo.runs.compare import compare_runs
    from danseo.scoring.tables import compare_files

    options: dict[str, Any] = {"skip": skip, "rounds": resamples, "seed": seed}
    options["headline_only"] = not (everything or as_json)
    result: Any
    with Waiting("resampling", quiet=as_json) as waiting:
        if arguments and Path(arguments[0]).exists() and any(Path(each, "config.toml").is_file() for each in arguments):
            if partial:
                raise click.UsageError("--partial is for prediction files; runs answer all of dev.")
            paths = [Path(argument) for argument in arguments]
            result = compare_runs(paths, data_dir, on=on or "report", over=over, on_progress=waiting, **options)
        else:
            if over or on:
                raise click.UsageError("--over and --on are for run directories.")
            task, gold, predictions = _files(arguments)
            path, examples = read_gold(task, gold, data_dir)
            result = compare_files(task, examples, path, predictions, partial=partial, on_progress=waiting, **options)
    show(result.tables(), as_json, result.as_dict())


def _files(arguments: tuple[str, ...]) -> "tuple[Task, str, list[Path]]":
    """A task, its gold and prediction files."""
    from danseo.tasks import get_task

    if arguments and len(arguments[0]) and Path(arguments[0]).is_dir():
        raise click.UsageError(f"{arguments[0]} is not a run directory (no config.toml).")
    task = get_task(arguments[0]) if arguments else None
    if task is None or len(arguments) < 3:
        missing = ("TASK", "GOLD", "PREDICTIONS...")[len(arguments)]
        raise click.UsageError(f"Missing argument '{missing}'.")
    return task, arguments[1], [Path(argument) for argument in arguments[2:]]


COMMANDS = (score_command, compare_command)
