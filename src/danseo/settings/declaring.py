"""How a setting is declared: a field of a dataclass with its default, its bounds, and the text below it."""

import ast
import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, get_type_hints

from danseo.errors import DanseoError
from danseo.settings.history import changes_of, renamed_to

UNBOUNDED = 10**9
"""Beyond it no computer would come to an end."""


@dataclass(frozen=True)
class Bounds:
    """Which numbers make sense."""

    low: float = 0
    high: float = UNBOUNDED
    is_above: bool = False
    """Whether the lowest one is left out."""

    def complaint(self, value: float) -> str | None:
        """What a number should be, where it is something else."""
        if value > self.high and math.isfinite(value):
            return "too large a number" if self.high >= UNBOUNDED else f"should be from {self.low:g} to {self.high:g}"
        if not math.isfinite(value) or value < self.low or (value == self.low and self.is_above):
            return f"should be above {self.low:g}" if self.is_above else f"should be {self.low:g} or more"
        return None


def setting(
    default: Any = MISSING,
    *,
    above: float | None = None,
    most: float | None = None,
    bounds: Bounds | None = None,
    by_command: bool = False,
    incidental: bool = False,
) -> Any:
    """A setting with its bounds: numbers from 0 on unless told; above leaves its own value out, most does not.

    One that is by_command is said by the command itself, never by --set or a file of the user's. An incidental one says
    where and how fast, and changes no result: runs that differ in it are the same run.
    """
    found = Bounds(above or 0, UNBOUNDED if most is None else most, above is not None)
    return field(
        default=default, metadata={"bounds": bounds or found, "by_command": by_command, "incidental": incidental}
    )


def later(default: Any, *, first: Any = MISSING, **bounds: Any) -> Any:
    """A setting that came after the first version: what it was at first does not change the name of a run.

    Runs from before it have what it was at first: the default, unless that has changed since.
    """
    made = setting(default, **bounds)
    return field(
        default=default, metadata={**made.metadata, "later": True, "first": default if first is MISSING else first}
    )


def later_section(made: Callable[[], Any], **metadata: Any) -> Any:
    """A section of settings that came after the first version: none of them changes the name of a run at first."""
    return field(default_factory=made, metadata={"later": True, **metadata})


@cache
def setting_help(cls: type) -> dict[str, str]:
    """Field -> the text below it."""
    texts: dict[str, str] = {}
    for parent in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, after in zip(body.body, body.body[1:], strict=False):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and is_text:
                texts[node.target.id] = str(after.value.value)  # type: ignore[attr-defined]
    return texts


@cache
def setting_paths(cls: type) -> dict[str, tuple[type, str]]:
    """Every setting of a config by its full name, train.learning_rate, with its class and field."""
    paths: dict[str, tuple[type, str]] = {}
    for declaration in fields(cls):
        section = get_type_hints(cls)[declaration.name]
        if not is_dataclass(section):
            paths[declaration.name] = (cls, declaration.name)
            continue
        inner = (each.name for each in fields(section) if each.name not in declaration.metadata.get("without", ()))
        paths |= {f"{declaration.name}.{name}": (section, name) for name in inner}  # type: ignore[misc]
    return paths


@cache
def declared(cls: type) -> dict[str, Field[Any]]:
    """The field of every setting, by its full name."""
    return {
        name: next(each for each in fields(owner) if each.name == attribute)
        for name, (owner, attribute) in setting_paths(cls).items()
    }


@cache
def incidental(cls: type) -> tuple[str, ...]:
    """Settings that change no result, by their full names."""
    return tuple(name for name, declaration in declared(cls).items() if declaration.metadata.get("incidental"))


@cache
def full_name(key: str, cls: type) -> str:
    """The full name of a setting; the section may be left out. An unknown key is an error naming the nearest."""
    paths = setting_paths(cls)
    matches = [path for path in paths if path == key or path.split(".")[-1] == key]
    if matches:  # of several the oldest: attention alone has always been train.attention
        return min(matches, key=lambda path: bool(declared(cls)[path].metadata.get("later")))
    if gone := renamed_to(key, cls):
        raise DanseoError(f"unknown setting {key!r}; {gone}")
    short = {path.split(".")[-1]: path for path in paths}
    near = get_close_matches(key, [*paths, *short], 1, cutoff=0.6)
    hint = f"did you mean {short.get(near[0], near[0])}? " if near else ""
    raise DanseoError(f"unknown setting {key!r}; {hint}`{getattr(cls, 'LISTED_BY', 'danseo settings')}` lists all")


def flat(config: Any) -> dict[str, Any]:
    """Every setting by its full name."""
    cls: Any = type(config)
    return {
        name: getattr(getattr(config, name.split(".")[0]), name.split(".")[1]) if "." in name else getattr(config, name)
        for name in setting_paths(cls)
    }


def identifying(config: Any) -> dict[str, Any]:
    """The settings that tell runs apart, under the names they had at first; later ones only where they are used."""
    cls: Any = type(config)
    settings = {name: value for name, value in flat(config).items() if name not in incidental(cls)}
    used = {name: value for name, value in settings.items() if not is_unused(cls, name, value)}
    for change in reversed(changes_of(cls)):
        used = change.undone(used)
    return used


def is_unused(cls: type, name: str, value: Any) -> bool:
    """Whether a setting came later, alone or with its whole section, and is what it was at first."""
    declaration = declared(cls)[name]
    section = next(each for each in fields(cls) if each.name == name.split(".")[0])
    is_later = declaration.metadata.get("later") or section.metadata.get("later")
    return bool(is_later) and bool(value == declaration.metadata.get("first", declaration.default))


@cache
def first_values(cls: type) -> dict[str, Any]:
    """What runs from before a setting have, for those whose default has changed since."""
    declarations = declared(cls)
    return {
        name: declaration.metadata["first"]
        for name, declaration in declarations.items()
        if "first" in declaration.metadata
    }
