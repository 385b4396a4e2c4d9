"""Run the command line with `python -m danseo`."""

from danseo.cli import main

main()
