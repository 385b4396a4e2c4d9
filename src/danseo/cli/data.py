"""danseo data: fetch, verify, describe and make data."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from danseo.cli.common import (
    ManyValues,
    WholeHelp,
    as_json_option,
    data_option,
    help_alone,
    parse_tasks,
    print_json,
    show,
    task_argument,
    timeout_option,
    trust_option,
)
from danseo.display.escaping import say, visible
from danseo.errors import DanseoError
from danseo.extras import require

if TYPE_CHECKING:
    from danseo.tasks.task import Task


@click.group(cls=WholeHelp, invoke_without_command=True)
@click.pass_context
def data(context: click.Context) -> None:
    """Fetch, verify, describe and make data."""
    help_alone(context)


@data.command("get")
@click.argument("tasks", nargs=-1, callback=parse_tasks)
@click.option("--from", "source", default="hub", show_default=True, metavar="hub|FOLDER", help="Where to take it from.")
@click.option("--data", "data_dir", metavar="DIR", help="Where to put it. [default: $DANSEO_DATA, else the cache]")
@timeout_option
@as_json_option
def data_get(tasks: "list[Task]", source: str, data_dir: str | None, as_json: bool) -> None:
    """Fetch KLUE from the Hub or a folder into the cache, with hashes; of a task file what it names on the Hub."""
    from danseo.data.fetch import get
    from danseo.data.find import data_root

    root = data_root(data_dir)
    paths = get(tasks, source, root, on_progress=lambda line: None if as_json else say(line))
    if as_json:
        print_json({"data": str(root), "files": [str(path) for path in paths]})
    else:
        where = "" if all(task.own for task in tasks) else f" in {root}"
        click.echo(visible(f"{len(paths)} files{where}"))


@data.command("check")
@click.argument("tasks", nargs=-1, callback=parse_tasks)
@data_option
@as_json_option
def data_check(tasks: "list[Task]", data_dir: str | None, as_json: bool) -> None:
    """Verify every file: rows, hash, and a verdict (official, subset, damaged, missing)."""
    from danseo.data.find import check, data_root
    from danseo.listing import check_table

    root = data_root(data_dir)
    if own := [task for task in tasks if task.own]:
        from danseo.data.judging import judge

        tables = [table for task in own for table in judge(task, root)]
        show(tables, as_json, {"tasks": [task.name for task in own], "tables": [table.as_dict() for table in tables]})
        return
    reports = check(root, tasks)
    show([check_table(reports, root)], as_json, {"data": str(root), "files": [report.as_dict() for report in reports]})
    if damaged := [report for report in reports if report.verdict == "damaged"]:
        raise DanseoError(f"{len(damaged)} damaged, the first: {damaged[0].note}")
    if all(report.verdict == "missing" for report in reports):
        raise DanseoError(f"no data in {root}; fetch it with `danseo data get`, or name a folder with --data")


@data.command("describe")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="TASK.toml", help="The task file to write."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@as_json_option
def data_describe(files: tuple[Path, ...], out: Path, force: bool, as_json: bool) -> None:
    """Look at your own data, train and maybe dev, and write a task file that every command takes as a task."""
    from danseo.data.guessing import describe_files
    from danseo.files import write_atomically

    if out.suffix != ".toml":
        raise DanseoError(f"--out {out}: a task file ends in .toml")
    if out.exists() and not force:
        raise DanseoError(f"{out} is there already; edit it, or replace it with --force")
    text = describe_files(files, out)
    write_atomically(out, text)
    print_json({"file": str(out), "text": text}) if as_json else click.echo(visible(text, keep="\n"), nl=False)


@data.command("stats")
@task_argument
@data_option
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Also draw the main tables.")
@click.option(
    "--tokenizer", "tokenizers", multiple=True, metavar="MODEL", help="Also in this model's pieces; may be repeated."
)
@trust_option
@as_json_option
def data_stats(
    task: "Task",
    data_dir: str | None,
    plot: Path | None,
    tokenizers: tuple[str, ...],
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Describe a task's data: labels, lengths, entities, duplicates, overlap, odd characters."""
    from danseo.data.find import data_root, load_splits
    from danseo.eda import describe, view_of

    splits = load_splits(task, data_root(data_dir))
    description = describe(task, splits)
    if tokenizers:
        from danseo.models.encoder.facts import PACKAGES

        require(*PACKAGES)
        from danseo.models.encoder.tokenized import tokenizer_tables

        more = [
            table
            for model in tokenizers
            for table in tokenizer_tables(task, splits, view_of(task).texts, model, trust_remote_code=trust_remote_code)
        ]
        description = replace(description, tables=(*description.tables, *more))
    if plot:
        from danseo.plots.panels import plot_description

        plot_description(description, plot)
    show(description.tables, as_json, description.as_dict())


@data.command("sample")
@click.argument("folder", type=click.Path(path_type=Path))
@as_json_option
def data_sample(folder: Path, as_json: bool) -> None:
    """Write the built-in sample: a small KLUE in the official formats."""
    from danseo.sample import write_sample

    paths = write_sample(folder)
    if as_json:
        print_json({"data": str(folder), "files": [str(path) for path in paths]})
    else:
        click.echo(visible(f"{len(paths)} files in {folder}; use them with --data {folder}"))


@data.command("probes", cls=ManyValues)
@click.option(
    "--text", multiple=True, type=click.Path(path_type=Path), metavar="FILES…", help="Text, JSON lines, .gz or folders."
)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where the sets go.")
@click.option("--limit", type=click.IntRange(min=1), help="Items per split and probe; a hard quota. [default: all]")
@click.option("--per-text", default=3, show_default=True, type=click.IntRange(min=1), help="Items per passage at most.")
@click.option(
    "--passage", default=2000, show_default=True, type=click.IntRange(min=0), help="Characters of a passage; 0: whole."
)
@click.option("--seed", default=999, show_default=True, type=click.IntRange(min=0), help="Seed of splits and order.")
@click.option("--lambada", metavar="FILE|hub", help="Also LAMBADA-style items: JSON lines with text and answer.")
@click.option("--quota", multiple=True, metavar="SOURCE=N", help="Items per split that one source owes.")
@click.option(
    "--against", multiple=True, type=click.Path(path_type=Path), metavar="FILES…", help="Training text to compare with."
)
@click.option("--workers", type=click.IntRange(min=1), help="Of the analyser. [default: all cores]")
@timeout_option
@as_json_option
def data_probes(
    text: tuple[Path, ...],
    out: Path,
    limit: int | None,
    per_text: int,
    passage: int,
    seed: int,
    lambada: str | None,
    quota: tuple[str, ...],
    against: tuple[Path, ...],
    workers: int | None,
    as_json: bool,
) -> None:
    """Freeze probe sets for masked language models: repeated nouns of plain text, and LAMBADA-style gaps."""
    from danseo.probing.build import BuildOptions, parse_quotas
    from danseo.probing.making import make_sets
    from danseo.text.morphology import KiwiAnalyser

    options = BuildOptions(per_text=per_text, passage=passage, seed=seed, limit=limit, quotas=parse_quotas(quota))
    note = (lambda line: None) if as_json else say
    made = make_sets(text, out, options, KiwiAnalyser(workers), lambada, against, note)
    show(made.tables(), as_json, made.as_dict())
