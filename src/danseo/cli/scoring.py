"""danseo score and danseo compare: what prediction files are worth."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from danseo.cli.common import (
    Positive,
    as_json_option,
    data_option,
    gold_path,
    partial_option,
    seed_option,
    show,
    skip_option,
    task_argument,
)

if TYPE_CHECKING:
    from danseo.tasks.task import Task


@click.command("score")
@task_argument
@click.argument("gold")
@click.argument("predictions", type=click.Path(path_type=Path))
@data_option
@click.option("--details", is_flag=True, help="Also per label, entity type, question type or slot, and confusions.")
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
    task: "Task",
    gold: str,
    predictions: Path,
    data_dir: str | None,
    details: bool,
    partial: bool,
    skip: tuple[str, ...],
    resamples: int,
    seed: int,
    tokenizer: Path | None,
    batch: int,
    as_json: bool,
) -> None:
    """Score anybody's predictions: GOLD is a raw file, or dev or train of the data folder."""
    from danseo.scoresheet import score_file

    sheet = score_file(
        task,
        gold_path(task, gold, data_dir),
        predictions,
        details=details,
        partial=partial,
        skip=skip,
        rounds=resamples,
        seed=seed,
        tokenizer=tokenizer,
        batch=batch,
    )
    show(sheet.tables(), as_json, sheet.as_dict())


@click.command("compare")
@task_argument
@click.argument("gold")
@click.argument("predictions", nargs=-1, required=True, type=click.Path(path_type=Path))
@data_option
@partial_option
@skip_option
@click.option("--resamples", default=2000, show_default=True, type=click.IntRange(min=100), help="For all tests.")
@seed_option
@as_json_option
def compare_command(
    task: "Task",
    gold: str,
    predictions: tuple[Path, ...],
    data_dir: str | None,
    partial: bool,
    skip: tuple[str, ...],
    resamples: int,
    seed: int,
    as_json: bool,
) -> None:
    """Is B better than A, by how much, how sure: paired tests of prediction files on the same examples."""
    from danseo.scoresheet import compare_files

    path = gold_path(task, gold, data_dir)
    sheet = compare_files(task, path, predictions, partial=partial, skip=skip, rounds=resamples, seed=seed)
    show(sheet.tables(), as_json, sheet.as_dict())


COMMANDS = (score_command, compare_command)
