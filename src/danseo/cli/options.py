"""Options and arguments that several commands share, their types and classes, and what commands print."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from danseo.display.escaping import say, to_json, visible
from danseo.language import LANGUAGES, VARIABLE, _, get_language, translate, translate_libraries, translate_message

if TYPE_CHECKING:
    from danseo.display.table import Table
    from danseo.tasktypes.base import Task

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
AnyCommand = TypeVar("AnyCommand", bound=click.Command)

# Types and classes of options

PATH = click.Path(path_type=Path)
POSITIVE = click.IntRange(min=1)
NOT_NEGATIVE = click.IntRange(min=0)
PRECISION = click.Choice(["auto", "bf16", "fp16", "fp32", "int8"])


class UniqueOption(click.Option):
    """An option that may be repeated only with the same value."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **{**attributes, "multiple": not attributes.get("is_flag")})

    def process_value(self, context: click.Context, value: Any) -> Any:
        """Return the one value; None if the option is not given."""
        values = super().process_value(context, value)
        if not self.multiple:
            return values
        different = list(dict.fromkeys(values or ()))
        if len(different) > 1:
            first, second = different[:2]
            raise click.UsageError(
                _("{option} is given twice, as {first} and as {second}; give it once.").format(
                    option=self.opts[0], first=first, second=second
                )
            )
        return different[0] if different else None


class SettingOption(UniqueOption):
    """An option for a setting: help, choices and checks come from the setting's declaration, which is imported late."""

    def __init__(self, *arguments: Any, setting: str, config: str, **attributes: Any) -> None:
        self.setting, self.config = setting, config
        super().__init__(*arguments, **attributes)

    @property
    def help(self) -> str | None:
        """The meaning of the setting in the language of the user, with its default if no recipe changes it."""
        from danseo.config.base import default_values, setting_help

        cls = resolve_name(self.config)
        default = default_values(cls).get(self.setting) if "." not in self.setting and not self.is_flag else None
        return translate(setting_help(self.setting, cls) + (f" [default: {default}]" if default else ""))

    @help.setter
    def help(self, text: str | None) -> None:
        """Ignore the text that click sets when the option is made."""

    def make_metavar(self, ctx: click.Context | None = None) -> str:
        from danseo.config.base import value_names

        return value_names(self.setting, resolve_name(self.config))

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Read values as --set does; the setting validates them."""
        from danseo.config.base import parse_literal, validate_value

        if self.is_flag or not isinstance(value, tuple | list):
            return super().type_cast_value(ctx, value)
        cls = resolve_name(self.config)
        return tuple(validate_value(self.setting, parse_literal(text), cls) for text in value)


def setting(
    flag: str, name: str, *, config: str = "danseo.config.run:RunConfig", is_flag: bool = False
) -> Callable[[AnyFunction], AnyFunction]:
    """Return the option of a setting; its parameter has the last part of the setting's name."""
    attributes: dict[str, Any] = {"is_flag": True, "default": None} if is_flag else {}
    parameter = name.split(".")[-1]
    return click.option(flag, parameter, cls=SettingOption, setting=name, config=config, **attributes)


