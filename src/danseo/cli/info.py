"""danseo tasks, settings, configs, docs, doctor, completion and demo: what there is, and whether it works."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from danseo.cli import options
from danseo.cli.options import PATH, parse_tasks, print_notes_unless, show_table, show_tables, show_text
from danseo.display.escaping import say, visible
from danseo.display.progress import Waiting
from danseo.errors import DanseoError
from danseo.language import get_language

if TYPE_CHECKING:
    from danseo.tasktypes.base import Task


@click.command("tasks")
@click.argument("task", required=False)
@options.data
@options.as_json
def tasks_command(task: str | None, data_dir: str | None, as_json: bool) -> None:
    """List the tasks, or show one. Names, metrics, labels, and whether its data is there."""
    from danseo.api.listings import describe_task, make_task_document, make_task_tables
    from danseo.data.find import data_root
    from danseo.tasks import TASKS, get_task

    root = data_root(data_dir)
    if task is None:
        documents = [make_task_document(each, root) for each in TASKS.values()]
        show_tables(make_task_tables(root), as_json, {"data": str(root), "tasks": documents})
    else:
        show_tables(describe_task(get_task(task), root), as_json, make_task_document(get_task(task), root))


@click.command("settings")
@click.argument("task", required=False)
@click.option(
    "-m",
    "--model",
    default="",
    show_default=False,
    help="With TASK: Hub id or folder; the recipe depends on size and family.",
)
@options.recipe
@options.config
@options.assignments
@options.as_json
def settings_command(
    task: str | None, model: str, recipe: str | None, file: Path | None, settings: tuple[str, ...], as_json: bool
) -> None:
    """List every setting, or the values that a run would use.

    Without TASK: the meaning and default of each. With TASK: the values for a run of it.
    """
    from danseo.api.listings import make_resolved_table, make_settings_table
    from danseo.api.training import configure_training
    from danseo.config.recipes import find_recipe_file
    from danseo.models.registry import encoder_facts
    from danseo.tasks import get_task

    if task is None:
        if model or settings or file or recipe:
            raise click.UsageError("Missing argument 'TASK': settings depend on it.")
        table = make_settings_table()
    else:
        config = configure_training(get_task(task), model, recipe, file, settings, {}, say)
        path = find_recipe_file(config.recipe, config.task, encoder_facts(model, config.recipe))
        table = make_resolved_table(config, path)
    show_table(table, as_json)


@click.command("configs")
@click.argument("name", required=False)
@click.option("--out", type=PATH, metavar="DIR|FILE", help="Copy the file NAME there; without NAME, all files.")
@options.as_json
def configs_command(name: str | None, out: Path | None, as_json: bool) -> None:
    """List, print or copy the bundled settings files and prompts."""
    from danseo.api.listings import make_config_table
    from danseo.config.recipes import copy_bundled_files, find_bundled_file

    if out:
        copied = [str(path) for path in copy_bundled_files(name, out)]
        show_text("\n".join(copied), as_json, {"files": copied}, keep="\n")
    elif name:
        _show_file(find_bundled_file(name), as_json)
    else:
        show_table(make_config_table(), as_json)


@click.command("docs")
@click.argument("page", required=False)
@options.lang
@options.as_json
def docs_command(page: str | None, as_json: bool) -> None:
    """List the documentation pages, or print one: danseo docs train."""
    from danseo.api.listings import find_page, make_docs_table

    lang = get_language()
    if page is None:
        show_table(make_docs_table(lang), as_json)
    elif not as_json and sys.stdout and sys.stdout.isatty():
        click.echo_via_pager(find_page(page, lang).read_text("utf-8"))
    else:
        _show_file(find_page(page, lang), as_json)


def _show_file(path: Path, as_json: bool) -> None:
    text = path.read_text("utf-8")
    show_text(text.removesuffix("\n"), as_json, {"file": str(path), "text": text}, keep="\n")


@click.command("doctor")
@click.argument("tasks", nargs=-1, callback=parse_tasks, metavar="[TASK.toml]…")
@options.data
@options.as_json
def doctor_command(tasks: "list[Task]", data_dir: str | None, as_json: bool) -> None:
    """Check the installation: versions, devices, data and scoring.

    Gold answers must score 100, and shuffled ones must not.
    """
    from danseo.api.doctor import examine_installation

    with Waiting("checking the installation and scoring the gold answers", quiet=as_json):
        examination = examine_installation(data_dir, [task for task in tasks if task.custom])
    show_tables(examination.tables, as_json, examination.as_dict())
    if examination.failures:
        raise DanseoError("; ".join(examination.failures))


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print a script for shell completion: commands, options, files.

    \b
    Add one line to the start file of the shell:
      bash  ~/.bashrc                   eval "$(danseo completion bash)"
      zsh   ~/.zshrc                    eval "$(danseo completion zsh)"
      fish  ~/.config/fish/config.fish  danseo completion fish | source
    """
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion
    click.echo(completion(context.find_root().command, {}, "danseo", "_DANSEO_COMPLETE").source())


@click.command("demo")
@click.argument("tasks", nargs=-1, callback=parse_tasks)
@click.option("--folder", default="demo", type=PATH, help="Output folder.")
@options.as_json
def demo_command(tasks: "list[Task]", folder: Path, as_json: bool) -> None:
    """Train all tasks on the bundled sample, offline. Writes one table and a report."""
    from danseo.api.demo import REPORT, run_demo

    with Waiting("training on the sample", quiet=as_json):
        tables = run_demo(folder, tasks, on_note=print_notes_unless(as_json), quiet=as_json)
    show_tables(tables, as_json, tables[0].as_dict())
    if not as_json:
        click.echo(visible(f"the table is also in {folder / 'scores.md'}; the report to look at: {folder / REPORT}"))
