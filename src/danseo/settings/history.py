"""What has become of settings: changes in order, so that old runs open and keep their names.

A config class lists its changes as CHANGES, the oldest first; each makes the next schema number, which stands in every
config.toml. A new setting needs none (`later`), nor has a changed default (`later(new, first=old)`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from danseo.errors import DanseoError

Settings = Mapping[str, Any]


class Change(Protocol):
    """One step from a schema to the next."""

    def applied(self, settings: Settings) -> dict[str, Any]:
        """Settings as they were written, by full name, in the words of the next schema."""

    def undone(self, settings: Settings) -> dict[str, Any]:
        """Settings in the words that fingerprints were made of before."""

    def told(self, key: str) -> str | None:
        """What to say to whoever still uses the name."""


@dataclass(frozen=True)
class Renamed:
    """A setting with another name, or in another section."""

    old: str
    new: str

    def applied(self, settings: Settings) -> dict[str, Any]:
        return {self.new if name == self.old else name: value for name, value in settings.items()}

    def undone(self, settings: Settings) -> dict[str, Any]:
        return {self.old if name == self.new else name: value for name, value in settings.items()}

    def told(self, key: str) -> str | None:
        return f"it is called {self.new} now" if key in (self.old, self.old.split(".")[-1]) else None


@dataclass(frozen=True)
class Removed:
    """A setting that is gone; all runs since are as those in which it had this value."""

    name: str
    value: Any
    why: str
    was_later: bool = False
    """Whether it was declared with `later`: then its value was never part of a run's name."""

    def applied(self, settings: Settings) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name != self.name}

    def undone(self, settings: Settings) -> dict[str, Any]:
        return dict(settings) if self.was_later else {**settings, self.name: self.value}

    def told(self, key: str) -> str | None:
        return f"it was removed: {self.why}" if key in (self.name, self.name.split(".")[-1]) else None


@dataclass(frozen=True)
class Rewritten:
    """What was said in one setting is said in another; for settings that are no part of fingerprints."""

    rewrite: Callable[[dict[str, Any]], dict[str, Any]]

    def applied(self, settings: Settings) -> dict[str, Any]:
        return self.rewrite(dict(settings))

    def undone(self, settings: Settings) -> dict[str, Any]:
        return dict(settings)

    def told(self, key: str) -> str | None:
        return None


def changes_of(cls: type) -> tuple[Change, ...]:
    """The changes of a config, the oldest first."""
    return getattr(cls, "CHANGES", ())


def schema_of(cls: type) -> int:
    """The number of today's schema; the first version wrote none and had 1."""
    return 1 + len(changes_of(cls))


def migrated(settings: Settings, schema: object, cls: type) -> dict[str, Any]:
    """Settings that were written under an older schema, in today's words."""
    today = schema_of(cls)
    if type(schema) is not int or schema < 1:
        raise DanseoError(f"schema = {schema!r}: should be a whole number; is this a file that danseo wrote?")
    if schema > today:
        raise DanseoError(f"written by a newer danseo (schema {schema}, this one knows {today}); update danseo")
    found = dict(settings)
    for change in changes_of(cls)[schema - 1 :]:
        found = change.applied(found)
    return found


def renamed_to(key: str, cls: type) -> str | None:
    """What became of a setting that there once was."""
    return next((told for change in reversed(changes_of(cls)) if (told := change.told(key))), None)
