"""What the commands share: arguments, options, and how results are shown."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.display.escaping import to_json

if TYPE_CHECKING:
    from rich.console import Console

    from danseo.display.table import Table
    from danseo.tasks.task import Task

_WIDE = 200  # columns where there is no terminal: nothing is folded, so that pipes and files stay greppable


def parse_task(context: click.Context, parameter: click.Parameter, name: str) -> "Task":
    from danseo.tasks import get_task

    return get_task(name)


def parse_tasks(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> "list[Task]":
    from danseo.tasks import TASKS, get_task

    return [get_task(name) for name in names] or list(TASKS.values())


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
data_option = click.option(
    "--data", "data_dir", metavar="DIR", help="Data folder, or the word sample. [default: $DANSEO_DATA, else the cache]"
)
no_wait_option = click.option(
    "--no-wait", is_flag=True, help="End where another process writes there, instead of waiting for it."
)


def _wait_for(context: click.Context, parameter: click.Parameter, seconds: float | None) -> None:
    """Processes that the command starts are to be as patient."""
    if seconds is not None:
        os.environ["DANSEO_TIMEOUT"] = str(seconds)


timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    expose_value=False,
    callback=_wait_for,
    help="How long a network may bring nothing. [default: 60, $DANSEO_TIMEOUT]",
)
trust_option = click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the checkpoint.")
task_argument = click.argument("task", callback=parse_task)
partial_option = click.option("--partial", is_flag=True, help="Score the examples that have predictions, and say so.")
details_option = click.option(
    "--details", is_flag=True, help="Also per label, entity type, question type or slot, and confusions."
)
errors_option = click.option(
    "--errors",
    default=0,
    metavar="N",
    type=click.IntRange(min=0),
    help="Also N wrong examples, the most confident first.",
)
set_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting (danseo settings)."
)
config_option = click.option(
    "--config", "file", type=click.Path(path_type=Path), metavar="FILE.toml", help="Settings over those of the recipe."
)
skip_option = click.option("--skip", multiple=True, metavar="METRIC", help="Leave a metric out, by id or name (auprc).")


class Positive(click.IntRange):
    """A whole number that is not negative."""

    def __init__(self) -> None:
        super().__init__(min=0)


class WholeHelp(click.Group):
    """A group whose help tells of each command in whole sentences, over as many lines as that takes."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        commands = ((name, self.commands[name]) for name in self.list_commands(context))
        rows = [(name, " ".join((command.help or "").split())) for name, command in commands]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Once(click.Option):
    """An option that says one setting: given again, it has to say the same."""

    def __init__(self, *arguments: Any, **facts: Any) -> None:
        super().__init__(*arguments, **{**facts, "multiple": True})

    def process_value(self, context: click.Context, value: Any) -> Any:
        """The one value, or the default where none is given."""
        found = list(dict.fromkeys(super().process_value(context, value) or ()))
        if len(found) > 1:
            raise click.UsageError(f"{self.opts[0]} is given twice, as {found[0]} and as {found[1]}; give it once.")
        return found[0] if found else None


class ManyValues(click.Command):
    """A command whose repeatable options take several values at once: --text a b is --text a --text b."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        repeatable = (each for each in self.params if getattr(each, "multiple", False) and not isinstance(each, Once))
        greedy = {name for option in repeatable for name in option.opts}
        spread, current, is_first = list[str](), "", False
        for argument in arguments:
            if argument.startswith("-") and argument != "-":
                current, is_first = (argument if argument in greedy else ""), True
            elif current and not is_first:
                spread.append(current)
            else:
                is_first = False
            spread.append(argument)
        return super().parse_args(context, spread)


seed_option = click.option("--seed", default=0, show_default=True, type=Positive(), help="Seed of the resampling.")


def help_alone(context: click.Context) -> None:
    """Without a command, the help."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def train_beside(task: "Task", gold: str, data_dir: str | None) -> list[Any]:
    """The training examples that go with gold, where there are any: of the data folder, else beside gold's file."""
    from danseo.data.find import data_root, find_file, load

    if data_dir or gold in ("train", "dev"):
        root = data_root(data_dir)
        return load(task, "train", root) if find_file(task, "train", root) else []
    beside = Path(gold).parent / task.file("train")
    return task.read(beside) if beside.is_file() and not task.own else []


def show(tables: "Iterable[Table]", as_json: bool, document: Mapping[str, Any]) -> None:
    if as_json:
        print_json(document)
    else:
        from danseo.display.table import print_tables

        print_tables(tables, console())


def console() -> "Console":
    from rich.console import Console

    return Console(highlight=False) if sys.stdout and sys.stdout.isatty() else Console(highlight=False, width=_WIDE)


def print_json(document: Mapping[str, Any]) -> None:
    click.echo(to_json(document))
