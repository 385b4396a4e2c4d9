"""Who wins where a setting is said in several places: an option, then --set, then --config, then the recipe."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.settings.declaring import full_name
from danseo.settings.values import checked, parse_setting
from danseo.settings.written import add_once, read_settings


def said(cls: type, *, options: Mapping[str, Any], assignments: Sequence[str], file: Path | None) -> dict[str, Any]:
    """All that a command line says of a config, by full name; options that were not given are None."""
    given = {key: value for key, value in options.items() if value is not None}
    named = {full_name(key, cls): value for key, value in given.items()}
    return {
        **(read_settings(file, cls) if file else {}),
        **assigned(assignments, cls),
        **{name: checked(name, value, cls) for name, value in named.items()},
    }


def assigned(assignments: Sequence[str], cls: type) -> dict[str, Any]:
    """Every --set, by full name; the same setting twice with different values is an error."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        add_once(settings, *parse_setting(assignment, cls), where="--set: ")
    return settings
