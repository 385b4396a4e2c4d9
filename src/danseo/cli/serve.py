"""danseo serve: one model behind HTTP."""

from pathlib import Path
from typing import Any

import click

from danseo.cli import options
from danseo.cli.options import POSITIVE
from danseo.display.escaping import say


@click.command("serve")
@options.run
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 lets other machines connect.")
@options.port(8440)
@click.option("--batch", default=64, type=POSITIVE, help="Texts in one batch.")
@click.option("--queue", "room", default=1024, type=POSITIVE, help="Texts that may wait in the queue.")
@click.option("--max-bytes", "most_bytes", default=1 << 20, type=POSITIVE, help="Maximum size of a request in bytes.")
@click.option("--max-texts", "most_items", default=256, type=POSITIVE, help="Maximum number of texts in a request.")
@click.option(
    "--max-characters", "most_characters", default=20_000, type=POSITIVE, help="Maximum length of a text in characters."
)
@options.device
@options.precision
@options.fix_particles
@options.url
@options.trust_remote_code
def serve_command(
    run: Path,
    host: str,
    port: int,
    device: str | None,
    precision: str | None,
    trust_remote_code: bool,
    fix_particles: bool,
    **limits: Any,
) -> None:
    """Serve a model over HTTP, with a page to try it.

    The model is that of a run, or an exported one. Ctrl-C stops the server.
    """
    from danseo.models.base import LoadOptions
    from danseo.serve.server import serve_model

    loading = LoadOptions(device, precision, trust_remote_code, say)
    serve_model(run, host=host, port=port, loading=loading, limits=limits, fix_particles=fix_particles)