class MultiValueCommand(click.Command):
    """A command whose repeatable options take several values: --text a b is --text a --text b."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        options = [each for each in self.params if getattr(each, "multiple", False)]
        greedy = {flag for option in options if not isinstance(option, UniqueOption) for flag in option.opts}
        repeated, current, is_first = list[str](), "", False
        for argument in arguments:
            if argument.startswith("-") and argument != "-":
                current, is_first = (argument if argument in greedy else ""), True
            elif current and not is_first:
                repeated.append(current)
            else:
                is_first = False
            repeated.append(argument)
        return super().parse_args(context, repeated)


class TranslatedGroup(click.Group):
    """A group whose help, and that of its commands, is in the language of the user."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        command = super().get_command(context, name)
        return command and _translate_help(command)

    def format_help_text(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        click.Command.format_help_text(_translate_help(self), context, formatter)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        click.Command.format_options(_translate_help(self), context, formatter)
        self.format_commands(context, formatter)


def _translate_help(command: AnyCommand) -> AnyCommand:
    """Return a command whose help, and that of its options, is translated paragraph by paragraph."""
    if get_language() == "en":
        return command
    translated = copy(command)
    translated.help = "\n\n".join(map(translate, split_help(command)))
    translated.params = list(map(_translate_option, command.params))
    return translated


def _translate_option(parameter: click.Parameter) -> click.Parameter:
    """Return a parameter whose help is translated; arguments have none, and settings translate their own."""
    translated = copy(parameter)
    if isinstance(translated, click.Option) and not isinstance(translated, SettingOption) and translated.help:
        translated.help = translate(translated.help)
    return translated


def split_help(command: click.Command) -> list[str]:
    """Return the paragraphs of a command's help; the first one is its summary, and one with \\b keeps its lines."""
    paragraphs = (command.help or "").split("\n\n")
    return [each if "\b" in each else " ".join(each.split()) for each in paragraphs]


class FullHelpGroup(TranslatedGroup):
    """A group whose help shows the whole help text of each command."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [self.get_command(context, name) for name in self.commands]
        with formatter.section(translate("Commands")):
            formatter.write_dl([(each.name or "", " ".join((each.help or "").split())) for each in commands if each])


# Arguments and options


def parse_task(context: click.Context, parameter: click.Parameter, name: str | None) -> "Task | None":
    from danseo.tasks import get_task

    return get_task(name) if name is not None else None


def parse_tasks(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> "list[Task]":
    from danseo.tasks import TASKS, get_task

    return [get_task(name) for name in names] or list(TASKS.values())


def _variable_option(flag: str, variable: str, **attributes: Any) -> Callable[[AnyFunction], AnyFunction]:
    """Return an option that sets an environment variable, which processes of the command inherit."""

    def set_variable(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None:
            os.environ[variable] = str(value)
            translate_libraries()

    return click.option(flag, expose_value=False, callback=set_variable, **attributes)


task = click.argument("task", callback=parse_task)
run = click.argument("run", type=PATH)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
table_format = click.option(
    "--format",
    "style",
    type=click.Choice(["table", "markdown", "csv", "json", "latex"]),
    default="table",
    help="How to print.",
)
data = click.option(
    "--data",
    "data_dir",
    metavar="DIR",
    help="Data folder, or `sample` for the bundled sample. [default: $DANSEO_DATA, else the cache]",
)
runs = click.option("--runs", default="runs", type=PATH, help="Folder of runs.")
assignments = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting; `danseo settings` lists all."
)
config = click.option(
    "--config", "file", type=PATH, metavar="FILE.toml", help="Settings file; it overrides the recipe."
)
recipe = click.option("--recipe", cls=UniqueOption, help="default, official, or a .toml file. [default: default]")
device = click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1 or mps. [default: the fastest available]")
devices = click.option(
    "--devices", metavar="LIST", help="Devices, one run each: cuda:0,cuda:1. [default: all GPUs, else the CPU]"
)
slots = click.option("--slots", type=click.IntRange(1, 1024), help="Number of runs at the same time, over all devices.")
precision = click.option(
    "--precision",
    type=PRECISION,
    help="Numeric precision; int8 is fastest on CPUs but less exact. [default: as in training]",
)
fix_particles = click.option(
    "--fix-particles",
    is_flag=True,
    help="Tags: move the end of an entity before its particle (서울에서 -> 서울), by Kiwi if installed, else by rules.",
)
force = click.option("--force", is_flag=True, help="Delete an earlier run with the same settings and start again.")
no_wait = click.option(
    "--no-wait",
    is_flag=True,
    help="Stop with an error if another process is writing this run, instead of waiting for it.",
)
track = click.option(
    "--track",
    type=click.Choice(["mlflow", "trackio", "wandb"]),
    help="Send settings, curves and scores to a tracker during the training; a failure of it changes nothing.",
)
trust_remote_code = click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the checkpoint.")
lang = _variable_option(
    "--lang",
    VARIABLE,
    type=click.Choice(list(LANGUAGES)),
    is_eager=True,  # the help is in this language, too
    help="Language of texts. [default: $DANSEO_LANG, else the locale]",
)
timeout = _variable_option(
    "--timeout",
    "DANSEO_TIMEOUT",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Wait this long for network data before giving up. [default: 60, $DANSEO_TIMEOUT]",
)
url = _variable_option(
    "--url",
    "DANSEO_API_URL",
    metavar="URL",
    help="Runs of server: models: address of the server; the key is sent there. [default: $DANSEO_API_URL]",
)
span_python = _variable_option(
    "--span-python",
    "DANSEO_SPAN_PYTHON",
    metavar="PATH",
    help="gliner: Python with the `gliner` package, for checkpoints in that format. [default: "
    "$DANSEO_SPAN_PYTHON, else uv]",
)
details = click.option(
    "--details", is_flag=True, help="Also show scores per label, entity type, question type or slot, and confusions."
)
errors = click.option(
    "--errors", default=0, metavar="N", type=NOT_NEGATIVE, help="Also show N wrong examples, the most confident first."
)
partial = click.option(
    "--partial", is_flag=True, help="Score only the examples that have a prediction; the table says so."
)
skip = click.option("--skip", multiple=True, metavar="METRIC", help="Skip a metric, by id or name (auprc).")
bootstrap_seed = click.option("--seed", default=0, type=NOT_NEGATIVE, help="Seed of the bootstrap.")


def port(default: int) -> Callable[[AnyFunction], AnyFunction]:
    return click.option(
        "--port", default=default, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one."
    )


_PIPE_COLUMNS = 200  # without a terminal nothing is folded, so that pipes and files stay greppable


class Result(Protocol):
    """A result that is shown as tables or as a JSON document."""

    def tables(self) -> "Iterable[Table]": ...

    def as_dict(self) -> Mapping[str, Any]: ...


def show_result(result: Result, as_json: bool) -> None:
    show_tables(result.tables(), as_json, result.as_dict())


def show_table(table: "Table", as_json: bool) -> None:
    show_tables([table], as_json, table.as_dict())


def show_tables(tables: "Iterable[Table]", as_json: bool, document: Mapping[str, Any]) -> None:
    """Print tables, or with --json the document."""
    if as_json:
        click.echo(to_json(document))
        return
    from rich.console import Console

    from danseo.display.table import print_tables

    is_terminal = sys.stdout and sys.stdout.isatty()
    print_tables(tables, Console(highlight=False, width=None if is_terminal else _PIPE_COLUMNS))


def show_text(text: str, as_json: bool, document: Mapping[str, Any], keep: str = "") -> None:
    """Print a text, or with --json the document; unprintable characters that are not to keep are escaped."""
    click.echo(to_json(document) if as_json else visible(translate_message(text), keep))


def print_notes_unless(as_json: bool) -> Callable[[str], None]:
    """Return the function that prints notes; with --json they are dropped."""
    return (lambda line: None) if as_json else say


def show_help(context: click.Context) -> None:
    """Print the help of a group if no command is given."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
