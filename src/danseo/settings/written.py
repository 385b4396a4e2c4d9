"""Settings as TOML: files that users write, and those that runs keep, which carry the number of their schema."""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.files import read_toml
from danseo.settings.declaring import first_values, flat, full_name
from danseo.settings.history import migrated, schema_of
from danseo.settings.values import checked, stated

SCHEMA = "schema"


def read_settings(path: Path, cls: type, check: Callable[[str, Any, type], Any] = stated) -> dict[str, Any]:
    """The settings of a TOML file, by full name; one that carries a schema number may be of an older danseo."""
    document = read_toml(path)
    try:
        schema = document.pop(SCHEMA, schema_of(cls))
        return named_once(migrated(_leaves(document), schema, cls), cls, check)
    except DanseoError as error:
        raise DanseoError(f"{path}: {error}") from None


def read_kept(path: Path, cls: type) -> dict[str, Any]:
    """The settings of a file that a run keeps; what it was written before has the value of that time."""
    document = read_toml(path)
    try:
        settings = migrated(_leaves(document), document.pop(SCHEMA, 1), cls)
        return {**first_values(cls), **named_once(settings, cls, checked)}
    except DanseoError as error:
        raise DanseoError(f"{path}: {error}") from None


def _leaves(document: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a document by name, those of a section with its name before them."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        found |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    found.pop(SCHEMA, None)
    return found


def named_once(entries: Mapping[str, Any], cls: type, check: Callable[[str, Any, type], Any]) -> dict[str, Any]:
    """Entries by the full names of their settings, checked; one that is named twice must be the same both times."""
    settings: dict[str, Any] = {}
    for key, value in entries.items():
        name = full_name(key, cls)
        add_once(settings, name, check(name, value, cls))
    return settings


def add_once(settings: dict[str, Any], name: str, value: Any, where: str = "") -> None:
    """Add a setting; one that is there already must have the same value."""
    if name in settings and settings[name] != value:
        raise DanseoError(f"{where}{name} is set twice, to {settings[name]} and to {value}; name it once")
    settings[name] = value


def to_toml(config: Any, without: Collection[str] = ()) -> str:
    """All settings, resolved, as a TOML document that reads back to the same config."""
    sections: dict[str, list[str]] = {"": [f"{SCHEMA} = {schema_of(type(config))}"]}
    for name, value in flat(config).items():
        if name in without:
            continue
        section, _, key = name.rpartition(".")
        sections.setdefault(section, []).append(f"{key} = {_toml(value)}")
    return "\n".join(
        (f"[{section}]\n" if section else "") + "\n".join(lines) + "\n" for section, lines in sections.items()
    )


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
