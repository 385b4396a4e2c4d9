"""Find code that comes with a model, and prevent it from running; also used by the GLiNER process."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_CODE = (".py", ".pyc", ".pyw", ".pyz", ".so", ".pyd", ".dll", ".dylib")
_DATA = ("tokenizer.json", "vocab.json", "added_tokens.json", "special_tokens_map.json")  # words, which may be any
_MODULES = ("transformers_modules", "datasets_modules")  # where libraries copy the code of checkpoints to
_CACHES = ("models--", "kernels--", "datasets--", "spaces--")  # repositories in the cache of the Hub
_loading: ContextVar[bool] = ContextVar("loading", default=False)
_LARGEST = 1 << 24  # bytes of a settings file
_hooked: list[bool] = []


class CodeRefused(RuntimeError):
    """A library was about to run code that came with a model."""


def find_code(folder: Path) -> str | None:
    """Return a file of the folder that is code or names code; None if there is none."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in sorted(names)):
            if path.suffix.lower() in _CODE or (path.suffix == ".json" and _names_code(path)):
                return str(path.relative_to(folder))
    return None


def _names_code(path: Path) -> bool:
    """Return whether a settings file has auto_map, or maps another key to it (attribute_map)."""
    if path.name in _DATA or path.name.endswith(".index.json") or not path.is_file():
        return False
    try:
        return path.stat().st_size < _LARGEST and _mentions(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError):  # no library reads it either
        return False


def _mentions(document: Any) -> bool:
    """Return whether auto_map is a key or a value at any depth; not recursive, because of deep nesting."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if value == "auto_map" or (isinstance(value, dict) and value.get("auto_map")):
            return True
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return False


@contextmanager
def no_model_code(is_trusted: bool = False) -> Iterator[None]:
    """Let a library load a model, but run no code of it, unpickle nothing and read nothing from standard input.

    Python itself reports what is about to run (an audit hook), so no setting of a model can name a way around this.
    """
    if is_trusted:
        yield
        return
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_refuse)
    before, mark = sys.stdin, _loading.set(True)
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before
            _loading.reset(mark)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("exec", "import", "pickle.find_class") or not _loading.get():
        return
    if event == "pickle.find_class":
        raise CodeRefused(f"pickled {arguments[0]}.{arguments[1]} is not loaded without --trust-remote-code")
    file = getattr(arguments[0], "co_filename", "") if event == "exec" else arguments[1]
    parts = Path(file).parts if isinstance(file, str) else ()
    if any(part in _MODULES or part.startswith(_CACHES) for part in parts):
        raise CodeRefused(f"{Path(file).name} came with the model and does not run without --trust-remote-code")
