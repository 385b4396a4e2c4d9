"""danseo (단서): the workbench for Korean language understanding on the eight KLUE tasks."""

__version__ = "0.1.0"
