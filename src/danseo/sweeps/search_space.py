"""The search space of a sweep file or of --space, and the settings that an Optuna trial chooses from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.config.base import full_name, setting_types, validate_user_value, validate_value
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.files import quote, read_toml

_RANGE_KEYS = {"low", "high", "log", "step"}


@dataclass(frozen=True)
class Choice:
    """A setting with a list of choices."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A number with two limits, both included."""

    low: float
    high: float
    is_whole: bool
    log: bool = False
    step: float | None = None


Space = dict[str, Choice | Range]
"""The choices or the range of each setting, by its full name."""


def read_space(table: Mapping[str, Any], cls: type = RunConfig) -> Space:
    """Read a [search.space] table: lists are choices, {low, high, log, step} are ranges."""
    if not table:
        raise DanseoError(
            "[search.space] is empty; give it settings, such as learning_rate = {low = 1e-5, high = 1e-4}"
        )
    named = resolve_names(flatten_table(table), lambda key: full_name(key, cls))
    return {name: _read_entry(name, value, cls) for name, value in named.items()}


def read_space_file(path: Path, cls: type = RunConfig) -> Space:
    """Read the space of a TOML file: its entries, or those of its [space] table."""
    document = read_toml(path)
    table = document.get("space", document)
    try:
        if not isinstance(table, dict) or not table:
            raise DanseoError(
                "no settings to choose; write, say, learning_rate = {low = 1e-5, high = 1e-4, log = true}"
            )
        return read_space(table, cls)
    except DanseoError as error:
        raise DanseoError(f"{path}: {error}") from None


def flatten_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a table by name; those of a section, such as [….train], as train.NAME."""
    entries: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and not value.keys() & _RANGE_KEYS:
            entries |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            entries[key] = value
    return entries


def resolve_names(entries: Mapping[str, Any], full: Callable[[str], str]) -> dict[str, Any]:
    """Return entries by the full names of their settings; refuse a setting that is written twice."""
    keys: dict[str, str] = {}
    for key in entries:
        first = keys.setdefault(full(key), key)
        if first != key:
            raise DanseoError(f"{first} and {key} are the same setting; write it once")
    return {name: entries[key] for name, key in keys.items()}


def _read_entry(name: str, value: Any, cls: type) -> Choice | Range:
    if isinstance(value, list):
        if not value:
            raise DanseoError(f"{name} = []: an empty list leaves nothing to choose")
        return Choice(tuple(validate_user_value(name, item, cls) for item in value))
    if not isinstance(value, dict):
        raise DanseoError(f"{name} = {quote(value)}: should be a list of choices, or {{low = …, high = …}}")
    return _read_range(name, value, cls)


def _read_range(name: str, table: Mapping[str, Any], cls: type) -> Range:
    if unknown := sorted(table.keys() - _RANGE_KEYS):
        raise DanseoError(f"{name}: a range has low, high, log and step, not {quote(unknown[0])}")
    if not {"low", "high"} <= table.keys():
        raise DanseoError(f"{name}: a range needs low and high")
    types = setting_types(name, cls)
    if not {int, float} & set(types):
        raise DanseoError(f"{name} is no number; list its choices instead of a range")
    low, high = validate_value(name, table["low"], cls), validate_value(name, table["high"], cls)
    log, step = table.get("log", False), table.get("step")
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
        raise DanseoError(f"{name}: low = {quote(low)} should be a number below high = {quote(high)}")
    if not isinstance(log, bool) or (log and low <= 0):
        raise DanseoError(f"{name}: log is true or false, and true needs a low above 0")
    if step is not None and (log or isinstance(step, bool) or not isinstance(step, int | float) or step <= 0):
        raise DanseoError(f"{name}: step = {quote(step)} should be a number above 0, and goes without log")
    if step is not None and float not in types and type(step) is not int:
        raise DanseoError(f"{name} is a whole number, so its step should be one")
    return Range(low, high, float not in types, log, step)


def format_choice(value: Any) -> Any:
    """Return a chosen float as one would type it: learning rates need more digits than scores."""
    return f"{value:.4g}" if isinstance(value, float) else value


def sample_settings(trial: Any, space: Space) -> dict[str, Any]:
    """Return the settings that an Optuna trial chooses from the space."""
    settings: dict[str, Any] = {}
    for name, entry in space.items():
        if isinstance(entry, Choice):
            settings[name] = trial.suggest_categorical(name, entry.values)
        elif entry.is_whole:
            step = int(entry.step or 1)
            settings[name] = trial.suggest_int(name, int(entry.low), int(entry.high), step=step, log=entry.log)
        else:
            settings[name] = trial.suggest_float(name, entry.low, entry.high, step=entry.step, log=entry.log)
    return settings
