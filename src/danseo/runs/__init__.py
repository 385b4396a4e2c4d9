"""Run directories: the unit of truth; tables are views of them. Called, `danseo.runs(folder)` lists a folder's runs."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A room that is a public function too, as `danseo.runs` is both."""

    def __call__(self, folder: Any = "runs", *, task: str | None = None) -> Any:
        """Every run below a folder, or those of one task."""
        return import_module("danseo.api.functions").runs(folder, task=task)


sys.modules[__name__].__class__ = _Callable
