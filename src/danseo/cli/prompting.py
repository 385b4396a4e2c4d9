"""danseo prompt: a run made by asking a language model."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli.common import Once, Positive, as_json_option, data_option, set_option, show, task_argument, trust_option

if TYPE_CHECKING:
    from danseo.config import RunConfig
    from danseo.models.llm.template import Template
    from danseo.tasks.task import Task


@click.command("prompt")
@task_argument
@click.option("-m", "--model", cls=Once, required=True, help="llm:FOLDER, llm:HUB-ID, or server:MODEL with --url.")
@click.option("--url", cls=Once, help="server: where it is, such as http://127.0.0.1:8080/v1.")
@data_option
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path), help="Folder of runs.")
@click.option("--prompt", "prompt_file", type=click.Path(path_type=Path), help="A prompt of your own (docs/llm.md).")
@click.option("--shots", cls=Once, type=int, help="Training examples shown before the question.")
@click.option("--pick", cls=Once, type=click.Choice(["seeded", "nearest"]), help="Which ones.")
@click.option("--mode", cls=Once, type=click.Choice(["auto", "likelihood", "generate"]), help="Weigh labels, or write.")
@click.option("--shape", cls=Once, type=click.Choice(["json", "inline", "tsv"]), help="ner: how entities are written.")
@click.option("--free", is_flag=True, default=None, help="Do not hold replies to their shape.")
@click.option("--allowed-only", is_flag=True, default=None, help="re: only labels that the entities' types allow.")
@click.option("--repair", cls=Once, type=int, help="Ask again so often where a reply has failed.")
@click.option("--salvage", is_flag=True, default=None, help="ner: take the complete items of replies cut off.")
@click.option("--think", cls=Once, type=click.Choice(["auto", "off", "on"]), help="Whether a model may think first.")
@click.option("--think-tokens", cls=Once, type=int, help="Most tokens of thinking.")
@click.option("--context", cls=Once, type=int, help="Most tokens that the model reads.")
@click.option("--seed", cls=Once, type=int, help="Seed of the picked examples. [default: 42]")
@set_option
@click.option("--limit-calls", type=Positive(), metavar="N", help="Make at most N calls now; the next start goes on.")
@click.option("--budget-tokens", type=Positive(), metavar="N", help="Stop once the run has used N tokens.")
@click.option("--at-a-time", default=8, show_default=True, type=click.IntRange(1, 256), help="server: calls at once.")
@click.option("--timeout", default=120.0, show_default=True, type=click.FloatRange(1), help="server: seconds per call.")
@click.option("--key-env", default="DANSEO_API_KEY", show_default=True, help="server: the variable with its key.")
@click.option("--dry-run", is_flag=True, help="Count tokens, show three prompts, and ask nothing.")
@trust_option
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps. [default: the best there is]")
@click.option("--force", is_flag=True, help="Start anew, whatever was there.")
@as_json_option
def prompt_command(
    task: "Task",
    model: str,
    data_dir: str | None,
    runs: Path,
    prompt_file: Path | None,
    settings: tuple[str, ...],
    dry_run: bool,
    device: str | None,
    force: bool,
    as_json: bool,
    limit_calls: int | None,
    budget_tokens: int | None,
    at_a_time: int,
    timeout: float,
    key_env: str,
    **named: Any,
) -> None:
    """Ask a language model about every dev example, read its replies, and score them: an ordinary run."""
    from danseo.data.find import data_root
    from danseo.experiment import run_experiment
    from danseo.models.llm.family import prompting
    from danseo.models.llm.preview import preview
    from danseo.models.llm.source import Limits
    from danseo.runs.layouts.single import run_document, run_tables

    config, template, family = prompt_config(task, model, prompt_file, settings, named)
    limits = Limits(limit_calls, budget_tokens, at_a_time, key_env, timeout)
    bound = prompting(family, template, limits)
    if dry_run:
        seen = preview(config, task, bound, data_root(data_dir), device)
        show(seen.tables(), as_json, seen.as_dict())
        return
    options: dict[str, Any] = {"device": device, "quiet": as_json, "force": force, "family": bound}
    run = run_experiment(config, data_root(data_dir), runs, **options)
    show(run_tables(run), as_json, run_document(run))


def prompt_config(
    task: "Task", model: str, prompt_file: Path | None, assignments: tuple[str, ...], named: dict[str, Any]
) -> "tuple[RunConfig, Template, Any]":
    """The settings of a prompted run, its prompt, and the family of its model."""
    from danseo.config import RunConfig
    from danseo.errors import DanseoError
    from danseo.models.families import checked_family, family_of
    from danseo.models.llm.family import HERE, SERVER, with_template
    from danseo.models.llm.template import load_template
    from danseo.recipes import newest_halves
    from danseo.settings.precedence import said
    from danseo.settings.values import with_settings

    if not model.startswith((HERE, SERVER)):
        raise DanseoError(f"-m {model}: danseo prompt asks llm:FOLDER, llm:HUB-ID or server:MODEL")
    if named.get("url") and not model.startswith(SERVER):
        raise DanseoError(f"--url is where a server: model is; {model} runs here, so leave it out")
    trust = named.pop("trust_remote_code")
    chosen = said(RunConfig, options=named, assignments=assignments, file=None)
    started = {**newest_halves(task), **chosen}  # dev is parted as in runs of trained models
    config = replace(with_settings(RunConfig(task=task.name, model=model), started), kind="prompt")
    template = load_template(task, config.prompt.shape, prompt_file)
    config = replace(with_template(config, task, template), trust_remote_code=trust)
    checked_family(config, task)
    return config, template, family_of(model)


COMMANDS = (prompt_command,)
