"""danseo prompt: a run made by prompting a language model."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from danseo.cli import options
from danseo.cli.options import NOT_NEGATIVE, PATH, UniqueOption, show_result, show_tables
from danseo.launcher import is_first_process

if TYPE_CHECKING:
    from danseo.tasktypes.base import Task


@click.command("prompt")
@options.task
@click.option(
    "-m", "--model", cls=UniqueOption, required=True, help="llm:FOLDER, llm:HUB-ID, or server:MODEL with --url."
)
@click.option("--url", cls=UniqueOption, help="server: its address. [default: $DANSEO_API_URL]")
@click.option(
    "--launch",
    metavar="COMMAND",
    help='server: start this server, wait until it is ready and stop it, such as "vllm serve MODEL --port {port}".',
)
@click.option(
    "--launch-timeout", default=600.0, type=click.FloatRange(1), help="Seconds to wait until the server is ready."
)
@options.data
@options.runs
@click.option(
    "--prompt",
    "prompt_file",
    type=PATH,
    help="Your own prompt file (danseo docs language-models; danseo configs prompts/ner).",
)
@options.setting("--language", "prompt.language")
@options.setting("--shots", "prompt.shots")
@options.setting("--shot-selection", "prompt.shot_selection")
@options.setting("--mode", "prompt.mode")
@options.setting("--output-format", "prompt.output_format")
@options.setting("--unconstrained", "prompt.unconstrained", is_flag=True)
@options.setting("--allowed-labels-only", "prompt.allowed_labels_only", is_flag=True)
@options.setting("--repair-attempts", "prompt.repair_attempts")
@options.setting("--keep-truncated", "prompt.keep_truncated", is_flag=True)
@options.setting("--thinking", "prompt.thinking")
@options.setting("--max-thinking-tokens", "prompt.max_thinking_tokens")
@options.setting("--max-context-length", "prompt.max_context_length")
@options.setting("--limit", "prompt.max_eval_samples")
@click.option(
    "--seed", cls=UniqueOption, type=int, help="Seed for choosing few-shot and --limit examples. [default: 42]"
)
@options.assignments
@click.option(
    "--limit-calls",
    type=NOT_NEGATIVE,
    metavar="N",
    help="Make at most N calls in this command; the same command resumes.",
)
@click.option("--budget-tokens", type=NOT_NEGATIVE, metavar="N", help="Stop once the run has used N tokens.")
@click.option("--concurrency", default=8, type=click.IntRange(1, 256), help="server: number of parallel calls.")
@click.option("--timeout", default=120.0, type=click.FloatRange(1), help="server: seconds to wait for one reply.")
@click.option("--key-env", default="DANSEO_API_KEY", help="server: environment variable with the API key.")
@click.option("--dry-run", is_flag=True, help="Count tokens and show three prompts; the model is not called.")
@options.trust_remote_code
@options.device
@options.force
@options.as_json
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
    concurrency: int,
    timeout: float,
    key_env: str,
    launch: str | None,
    launch_timeout: float,
    **arguments: Any,
) -> None:
    """Prompt a language model and save the result as a run.

    The model gets every dev example; its replies are parsed and scored.
    """
    from danseo.api.training import configure_prompting
    from danseo.data.find import data_root
    from danseo.experiment import run_experiment
    from danseo.models.llm.backend import CallLimits
    from danseo.models.llm.family import preview, with_prompt
    from danseo.models.llm.server_process import ServerProcess
    from danseo.models.registry import get_family
    from danseo.tables.run_summary import make_run_document, make_run_tables

    limits = CallLimits(limit_calls, budget_tokens, concurrency, key_env, timeout)
    with ExitStack() as stack:
        server = None
        if launch is not None:
            server = stack.enter_context(ServerProcess(launch, arguments["url"], launch_timeout, key_env))
            arguments["url"] = server.url
        config, template = configure_prompting(task, model, prompt_file, settings, arguments)
        family, root = with_prompt(get_family(model), template, limits, server), data_root(data_dir)
        if dry_run:
            found = preview(config, task, family, root, device)
            return show_result(found, as_json) if is_first_process() else None
        run = run_experiment(config, root, runs, device=device, quiet=as_json, force=force, family=family)
    if is_first_process():
        show_tables(make_run_tables(run), as_json, make_run_document(run))
