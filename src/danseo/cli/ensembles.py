"""Commands that make runs of runs: ensemble, soup."""

import click

COMMANDS: tuple[click.Command, ...] = ()
