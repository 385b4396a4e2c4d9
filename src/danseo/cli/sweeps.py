"""Commands that make many runs: sweep, tune."""

import click

COMMANDS: tuple[click.Command, ...] = ()
