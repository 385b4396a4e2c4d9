"""danseo train, eval, predict and runs: runs and their results."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli import options
from danseo.cli.options import PATH, POSITIVE, UniqueOption, print_notes_unless, show_result, show_tables
from danseo.display.escaping import say
from danseo.display.progress import Waiting
from danseo.language import _
from danseo.launcher import is_first_process

if TYPE_CHECKING:
    from danseo.config.run import RunConfig
    from danseo.tasktypes.base import Task


@click.command("train")
@options.task
@click.option(
    "-m",
    "--model",
    cls=UniqueOption,
    required=True,
    help="Hub id, id@revision, folder, mini, a baseline (majority, linear), or llm:, gliner:, spacy.",
)
@options.data
@options.runs
@options.recipe
@options.config
@options.assignments
@options.setting("--seed", "seed")
@options.setting("--epochs", "train.epochs")
@options.setting("--lr", "train.learning_rate")
@options.setting("--batch-size", "train.batch_size")
@options.setting("--max-length", "train.max_length")
@options.setting("--limit", "max_train_samples")
@options.setting("--precision", "train.precision")
@options.setting("--select-on", "train.select_on")
@click.option("--prompt", "prompt_file", type=PATH, help="llm: your own prompt file.")
@options.track
@options.trust_remote_code
@options.span_python
@options.device
@options.force
@options.no_wait
@click.option("--dry-run", is_flag=True, help="Estimate the memory per device; nothing is loaded or trained.")
@options.timeout
@options.as_json
def train_command(
    task: "Task",
    model: str,
    data_dir: str | None,
    runs: Path,
    recipe: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    prompt_file: Path | None,
    track: str | None,
    device: str | None,
    force: bool,
    no_wait: bool,
    dry_run: bool,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Fine-tune, keep the best checkpoint, predict, score: one run.

    The same command resumes.
    """
    from danseo.api.training import configure_training, use_prompt_file
    from danseo.data.find import data_root
    from danseo.experiment import run_experiment
    from danseo.export.live_tracker import make_tracker
    from danseo.tables.run_summary import make_run_document, make_run_tables

    config, family = configure_training(task, model, recipe, file, settings, arguments, say), None
    if prompt_file:
        config, family = use_prompt_file(config, task, prompt_file)
    if dry_run:
        return _show_memory(config, task, device, as_json)
    with make_tracker(track, runs, quiet=as_json) as tracker:
        run = run_experiment(
            config,
            data_root(data_dir),
            runs,
            device=device,
            quiet=as_json,
            force=force,
            on_start=tracker.start if tracker else None,
            on_score=tracker.check if tracker else None,
            wait=not no_wait,
            family=family,
        )
        if tracker:
            tracker.finish(run)
    if is_first_process():
        show_tables(make_run_tables(run), as_json, make_run_document(run))


def _show_memory(config: "RunConfig", task: "Task", device: str | None, as_json: bool) -> None:
    """Print the estimated memory of a training; a training that does not fit is an error."""
    from danseo.models.registry import estimate_memory

    with Waiting("estimating the memory", quiet=as_json or not is_first_process()):
        estimate = estimate_memory(config, task, device)
    if is_first_process():
        show_result(estimate, as_json)
    estimate.check()


