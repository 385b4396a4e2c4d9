"""The command line: one short function per command; the work is done elsewhere."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from danseo import __version__
from danseo.errors import DanseoError

if TYPE_CHECKING:
    from rich.console import Console

    from danseo.tables import Table
    from danseo.tasks.task import Task

_WIDE = 200  # columns where there is no terminal: nothing is folded, so that pipes and files stay greppable


def _task(context: click.Context, parameter: click.Parameter, name: str) -> "Task":
    from danseo.tasks import get_task

    return get_task(name)


def _tasks(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> "list[Task]":
    from danseo.tasks import TASKS, get_task

    return [get_task(name) for name in names] or list(TASKS.values())


_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
_data_option = click.option(
    "--data", "data_dir", metavar="DIR", help="Data folder, or the word sample. [default: $DANSEO_DATA, else the cache]"
)
_task_argument = click.argument("task", callback=_task)
_partial = click.option("--partial", is_flag=True, help="Score the examples that have predictions, and say so.")
_skip = click.option("--skip", multiple=True, metavar="METRIC", help="Leave a metric out, by id or name (auprc).")


class _Positive(click.IntRange):
    """A whole number that is not negative."""

    def __init__(self) -> None:
        super().__init__(min=0)


_seed = click.option("--seed", default=0, show_default=True, type=_Positive(), help="Seed of the resampling.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="danseo")
@click.pass_context
def cli(context: click.Context) -> None:
    """danseo (단서): train, score, compare and understand Korean language models on the eight KLUE tasks."""
    _help_alone(context)


@cli.command("tasks")
@click.argument("task", required=False)
@_data_option
@_as_json
def tasks_command(task: str | None, data_dir: str | None, as_json: bool) -> None:
    """List the tasks, or show one: names, metrics, labels, and whether its data is there."""
    from danseo.data import data_root
    from danseo.listing import describe_task, task_document, task_rows
    from danseo.tasks import TASKS, get_task

    root = data_root(data_dir)
    if task is None:
        documents = [task_document(each, root) for each in TASKS.values()]
        _show(task_rows(root), as_json, {"data": str(root), "tasks": documents})
    else:
        _show(describe_task(get_task(task), root), as_json, task_document(get_task(task), root))


@cli.group(invoke_without_command=True)
@click.pass_context
def data(context: click.Context) -> None:
    """Fetch, verify, describe and make data."""
    _help_alone(context)


@data.command("get")
@click.argument("tasks", nargs=-1, callback=_tasks)
@click.option("--from", "source", default="hub", show_default=True, metavar="hub|FOLDER", help="Where to take it from.")
@click.option("--data", "data_dir", metavar="DIR", help="Where to put it. [default: $DANSEO_DATA, else the cache]")
@_as_json
def data_get(tasks: "list[Task]", source: str, data_dir: str | None, as_json: bool) -> None:
    """Fetch KLUE from the Hub or a folder into the cache, with hashes."""
    from danseo.data import data_root
    from danseo.fetch import get

    root = data_root(data_dir)
    paths = get(tasks, source, root, on_progress=lambda line: None if as_json else click.echo(line, err=True))
    if as_json:
        _print_json({"data": str(root), "files": [str(path) for path in paths]})
    else:
        click.echo(f"{len(paths)} files in {root}")


@data.command("check")
@click.argument("tasks", nargs=-1, callback=_tasks)
@_data_option
@_as_json
def data_check(tasks: "list[Task]", data_dir: str | None, as_json: bool) -> None:
    """Verify every file: rows, hash, and a verdict (official, subset, damaged, missing)."""
    from danseo.data import check, data_root
    from danseo.listing import check_table

    root = data_root(data_dir)
    reports = check(root, tasks)
    _show([check_table(reports, root)], as_json, {"data": str(root), "files": [report.as_dict() for report in reports]})
    if damaged := [report for report in reports if report.verdict == "damaged"]:
        raise DanseoError(f"{len(damaged)} damaged, the first: {damaged[0].note}")
    if all(report.verdict == "missing" for report in reports):
        raise DanseoError(f"no data in {root}; fetch it with `danseo data get`, or name a folder with --data")


@data.command("stats")
@_task_argument
@_data_option
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Also draw the main tables.")
@_as_json
def data_stats(task: "Task", data_dir: str | None, plot: Path | None, as_json: bool) -> None:
    """Describe a task's data: labels, lengths, entities, duplicates, overlap, odd characters."""
    from danseo.data import data_root, load_splits
    from danseo.eda import describe

    description = describe(task, load_splits(task, data_root(data_dir)))
    if plot:
        from danseo.report.plots import plot_description

        plot_description(description, plot)
    _show(description.tables, as_json, description.as_dict())


