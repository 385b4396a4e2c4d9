"""python -m danseo."""

from danseo.cli import main

main()