@click.command("eval")
@click.argument("runs", nargs=-1, required=True, type=PATH, metavar="RUN…")
@click.option(
    "--on",
    metavar="SETS",
    help="Score one or several runs on data sets: names or task files, each also as NAME=FOLDER or NAME=FILE: "
    "nli,kornli=DIR,own.toml.",
)
@click.option(
    "--map",
    "label_pairs",
    multiple=True,
    metavar="GOLD=PREDICTED",
    help="With --on: a gold label and the label of the run that means it; an empty side has no counterpart.",
)
@click.option("--limit", type=POSITIVE, help="With --on: score at most so many examples of each data set.")
@options.table_format
@click.option("--split", default="dev", type=click.Choice(["dev", "train"]), help="Split to score on.")
@click.option("--file", type=PATH, help="Score on this data file with gold answers, instead of a split.")
@options.data
@options.details
@options.errors
@click.option(
    "--prior",
    type=click.Choice(["em", "select", "train"]),
    help="Also score with probabilities adjusted to label frequencies: estimated (em), of the select split, or "
    "of train.",
)
@click.option(
    "--type-mask", is_flag=True, help="re: also score with only the labels that train has for these entity types."
)
@options.fix_particles
@options.span_python
@options.device
@options.precision
@options.url
@options.trust_remote_code
@options.as_json
def eval_command(
    runs: tuple[Path, ...],
    on: str | None,
    label_pairs: tuple[str, ...],
    limit: int | None,
    style: str,
    split: str,
    file: Path | None,
    data_dir: str | None,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Score a run again, or on another file, split or data set. Saved predictions are used if they cover it."""
    from danseo.inference.evaluation import evaluate_run

    as_json = as_json or style == "json"
    on_note = print_notes_unless(as_json)
    if on is None:
        if len(runs) > 1 or label_pairs or limit or style not in ("table", "json"):
            raise click.UsageError(
                _("several runs, --map, --limit and --format need --on; name the data sets with it.")
            )
        with Waiting("evaluating the run", quiet=as_json):
            result = evaluate_run(runs[0], split, file, data_dir, on_note=on_note, **arguments)
        return show_result(result, as_json) if is_first_process() else None

    from danseo.display.table import format_tables
    from danseo.inference.cross_evaluation import evaluate_on
    from danseo.models.base import LoadOptions

    device, precision, trust = (arguments.pop(name) for name in ("device", "precision", "trust_remote_code"))
    loading = LoadOptions(device, precision, trust, on_note)
    if file or any(arguments.values()):
        raise click.UsageError(
            _("--on gives one table; leave out --file, --details, --errors and options that adjust predictions.")
        )
    with Waiting("evaluating the runs", quiet=as_json):
        table = evaluate_on(
            runs, on, data_dir, split=split, label_pairs=label_pairs, limit=limit or 0, loading=loading, on_note=on_note
        )
    if style in ("table", "json"):
        return show_result(table, as_json)
    click.echo(format_tables([table.list_table()] if style == "csv" else table.tables(), style))


@click.command("predict")
@options.run
@click.argument("file", required=False, default="-")
@click.option("-o", "--output", type=PATH, help="Output file. [default: standard output]")
@click.option("--batch", default=512, type=POSITIVE, help="Lines per batch.")
@click.option(
    "--from", "source_format", type=click.Choice(["lines", "csv"]), help="Input format. [default: by the file name]"
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["jsonl", "csv", "conll"]),
    help="Output format. [default: by the name of -o]",
)
@click.option(
    "--encoding", metavar="NAME", help="Encoding of FILE, such as cp949. [default: detected, or as in the task file]"
)
@click.option("--text", is_flag=True, help="Also write the input text; CSV always has it.")
@click.option("--tags", is_flag=True, help="Also write the tag of every character, with its probability.")
@options.fix_particles
@options.span_python
@options.device
@options.precision
@options.url
@options.trust_remote_code
def predict_command(run: Path, file: str, output: Path | None, text: bool, tags: bool, **arguments: Any) -> None:
    """Predict new text with a run or an exported model.

    Input: lines of text or JSON, or CSV, from FILE or standard input.
    """
    from danseo.inference.output import RecordOptions
    from danseo.inference.predict import predict_lines

    is_quiet = output is None  # answers on standard output show that it works
    arguments |= {"options": RecordOptions(text, tags), "on_note": print_notes_unless(is_quiet)}
    with Waiting("predicting", quiet=is_quiet):
        predict_lines(run, file, output, **arguments)


@click.command("runs")
@click.argument("folder", required=False, default="runs", type=PATH)
@click.option(
    "--table",
    "layout",
    type=click.Choice(["seeds", "sweep", "klue", "ner-systems", "ablation"]),
    help="seeds: per seed, with ensembles. sweep: per setting, best marked. klue: models × tasks, with "
    "published scores. "
    "ner-systems: all NER systems at three levels. ablation: the effect of each change in a study.",
)
@options.data
@click.option(
    "--group", metavar="KEYS", help="Show mean ± std over seeds, grouped by these settings, such as model,task."
)
@click.option("--metric", metavar="ID", help="Metric to show. [default: the main metric of the task]")
@click.option("--task", help="Only runs of this task.")
@click.option("--sort", type=click.Choice(["name", "score"]), default="name", help="Order of rows.")
@options.table_format
@click.option("--paths", "with_paths", is_flag=True, help="Show the run folders; json and csv always have them.")
@click.option("--wide", is_flag=True, help="Show all settings, also those that are equal in all runs.")
@options.as_json
def runs_command(folder: Path, task: str | None, style: str, as_json: bool, **arguments: Any) -> None:
    """List runs, their mean over seeds, or a table for a paper."""
    from danseo.display.table import format_tables
    from danseo.tables.ablation import make_ablation_tables
    from danseo.tables.choose import TableChoice, choose_tables, find_runs_of_task

    style = "json" if as_json else style
    choice = TableChoice(task=task, for_programs=style in ("json", "csv"), **arguments)
    if choice.layout == "ablation":
        tables = make_ablation_tables(folder, choice.data_dir)
    else:
        records = find_runs_of_task(folder, task)
        if not records and not as_json:
            say(f"note: no runs{f' of {task}' if task else ''} in {folder}; `danseo train --runs {folder}` makes one")
        tables = choose_tables(records, choice) if records or choice.for_programs else []
    if style == "table":
        show_tables(tables, False, {})
    else:
        click.echo(format_tables(tables, style))
