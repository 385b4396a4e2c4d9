"""danseo (단서): the workbench for Korean language understanding: the eight KLUE tasks, and your own data.

>>> import danseo
>>> examples = danseo.load("ner", "dev", data="sample")
>>> danseo.score("ner", examples, [example.gold for example in examples]).value
100.0
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
__all__ = ["__version__", "compare", "load", "open", "runs", "score", "train"]


def __getattr__(name: str) -> Any:
    """Load a public function when it is first used."""
    if name == "runs":  # the package danseo.runs is itself callable
        return import_module("danseo.runs")
    if name in __all__:
        return getattr(import_module("danseo.api.functions"), name)
    raise AttributeError(f"module 'danseo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