@data.command("sample")
@click.argument("folder", type=click.Path(path_type=Path))
@_as_json
def data_sample(folder: Path, as_json: bool) -> None:
    """Write the built-in sample: a small KLUE in the official formats."""
    from danseo.sample import write_sample

    paths = write_sample(folder)
    if as_json:
        _print_json({"data": str(folder), "files": [str(path) for path in paths]})
    else:
        click.echo(f"{len(paths)} files in {folder}; use them with --data {folder}")


@cli.command("score")
@_task_argument
@click.argument("gold")
@click.argument("predictions", type=click.Path(path_type=Path))
@_data_option
@click.option("--details", is_flag=True, help="Also per label, entity type, question type or slot, and confusions.")
@_partial
@_skip
@click.option("--resamples", default=1000, show_default=True, type=_Positive(), help="For the intervals; 0 for none.")
@_seed
@click.option("--tokenizer", type=click.Path(path_type=Path), help="NER: also score on this tokenizer's pieces.")
@click.option(
    "--batch",
    default=32,
    show_default=True,
    type=click.IntRange(min=1),
    help="NER with --tokenizer: the old report's batch size.",
)
@_as_json
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
        _gold_path(task, gold, data_dir),
        predictions,
        details=details,
        partial=partial,
        skip=skip,
        rounds=resamples,
        seed=seed,
        tokenizer=tokenizer,
        batch=batch,
    )
    _show(sheet.tables(), as_json, sheet.as_dict())


@cli.command("compare")
@_task_argument
@click.argument("gold")
@click.argument("predictions", nargs=-1, required=True, type=click.Path(path_type=Path))
@_data_option
@_partial
@_skip
@click.option("--resamples", default=2000, show_default=True, type=click.IntRange(min=100), help="For all tests.")
@_seed
@_as_json
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

    path = _gold_path(task, gold, data_dir)
    sheet = compare_files(task, path, predictions, partial=partial, skip=skip, rounds=resamples, seed=seed)
    _show(sheet.tables(), as_json, sheet.as_dict())


@cli.command("doctor")
@_data_option
@_as_json
def doctor_command(data_dir: str | None, as_json: bool) -> None:
    """Check the installation: versions, devices, data, and whether gold scores 100 and shuffled gold does not."""
    from danseo.doctor import examine

    examination = examine(data_dir)
    _show(examination.tables, as_json, examination.as_dict())
    if examination.failures:
        raise DanseoError("; ".join(examination.failures))


@cli.command("demo")
@click.option("--folder", default="demo", show_default=True, type=click.Path(path_type=Path), help="Where to put it.")
@_as_json
def demo_command(folder: Path, as_json: bool) -> None:
    """Run the main job on the built-in sample, offline."""
    from danseo.demo import run_demo

    table = run_demo(folder)
    _show([table], as_json, table.as_dict())
    if not as_json:
        click.echo(f"the table is also in {folder / 'scores.md'}")


def _help_alone(context: click.Context) -> None:
    """Without a command, the help."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _gold_path(task: "Task", gold: str, data_dir: str | None) -> Path:
    """A file, or a split of the data folder."""
    from danseo.data import data_root, require_file

    return require_file(task, gold, data_root(data_dir)) if gold in ("train", "dev") else Path(gold)


def _show(tables: "Iterable[Table]", as_json: bool, document: Mapping[str, Any]) -> None:
    if as_json:
        _print_json(document)
    else:
        from danseo.tables import print_tables

        print_tables(tables, _console())


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False) if sys.stdout and sys.stdout.isatty() else Console(highlight=False, width=_WIDE)


def _print_json(document: Mapping[str, Any]) -> None:
    click.echo(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; whatever the user can mend comes out as one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            _let_korean_through(stream)
    sys.exit(_guarded(lambda: cli.main(arguments, prog_name="danseo", standalone_mode=False)))


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
    click.echo(f"danseo: {' '.join(message.split())}", err=True)
    return code
