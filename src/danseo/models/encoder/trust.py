"""Code that comes with a checkpoint runs only if the command at hand says so."""

from dataclasses import replace

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.runs.directory import Run


def with_trust(run: Run, trust_remote_code: bool) -> RunConfig:
    """The settings of a run, in which code that comes with its model runs only if the command at hand allows it."""
    config = run.config
    if config.trust_remote_code and not trust_remote_code:
        raise DanseoError(
            f"{run.path} was trained with code that came with its checkpoint; if you trust it, add "
            "--trust-remote-code to run it again"
        )
    return replace(config, trust_remote_code=trust_remote_code)
