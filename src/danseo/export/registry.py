"""The registry of export formats."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError, suggest
from danseo.export.base import ExportFormat, ExportOption, ExportRequest
from danseo.extras import find_extra, is_installed, require

_MODULES = ("bundle", "card", "csv", "hub", "lm_eval", "merged", "mlflow", "onnx", "safetensors", "trackio", "wandb")
_LISTED: list[ExportFormat] = [import_module(f"danseo.export.{name}").FORMAT for name in _MODULES]
FORMATS = {format_.name: format_ for format_ in _LISTED}


def get_format(name: str) -> ExportFormat:
    """Return a format by its name."""
    if name in FORMATS:
        return FORMATS[name]
    hint = suggest(name, FORMATS)
    extras = {format_.name: _list_extras(format_) for format_ in FORMATS.values()}
    known = ", ".join(f"{each} [{extra}]" if extra else each for each, extra in extras.items())
    raise DanseoError(f"no export format named {name!r}; {hint}known, with the extra that each needs: {known}")


def list_options() -> list[tuple[ExportOption, list[str]]]:
    """Return the options of all formats, each with the names of its formats."""
    names: dict[ExportOption, list[str]] = {}
    for format_ in FORMATS.values():
        for option in format_.options:
            names.setdefault(option, []).append(format_.name)
    return list(names.items())


def export_run(name: str, request: ExportRequest) -> Mapping[str, Any]:
    """Export a run to a format and return facts about the result."""
    format_ = get_format(name)
    known = {option.name for option in format_.options}
    if unknown := [option for option in request.options if option not in known]:
        raise DanseoError(f"--{unknown[0].replace('_', '-')} is not an option of the format {name}; leave it out")
    if request.other_sources and not format_.takes_several:
        raise DanseoError(f"the format {name} takes one run, not {1 + len(request.other_sources)}; name one")
    require(*format_.packages)
    return {"format": name, **format_.write(request)}


def list_formats() -> Table:
    """Return a table of all formats with the extra that each needs."""
    rows = [
        (format_.name, format_.description, _list_extras(format_), all(map(is_installed, format_.packages)))
        for format_ in FORMATS.values()
    ]
    note = "danseo export RUN --to FORMAT; an extra comes with: pip install 'danseo[EXTRA]'"
    return Table("export formats", ("format", "what", "extra", "installed"), rows, note)


def _list_extras(format_: ExportFormat) -> str | None:
    return ", ".join(dict.fromkeys(filter(None, map(find_extra, format_.packages)))) or None
