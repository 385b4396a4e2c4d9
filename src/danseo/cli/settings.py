"""danseo settings and configs: what can be set, and ready files of it."""

from pathlib import Path

import click

from danseo.cli.common import Once, as_json_option, config_option, print_json, set_option, show
from danseo.display.escaping import visible


@click.command("settings")
@click.argument("task", required=False)
@click.option("-m", "--model", default="", help="With TASK: Hub id or folder; recipes differ by size and family.")
@click.option("--recipe", cls=Once, help="With TASK: default, official, or a .toml file. [default: default]")
@config_option
@set_option
@as_json_option
def settings_command(
    task: str | None, model: str, recipe: str | None, file: Path | None, settings: tuple[str, ...], as_json: bool
) -> None:
    """List every setting of a run with its meaning: its default, or what a run of TASK would have."""
    from danseo.cli.training import train_config
    from danseo.listing import resolved_table, settings_table
    from danseo.recipes import encoder_facts, recipe_file
    from danseo.tasks import get_task

    if task is None:
        if model or settings or file or recipe:
            raise click.UsageError("Missing argument 'TASK': settings depend on it.")
        table = settings_table()
    else:
        config = train_config(get_task(task), model, recipe, file, settings, {})
        path = recipe_file(config.recipe, config.task, encoder_facts(model, config.recipe))
        table = resolved_table(config, path)
    show([table], as_json, table.as_dict())


@click.command("configs")
@click.argument("name", required=False)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR|FILE", help="Copy it, or without NAME all.")
@as_json_option
def configs_command(name: str | None, out: Path | None, as_json: bool) -> None:
    """List the settings files that come with danseo, print one, or copy them to edit."""
    from danseo.listing import ready_table
    from danseo.recipes import copy_ready, ready_file

    if out:
        copied = [str(path) for path in copy_ready(name, out)]
        print_json({"files": copied}) if as_json else click.echo(visible("\n".join(copied), keep="\n"))
    elif name:
        path = ready_file(name)
        text = path.read_text("utf-8")
        print_json({"file": str(path), "text": text}) if as_json else click.echo(text, nl=False)
    else:
        table = ready_table()
        show([table], as_json, table.as_dict())


COMMANDS: tuple[click.Command, ...] = (settings_command, configs_command)
