"""danseo distill: one model that learns from a run, such as an ensemble."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli import options
from danseo.cli.options import PATH, UniqueOption, print_notes_unless, show_tables
from danseo.display.progress import Waiting
from danseo.launcher import is_first_process

if TYPE_CHECKING:
    from danseo.tasktypes.base import Task


@click.command("distill")
@click.argument("teacher", type=PATH, metavar="TEACHER")
@click.option(
    "-m", "--model", cls=UniqueOption, required=True, help="Student: an encoder, as in `danseo train`, such as mini."
)
@click.option("--text", type=PATH, help="Unlabelled text in the format of `danseo predict`, one text per line.")
@click.option("--task", callback=options.parse_task, help="Own tasks: the task file of the teacher.")
@options.data
@options.runs
@options.recipe
@options.config
@options.assignments
@options.setting("--weight", "train.distill_weight")
@options.setting("--temperature", "train.distill_temperature")
@options.setting("--seed", "seed")
@options.setting("--epochs", "train.epochs")
@options.setting("--lr", "train.learning_rate")
@options.setting("--batch-size", "train.batch_size")
@options.setting("--limit", "max_train_samples")
@options.trust_remote_code
@options.span_python
@options.url
@options.device
@options.force
@options.no_wait
@options.timeout
@options.as_json
def distill_command(
    teacher: Path,
    model: str,
    text: Path | None,
    task: "Task | None",
    data_dir: str | None,
    runs: Path,
    recipe: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    device: str | None,
    force: bool,
    no_wait: bool,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Train an encoder on the answers of a run.

    The teacher is any finished run, such as an ensemble. It answers train and the text once. The same command resumes.
    """
    from danseo.api.training import configure_training
    from danseo.data.find import data_root
    from danseo.distillation import open_teacher, prepare_distillation
    from danseo.experiment import run_experiment
    from danseo.models.base import LoadOptions
    from danseo.tables.run_summary import make_run_document, make_run_tables

    on_note, root = print_notes_unless(as_json), data_root(data_dir)
    with Waiting("reading the teacher", quiet=as_json or not is_first_process()):
        opened = open_teacher(teacher, task, text)
    config = configure_training(opened.task, model, recipe, file, settings, arguments, on_note)
    loading = LoadOptions(device, None, arguments["trust_remote_code"], on_note)
    config = prepare_distillation(opened, config, root, runs, loading, wait=not no_wait, quiet=as_json)
    run = run_experiment(config, root, runs, device=device, quiet=as_json, force=force, wait=not no_wait)
    if is_first_process():
        show_tables(make_run_tables(run), as_json, make_run_document(run))
