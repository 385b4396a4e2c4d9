"""danseo probe: scores of masked language models."""

from pathlib import Path
from typing import Any

import click

from danseo.cli import options
from danseo.cli.options import NOT_NEGATIVE, PATH, POSITIVE, PRECISION, show_result


def _parse_weights(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if len(weights) != 3 or min(weights) < 0 or not sum(weights):
        raise click.BadParameter("three numbers, none negative, such as 0.4,0.3,0.3")
    return weights


@click.command("probe")
@click.argument("checkpoints", nargs=-1, required=True, metavar="CHECKPOINT…")
@click.option(
    "--items", type=PATH, metavar="DIR|FILE", help="Probe items from `danseo data probes`. [default: the bundled ones]"
)
@click.option(
    "--split",
    type=click.Choice(["dev", "test"]),
    default="dev",
    help="Split of the items: dev to choose a checkpoint, test to report it.",
)
@click.option(
    "--seq-len", type=click.IntRange(min=8), help="Tokens per window. [default: as in the checkpoint's configuration]"
)
@click.option("--from-step", type=NOT_NEGATIVE, help="First checkpoint step to probe, in a folder.")
@click.option("--to-step", type=NOT_NEGATIVE, help="Last checkpoint step to probe.")
@click.option("--every", type=POSITIVE, help="Probe only steps that are a multiple of this number.")
@click.option("--output-dir", type=PATH, help="Output folder. [default: beside the checkpoints]")
@click.option("--reference", type=PATH, metavar="RESULT.json", help="Stored result to compare with.")
@click.option("--weights", default="0.4,0.3,0.3", callback=_parse_weights, help="Weights of the composite score.")
@click.option(
    "--quick",
    is_flag=True,
    help="Only one prediction per item; skip the choice, multi-mask and control scores (danseo docs probe).",
)
@click.option(
    "--spelling",
    type=click.Choice(["natural", "separate"]),
    default="natural",
    help="How the particle after a gap is written: natural joins it, [MASK] ##는; separate adds a space, [MASK] 는.",
)
@click.option("--watch", is_flag=True, help="Keep watching for new checkpoints, until Ctrl-C.")
@click.option(
    "--poll",
    default=10.0,
    type=click.FloatRange(min=0.1),
    help="Seconds between two looks at the folder, with --watch.",
)
@click.option(
    "--precision",
    type=PRECISION,
    default="auto",
    help="Numeric precision; auto measures bf16 and fp32; int8 is fastest on CPUs but less exact.",
)
@click.option(
    "--batch-size",
    type=POSITIVE,
    help="Maximum windows per batch; halved if memory runs out. [default: by their tokens]",
)
@options.device
@options.trust_remote_code
@options.no_wait
@options.timeout
@options.as_json
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
    **arguments: Any,
) -> int:
    """Score masked language models with fill-in-the-blank items.

    CHECKPOINT is a model, several, or a folder of checkpoint-<step> folders.
    """
    from danseo.mlm.probing.checkpoints import StepRange
    from danseo.mlm.probing.evaluation import ProbeJob, run_probe
    from danseo.mlm.probing.probe import ProbeOptions

    job = ProbeJob(
        steps=StepRange(from_step, to_step, every),
        options=ProbeOptions(seq_len, weights, quick, spelling),
        output=output_dir,
        poll=poll if watch else None,
        wait=not no_wait,
        **arguments,
    )
    report = run_probe(job, quiet=as_json)
    show_result(report, as_json)
    return report.exit_code
