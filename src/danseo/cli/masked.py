"""Commands for masked language models: probe, pretrain, coref."""

import click

from danseo.cli.pretraining import coref_command, pretrain_command
from danseo.cli.probing import probe_command

COMMANDS: tuple[click.Command, ...] = (probe_command, pretrain_command, coref_command)
