"""The formats there are, and one way to all of them."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.exports import bundle, card, hub, lm_eval, merged, mlflow, onnx, pickled, trackio, wandb
from danseo.exports.format import Format, Request
from danseo.extras import extra_of, is_installed, require

_LISTED = (bundle, card, hub, lm_eval, merged, mlflow, onnx, pickled, trackio, wandb)
FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _LISTED}


def get_format(name: str) -> Format:
    """A format by its name."""
    if name in FORMATS:
        return FORMATS[name]
    near = get_close_matches(name, FORMATS, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(f"{each.name}{f' [{extras}]' if (extras := _extras(each)) else ''}" for each in FORMATS.values())
    raise DanseoError(f"no export format named {name!r}; {hint}known, with the extra that each needs: {listed}")


def export(name: str, request: Request) -> Mapping[str, Any]:
    """Write a run in a format, and tell what was made."""
    format_ = get_format(name)
    if foreign := [option for option in request.options if option not in format_.options]:
        raise DanseoError(f"--{foreign[0].replace('_', '-')} is not an option of the format {name}; leave it out")
    require(*format_.packages)
    return {"format": name, **format_.write(request)}


def formats_table() -> Table:
    """All formats with the extra that each needs."""
    rows: list[tuple[object, ...]] = [
        (format_.name, format_.what, _extras(format_), all(map(is_installed, format_.packages)))
        for format_ in FORMATS.values()
    ]
    note = "danseo export RUN --to FORMAT; an extra comes with: pip install 'danseo[EXTRA]'"
    return Table("export formats", ("format", "what", "extra", "installed"), rows, note)


def _extras(format_: Format) -> str | None:
    return ", ".join(dict.fromkeys(filter(None, map(extra_of, format_.packages)))) or None
