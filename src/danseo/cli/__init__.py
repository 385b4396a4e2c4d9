"""The command line: one short function per command; the work is done elsewhere."""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from danseo import __version__
from danseo.cli import (
    data,
    ensembles,
    exports,
    masked,
    mining,
    pages,
    prompting,
    scoring,
    serving,
    settings,
    sweeps,
    training,
)
from danseo.cli.common import as_json_option, data_option, help_alone, parse_tasks, show
from danseo.cli.sections import SectionedHelp
from danseo.display.escaping import say, visible
from danseo.errors import DanseoError
from danseo.extras import complaint, missing_in

if TYPE_CHECKING:
    from danseo.tasks.task import Task


@click.group(cls=SectionedHelp, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="danseo")
@click.pass_context
def cli(context: click.Context) -> None:
    """danseo (단서): train, score, compare and understand Korean language models on KLUE and on your own data."""
    help_alone(context)


for room in (scoring, training, prompting, sweeps, mining, ensembles, exports, pages, masked, settings, serving):
    for command in room.COMMANDS:
        cli.add_command(command)
cli.add_command(data.data)


@cli.command("tasks")
@click.argument("task", required=False)
@data_option
@as_json_option
def tasks_command(task: str | None, data_dir: str | None, as_json: bool) -> None:
    """List the tasks, or show one: names, metrics, labels, and whether its data is there."""
    from danseo.data.find import data_root
    from danseo.listing import describe_task, task_document, task_rows
    from danseo.tasks import TASKS, get_task

    root = data_root(data_dir)
    if task is None:
        documents = [task_document(each, root) for each in TASKS.values()]
        show(task_rows(root), as_json, {"data": str(root), "tasks": documents})
    else:
        show(describe_task(get_task(task), root), as_json, task_document(get_task(task), root))


@cli.command("doctor")
@click.argument("tasks", nargs=-1, callback=parse_tasks, metavar="[TASK.toml]…")
@data_option
@as_json_option
def doctor_command(tasks: "list[Task]", data_dir: str | None, as_json: bool) -> None:
    """Check the installation: versions, devices, data, and whether gold scores 100 and shuffled gold does not."""
    from danseo.doctor import examine

    examination = examine(data_dir, [task for task in tasks if task.own])
    show(examination.tables, as_json, examination.as_dict())
    if examination.failures:
        raise DanseoError("; ".join(examination.failures))


@cli.command("demo")
@click.argument("tasks", nargs=-1, callback=parse_tasks)
@click.option("--folder", default="demo", show_default=True, type=click.Path(path_type=Path), help="Where to put it.")
@as_json_option
def demo_command(tasks: "list[Task]", folder: Path, as_json: bool) -> None:
    """Run the main job on the built-in sample, offline: the encoder in the box, fine-tuned on every task."""
    from danseo.demo import REPORT, run_demo

    tables = run_demo(folder, tasks, on_note=lambda line: None if as_json else say(line), quiet=as_json)
    show(tables, as_json, tables[0].as_dict())
    if not as_json:
        click.echo(visible(f"the table is also in {folder / 'scores.md'}; the report to look at: {folder / REPORT}"))


TELEMETRY = {"HF_HUB_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0", "DO_NOT_TRACK": "1"}
"""What keeps the libraries from reporting home; whoever wants them to sets these variables."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; whatever the user can mend comes out as one line on stderr."""
    for variable, silence in TELEMETRY.items():
        os.environ.setdefault(variable, silence)
    if _is_busy():
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # else two trainings on few cores crawl, each spinning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            _let_korean_through(stream)
    sys.exit(_guarded(lambda: cli.main(arguments, prog_name="danseo", standalone_mode=False)))


def _is_busy() -> bool:
    """Whether others compute here; alone, threads that spin while they wait are up to a third faster."""
    return not hasattr(os, "getloadavg") or os.getloadavg()[0] > (os.cpu_count() or 1) - 0.5


def _let_korean_through(stream: TextIOWrapper) -> None:
    """UTF-8 where the locale's encoding has no Korean; what even that cannot hold becomes a question mark."""
    try:
        "단서 – ─".encode(stream.encoding)
        stream.reconfigure(errors="replace")
    except UnicodeEncodeError:
        stream.reconfigure(encoding="utf-8", errors="replace")


def _guarded(command: Callable[[], Any]) -> int:
    try:
        result = command()
        if sys.stdout:
            sys.stdout.flush()  # a reader that has left shows here, not in the interpreter's last words
    except DanseoError as error:
        return _complain(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if not (missing := missing_in(error)):
            raise
        return _complain(complaint([missing]), DanseoError.exit_code)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "danseo"
        return _complain(f"{error.format_message()} See `{where} --help`.", 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", 130)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would try again
        return 1 if error.errno == errno.EPIPE else _complain("no space left to write to", 1)
    return result if isinstance(result, int) else 0


def _complain(message: str, code: int) -> int:
    say(f"danseo: {' '.join(message.split())}")
    return code
