"""What a search may choose from: [search.space] of a TOML file, and one choice of it by an Optuna trial."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.files import quote, read_toml
from danseo.settings.declaring import full_name, setting_paths
from danseo.settings.values import checked, stated

_RANGE_KEYS = {"low", "high", "log", "step"}


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A number between two others, both included."""

    low: float
    high: float
    is_whole: bool
    log: bool = False
    step: float | None = None


Space = dict[str, Choice | Range]
"""Setting, by its full name -> what it may be."""


def read_space(table: Mapping[str, Any], cls: type = RunConfig) -> Space:
    """The space of a [search.space] table: lists are choices, {low, high, log, step} are ranges."""
    if not table:
        raise DanseoError(
            "[search.space] is empty; give it settings, such as learning_rate = {low = 1e-5, high = 1e-4}"
        )
    named = by_full_name(leaves(table), lambda key: full_name(key, cls))
    return {name: _read_one(name, value, cls) for name, value in named.items()}


def read_space_file(path: Path, cls: type = RunConfig) -> Space:
    """The space of a TOML file: its entries, or those of its [space] table."""
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


def leaves(table: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table by name; those of [….head] and [….train] with their section before it."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and not value.keys() & _RANGE_KEYS:
            found |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            found[key] = value
    return found


def by_full_name(entries: Mapping[str, Any], full: Callable[[str], str]) -> dict[str, Any]:
    """Entries by the full names of their settings; one written twice is refused, as one of them would be lost."""
    keys: dict[str, str] = {}
    for key in entries:
        first = keys.setdefault(full(key), key)
        if first != key:
            raise DanseoError(f"{first} and {key} are the same setting; write it once")
    return {name: entries[key] for name, key in keys.items()}


def _read_one(name: str, value: Any, cls: type) -> Choice | Range:
    if isinstance(value, list):
        if not value:
            raise DanseoError(f"{name} = []: an empty list leaves nothing to choose")
        return Choice(tuple(stated(name, item, cls) for item in value))
    if not isinstance(value, dict):
        raise DanseoError(f"{name} = {quote(value)}: should be a list of choices, or {{low = …, high = …}}")
    return _read_range(name, value, cls)


def _read_range(name: str, table: Mapping[str, Any], cls: type) -> Range:
    if unknown := sorted(table.keys() - _RANGE_KEYS):
        raise DanseoError(f"{name}: a range has low, high, log and step, not {', '.join(unknown)}")
    if not {"low", "high"} <= table.keys():
        raise DanseoError(f"{name}: a range needs low and high")
    kinds = _kinds(name, cls)
    if not {int, float} & kinds:
        raise DanseoError(f"{name} is no number; list its choices instead of a range")
    low, high = checked(name, table["low"], cls), checked(name, table["high"], cls)
    log, step = table.get("log", False), table.get("step")
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
        raise DanseoError(f"{name}: low = {quote(low)} should be a number below high = {quote(high)}")
    if not isinstance(log, bool) or (log and low <= 0):
        raise DanseoError(f"{name}: log is true or false, and true needs a low above 0")
    if step is not None and (log or isinstance(step, bool) or not isinstance(step, int | float) or step <= 0):
        raise DanseoError(f"{name}: step = {quote(step)} should be a number above 0, and goes without log")
    if step is not None and float not in kinds and type(step) is not int:
        raise DanseoError(f"{name} is a whole number, so its step should be one")
    return Range(low, high, float not in kinds, log, step)


def _kinds(name: str, cls: type) -> set[Any]:
    owner, attribute = setting_paths(cls)[name]
    hint = get_type_hints(owner)[attribute]
    return set(get_args(hint) or (hint,))


def shown(value: Any) -> Any:
    """A chosen float as it would be typed, as rates need more digits than columns of scores have."""
    return f"{value:.4g}" if isinstance(value, float) else value


def sample(trial: Any, space: Space) -> dict[str, Any]:
    """The settings that an Optuna trial chooses from the space."""
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
