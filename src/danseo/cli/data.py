"""danseo data: download, check, describe and build data."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from danseo.cli import options
from danseo.cli.options import (
    NOT_NEGATIVE,
    PATH,
    POSITIVE,
    FullHelpGroup,
    MultiValueCommand,
    parse_tasks,
    print_notes_unless,
    show_help,
    show_result,
    show_tables,
    show_text,
)
from danseo.display.progress import Waiting
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.language import _

if TYPE_CHECKING:
    from danseo.tasktypes.base import Task


@click.group("data", cls=FullHelpGroup, invoke_without_command=True)
@click.pass_context
def data_command(context: click.Context) -> None:
    """Download, check, describe and build data."""
    show_help(context)


@data_command.command("get")
@click.argument("tasks", nargs=-1, callback=parse_tasks)
@click.option("--from", "source", default="hub", metavar="hub|FOLDER", help="Source of the data.")
@click.option("--data", "data_dir", metavar="DIR", help="Target folder. [default: $DANSEO_DATA, else the cache]")
@options.timeout
@options.as_json
def data_get(tasks: "list[Task]", source: str, data_dir: str | None, as_json: bool) -> None:
    """Download KLUE from the Hub, or copy it from a folder, and check its hashes.

    For a task file: the data set it names.
    """
    from danseo.data.download import get_files
    from danseo.data.find import data_root

    root = data_root(data_dir)
    paths = get_files(tasks, source, root, on_progress=print_notes_unless(as_json))
    where = "" if all(task.custom for task in tasks) else f" in {root}"
    show_text(f"{len(paths)} files{where}", as_json, {"data": str(root), "files": [str(path) for path in paths]})


@data_command.command("check")
@click.argument("tasks", nargs=-1, callback=parse_tasks)
@options.data
@options.as_json
def data_check(tasks: "list[Task]", data_dir: str | None, as_json: bool) -> None:
    """Verify every file: rows, hash, and a verdict (official, subset, corrupted, missing)."""
    from danseo.api.listings import make_check_table
    from danseo.data.find import check_files, data_root

    root = data_root(data_dir)
    if custom := [task for task in tasks if task.custom]:
        from danseo.data.check import check_custom_task

        tables = [table for task in custom for table in check_custom_task(task, root)]
        document = {"tasks": [task.name for task in custom], "tables": [table.as_dict() for table in tables]}
        return show_tables(tables, as_json, document)
    with Waiting("reading the data files", quiet=as_json):
        reports = check_files(root, tasks)
    document = {"data": str(root), "files": [report.as_dict() for report in reports]}
    show_tables([make_check_table(reports, root)], as_json, document)
    if corrupted := [report for report in reports if report.verdict == "corrupted"]:
        raise DanseoError(_("{n} corrupted files; the first: {note}").format(n=len(corrupted), note=corrupted[0].note))
    if all(report.verdict == "missing" for report in reports):
        raise DanseoError(
            _("no data in {root}; fetch it with `danseo data get`, or name a folder with --data").format(root=root)
        )


@data_command.command("describe")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE…")
@click.option("--out", required=True, type=PATH, metavar="TASK.toml", help="The task file to write.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@options.as_json
def data_describe(files: tuple[Path, ...], out: Path, force: bool, as_json: bool) -> None:
    """Inspect your own data files (train, optionally dev) and write a task file. Every command accepts it as TASK."""
    from danseo.data.schema_inference import describe_files
    from danseo.files import write_atomically

    if out.suffix != ".toml":
        raise DanseoError(_("--out {out}: a task file ends in .toml").format(out=out))
    if out.exists() and not force:
        raise DanseoError(_("{out} already exists; edit it, or replace it with --force").format(out=out))
    text = describe_files(files, out)
    write_atomically(out, text)
    show_text(text.removesuffix("\n"), as_json, {"file": str(out), "text": text}, keep="\n")


@data_command.command("stats")
@options.task
@options.data
@click.option("--plot", type=PATH, metavar="FILE.png", help="Also draw the main tables as a plot.")
@click.option(
    "--tokenizer",
    "tokenizers",
    multiple=True,
    metavar="MODEL",
    help="Also count tokens of this model's tokenizer; may be repeated.",
)
@options.trust_remote_code
@options.as_json
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
    from danseo.data.stats import describe, get_view

    with Waiting("describing the data", quiet=as_json):
        splits = load_splits(task, data_root(data_dir))
        description = describe(task, splits)
    if tokenizers:
        from danseo.models.encoder.model_info import PACKAGES

        require(*PACKAGES)
        from danseo.models.encoder.tokenizer_report import tokenizer_tables

        more = [
            table
            for model in tokenizers
            for table in tokenizer_tables(
                task, splits, get_view(task).texts, model, trust_remote_code=trust_remote_code
            )
        ]
        description = replace(description, tables=(*description.tables, *more))
    if plot:
        from danseo.display.plots.image_files import save_figures

        labels, *others = description.panels
        save_figures(plot, others, title=description.title, left=labels)
    show_tables(description.tables, as_json, description.as_dict())


@data_command.command("sample")
@click.argument("folder", type=PATH)
@options.as_json
def data_sample(folder: Path, as_json: bool) -> None:
    """Write the bundled sample: a small KLUE in the official formats, with prediction files to score and compare."""
    from danseo.data.find import write_sample

    paths = write_sample(folder)
    document = {"data": str(folder), "files": [str(path) for path in paths]}
    text = _("{n} files in {folder}; use them with --data {folder}").format(n=len(paths), folder=folder)
    show_text(text, as_json, document)


@data_command.command("probes", cls=MultiValueCommand)
@click.option(
    "--text",
    multiple=True,
    type=PATH,
    metavar="FILES…",
    help="Text, JSON lines, .gz or folders; klue:ner,mrc takes the train texts of KLUE tasks.",
)
@options.data
@click.option("--out", required=True, type=PATH, metavar="DIR", help="Output folder.")
@click.option(
    "--limit",
    type=POSITIVE,
    help="Number of items per split and probe; stop with an error if there are not enough. [default: all]",
)
@click.option("--per-text", default=3, type=POSITIVE, help="Maximum items per passage.")
@click.option("--passage", default=2000, type=NOT_NEGATIVE, help="Characters per passage; 0 keeps documents whole.")
@click.option("--seed", default=999, type=NOT_NEGATIVE, help="Seed of splits and order.")
@click.option("--lambada", metavar="FILE|hub", help="Also LAMBADA-style items: JSON lines with text and answer.")
@click.option("--quota", multiple=True, metavar="SOURCE=N", help="Number of items per split from one source.")
@click.option(
    "--against", multiple=True, type=PATH, metavar="FILES…", help="Training text; items that occur in it are reported."
)
@click.option("--workers", type=POSITIVE, help="Processes for morphological analysis. [default: all cores]")
@options.timeout
@options.as_json
def data_probes(
    text: tuple[Path, ...],
    data_dir: str | None,
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
    """Build fixed probe sets for masked language models: repeated nouns in plain text, and LAMBADA-style gaps."""
    from danseo.mlm.probing.build import build_sets
    from danseo.mlm.probing.repeated_nouns import BuildOptions, parse_quotas
    from danseo.text.morphology import KiwiAnalyser

    build_options = BuildOptions(per_text=per_text, passage=passage, seed=seed, limit=limit, quotas=parse_quotas(quota))
    with Waiting("looking for probe items in the text", quiet=as_json):
        result = build_sets(
            text, out, build_options, KiwiAnalyser(workers), lambada, against, print_notes_unless(as_json), data_dir
        )
    show_result(result, as_json)
