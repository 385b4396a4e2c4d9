"""danseo train, predict, eval and runs: runs and what becomes of them."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli.common import (
    Once,
    as_json_option,
    config_option,
    data_option,
    details_option,
    errors_option,
    no_wait_option,
    set_option,
    show,
    task_argument,
    timeout_option,
    trust_option,
)
from danseo.display.escaping import say

if TYPE_CHECKING:
    from danseo.config import RunConfig
    from danseo.models.protocol import Family
    from danseo.tasks.task import Task

_run_argument = click.argument("run", type=click.Path(path_type=Path))
_reading_precision = click.option(
    "--precision",
    type=click.Choice(["auto", "bf16", "fp16", "fp32", "int8"]),
    help="How to compute; int8 is the fastest on CPUs and rounds. [default: as trained]",
)


def _name_python(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """For the process that asks classic GLiNER checkpoints."""
    if value:
        os.environ["DANSEO_SPAN_PYTHON"] = value


_span_python = click.option(
    "--span-python",
    metavar="PATH",
    expose_value=False,
    callback=_name_python,
    help="gliner: a Python that has the classic gliner package. [default: $DANSEO_SPAN_PYTHON, else uv]",
)
_device = click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps. [default: the best there is]")


@click.command("train")
@task_argument
@click.option(
    "-m", "--model", cls=Once, required=True, help="Hub id, id@revision, folder, floor, or llm:, gliner:, spacy."
)
@data_option
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path), help="Folder of runs.")
@click.option("--recipe", cls=Once, help="default, official, or a .toml file. [default: default]")
@config_option
@set_option
@click.option("--seed", cls=Once, type=int, help="Seed of weights, order and dropout. [default: 42]")
@click.option("--epochs", cls=Once, type=float, help="Passes over the training examples.")
@click.option("--lr", "learning_rate", cls=Once, type=float, help="Peak learning rate.")
@click.option("--batch-size", cls=Once, type=int, help="Examples per optimiser step.")
@click.option("--max-length", cls=Once, type=int, help="Longest input in pieces.")
@click.option("--limit", cls=Once, type=int, help="Only the first N training examples.")
@click.option("--precision", cls=Once, type=click.Choice(["auto", "bf16", "fp16", "fp32"]), help="How to compute.")
@click.option(
    "--select-on", cls=Once, type=click.Choice(["select", "dev"]), help="What picks the checkpoint: a half, or all."
)
@click.option("--prompt", "prompt_file", type=click.Path(path_type=Path), help="llm: a prompt of your own.")
@trust_option
@_span_python
@_device
@click.option("--force", is_flag=True, help="Start anew, whatever was there.")
@no_wait_option
@timeout_option
@as_json_option
def train_command(
    task: "Task",
    model: str,
    data_dir: str | None,
    runs: Path,
    recipe: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    prompt_file: Path | None,
    device: str | None,
    force: bool,
    no_wait: bool,
    as_json: bool,
    **named: Any,
) -> None:
    """Fine-tune, keep the best checkpoint, predict and score: one run directory; the same command resumes."""
    from danseo.data.find import data_root
    from danseo.experiment import run_experiment
    from danseo.runs.layouts.single import run_document, run_tables

    config = train_config(task, model, recipe, file, settings, named)
    options: dict[str, Any] = {"device": device, "quiet": as_json, "force": force, "wait": not no_wait}
    if prompt_file:
        config, options["family"] = _with_prompt(config, task, prompt_file)
    run = run_experiment(config, data_root(data_dir), runs, **options)
    if os.environ.get("RANK", "0") == "0":  # one of several processes speaks
        show(run_tables(run), as_json, run_document(run))


def _with_prompt(config: "RunConfig", task: "Task", path: Path) -> "tuple[RunConfig, Family]":
    """The settings with a prompt of the user's, and the family that learns with it."""
    from danseo.errors import DanseoError
    from danseo.models.families import family_of
    from danseo.models.llm.family import HERE, tuning, with_template
    from danseo.models.llm.template import load_template

    if not config.model.startswith(HERE):
        raise DanseoError(f"--prompt is for language models that answer in words; write -m llm:{config.model}")
    template = load_template(task, config.prompt.shape, path)
    return with_template(config, task, template), tuning(family_of(config.model), template)


