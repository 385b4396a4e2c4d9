"""Run directories and tables of them; `danseo.runs(folder)` lists the runs of a folder."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is also a public function."""

    def __call__(self, folder: Any = "runs", *, task: str | None = None) -> Any:
        """Return every run below a folder, or those of one task."""
        return import_module("danseo.api.functions").runs(folder, task=task)


sys.modules[__name__].__class__ = _Callable
