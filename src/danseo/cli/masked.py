"""Commands for masked language models: probe, pretrain, coref."""

import click

COMMANDS: tuple[click.Command, ...] = ()
