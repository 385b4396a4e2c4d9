"""danseo probe: which checkpoint of a masked language model is best."""

from pathlib import Path
from typing import Any

import click

from danseo.cli.common import as_json_option, no_wait_option, show, timeout_option, trust_option


def _weights(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if len(weights) != 3 or min(weights) < 0 or not sum(weights):
        raise click.BadParameter("three numbers, none negative, such as 0.4,0.3,0.3")
    return weights


@click.command("probe")
@click.argument("checkpoints", nargs=-1, required=True, metavar="CHECKPOINT…")
@click.option("--items", type=click.Path(path_type=Path), metavar="DIR|FILE", help="Frozen items. [default: built in]")
@click.option("--split", type=click.Choice(["dev", "test"]), default="dev", show_default=True, help="To pick by: dev.")
@click.option("--seq-len", type=click.IntRange(min=8), help="Pieces per window. [default: as the checkpoint states]")
@click.option("--from-step", type=click.IntRange(min=0), help="First step of a folder's checkpoints.")
@click.option("--to-step", type=click.IntRange(min=0), help="Last step.")
@click.option("--every", type=click.IntRange(min=1), help="Only steps that are a multiple of this.")
@click.option("--output-dir", type=click.Path(path_type=Path), help="Where results go. [default: by the checkpoints]")
@click.option("--reference", type=click.Path(path_type=Path), metavar="RESULT.json", help="A stored result to compare.")
@click.option("--weights", default="0.4,0.3,0.3", show_default=True, callback=_weights, help="Of the composite.")
@click.option("--quick", is_flag=True, help="One question per item: no choice, no several masks, no control.")
@click.option(
    "--spelling",
    type=click.Choice(["natural", "separate"]),
    default="natural",
    show_default=True,
    help="The particle behind a gap: inside its word, [MASK] ##는, or as a word of its own, [MASK] 는 (the old way).",
)
@click.option("--watch", is_flag=True, help="Go on with checkpoints as they appear, until Ctrl-C.")
@click.option("--poll", default=10.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between looks.")
@click.option(
    "--precision",
    type=click.Choice(["auto", "bf16", "fp16", "fp32", "int8"]),
    default="auto",
    show_default=True,
    help="How to compute; auto measures bf16 and fp32, int8 is the fastest on CPUs and rounds.",
)
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps. [default: the best there is]")
@trust_option
@no_wait_option
@timeout_option
@as_json_option
def probe_command(
    seq_len: int | None,
    from_step: int | None,
    to_step: int | None,
    every: int | None,
    output_dir: Path | None,
    weights: tuple[float, float, float],
    quick: bool,
    spelling: Any,
    watch: bool,
    poll: float,
    no_wait: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Score masked language models on frozen gaps: one, many, or a folder of checkpoint-<step> folders."""
    from danseo.probing.checkpoints import Range
    from danseo.probing.command import Job, run_job
    from danseo.probing.probe import ProbeOptions

    job = Job(
        steps=Range(from_step, to_step, every),
        options=ProbeOptions(seq_len, weights, quick, spelling),
        output=output_dir,
        poll=poll if watch else None,
        wait=not no_wait,
        **given,
    )
    outcome = run_job(job, quiet=as_json)
    show(outcome.tables(), as_json, outcome.as_dict())
    return outcome.exit_code


COMMANDS: tuple[click.Command, ...] = (probe_command,)