def train_config(
    task: "Task",
    model: str,
    recipe: str | None,
    file: Path | None,
    assignments: tuple[str, ...],
    named: dict[str, Any],
) -> "RunConfig":
    """The recipe, over it --config, over that --set, and over all of them options of their own."""
    from danseo.config import RunConfig
    from danseo.models.families import family_of
    from danseo.recipes import configured, encoder_facts
    from danseo.settings.precedence import said

    chosen = said(RunConfig, options={**named, "recipe": recipe}, assignments=assignments, file=file)
    recipe = chosen.pop("recipe", family_of(model).recipe)
    if idle := [name for name in chosen if not family_of(model).uses(name)]:
        say(f"note: {model} has no use for {', '.join(idle)}")
    encoder = encoder_facts(model, recipe, bool(named.get("trust_remote_code")))
    return configured(task.called, model, recipe, chosen, encoder)


@click.command("eval")
@_run_argument
@click.option("--split", default="dev", show_default=True, type=click.Choice(["dev", "train"]), help="Which split.")
@click.option("--file", type=click.Path(path_type=Path), help="A raw file with gold instead of a split.")
@data_option
@details_option
@errors_option
@click.option(
    "--prior",
    type=click.Choice(["em", "select", "train"]),
    help="Also score with probabilities re-weighted to the labels' shares: estimated, of the select half, of train.",
)
@click.option("--type-mask", is_flag=True, help="re: also score with only the labels that train has with the types.")
@_span_python
@_device
@_reading_precision
@trust_option
@as_json_option
def eval_command(
    run: Path,
    split: str,
    file: Path | None,
    data_dir: str | None,
    details: bool,
    errors: int,
    as_json: bool,
    **reading: Any,
) -> None:
    """Score a run again, or on another file or split; saved predictions are used where they answer it."""
    from danseo.evaluate import evaluate_run

    result = evaluate_run(run, split, file, data_dir, details=details, errors=errors, **reading)
    show(result.tables(), as_json, result.as_dict())


@click.command("predict")
@_run_argument
@click.argument("file", required=False, default="-")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of to standard output.")
@click.option("--batch", default=512, show_default=True, type=click.IntRange(min=1), help="Lines held at a time.")
@click.option(
    "--from", "source_format", type=click.Choice(["lines", "csv"]), help="What FILE is. [default: by its name]"
)
@click.option(
    "--format", "style", type=click.Choice(["jsonl", "csv", "conll"]), help="What to write. [default: by -o's name]"
)
@click.option("--text", is_flag=True, help="Also the text that was read.")
@click.option("--tags", is_flag=True, help="Also the tag of every character, with its probability.")
@_span_python
@_device
@_reading_precision
@trust_option
def predict_command(
    run: Path, file: str, output: Path | None, batch: int, text: bool, tags: bool, **reading: Any
) -> None:
    """Answer new text with a run or an exported model: lines of text or JSON, or CSV, from FILE or standard input."""
    from danseo.predict.records import Wanted
    from danseo.predict.stream import predict_lines

    predict_lines(run, file, output, batch=batch, wanted=Wanted(text, tags), **reading)


@click.command("runs")
@click.argument("folder", required=False, default="runs", type=click.Path(path_type=Path))
@click.option(
    "--table",
    "layout",
    type=click.Choice(["seed000", "sweep", "klue", "ner-systems", "ablation"]),
    help="By seed with ensembles, by settings with the best marked, models × tasks beside published scores, all NER "
    "systems at three levels with their mistakes, or the effect of each change of a study.",
)
@data_option
@click.option("--group", metavar="KEYS", help="Mean ± std over seeds, by these settings first: model,task.")
@click.option("--metric", metavar="ID", help="Which metric. [default: the task's headline]")
@click.option("--task", help="Only runs of this task.")
@click.option("--sort", type=click.Choice(["name", "score"]), default="name", show_default=True, help="Order of rows.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "markdown", "csv", "json", "latex"]),
    default="table",
    show_default=True,
    help="How to print.",
)
@click.option("--paths", "with_paths", is_flag=True, help="Show the run directories; json and csv always have them.")
@click.option("--wide", is_flag=True, help="Show all settings, also those that do not vary.")
@as_json_option
def runs_command(folder: Path, task: str | None, style: str, as_json: bool, **asked: Any) -> None:
    """List the runs of a folder, or their mean and spread over seeds, or a table for a paper."""
    from danseo.display.formats import formatted_tables
    from danseo.runs.layouts.choose import Choice, chosen_tables, with_task

    style = "json" if as_json else style
    choice = Choice(task=task, for_programs=style in ("json", "csv"), **asked)
    if choice.layout == "ablation":
        from danseo.runs.layouts.ablation import ablation_tables

        tables = ablation_tables(folder, choice.data_dir)
    else:
        tables = chosen_tables(with_task(folder, task), choice)
    if style == "table":
        show(tables, False, {})
    else:
        click.echo(formatted_tables(tables, style))


COMMANDS = (train_command, eval_command, predict_command, runs_command)
