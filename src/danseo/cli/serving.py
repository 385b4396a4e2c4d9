"""danseo serve: one model behind HTTP."""

from pathlib import Path
from typing import Any

import click

from danseo.cli.common import trust_option


@click.command("serve")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 lets others in.")
@click.option("--port", default=8440, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--batch", default=64, show_default=True, type=click.IntRange(min=1), help="Texts answered together.")
@click.option(
    "--queue", "room", default=1024, show_default=True, type=click.IntRange(min=1), help="Texts that may wait."
)
@click.option(
    "--max-bytes", "most_bytes", default=1 << 20, show_default=True, type=click.IntRange(min=1), help="Of a request."
)
@click.option(
    "--max-texts", "most_items", default=256, show_default=True, type=click.IntRange(min=1), help="Of a request."
)
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps. [default: the best there is]")
@click.option("--precision", type=click.Choice(["auto", "bf16", "fp16", "fp32", "int8"]), help="[default: as trained]")
@trust_option
def serve_command(
    run: Path,
    host: str,
    port: int,
    device: str | None,
    precision: str | None,
    trust_remote_code: bool,
    **limits: Any,
) -> None:
    """Answer over HTTP with a run or an exported model, and show a page to try it, until interrupted."""
    from danseo.models.protocol import Loading
    from danseo.serve.command import serve

    serve(run, host=host, port=port, loading=Loading(device, precision, trust_remote_code), limits=limits)


COMMANDS = (serve_command,)
