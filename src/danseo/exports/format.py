"""What an export format is, and how one is asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.runs.answers import finished_record
from danseo.runs.index import Record


@dataclass(frozen=True)
class Request:
    """One export, as it was asked for."""

    source: str
    """A run directory, or what else the format takes: a checkpoint folder, a Hub id."""
    out: str | None = None
    """A file, a folder, or OWNER/NAME; None lets the format choose a name beside the run."""
    data_dir: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The format's own options that were given."""

    @property
    def record(self) -> Record:
        """The finished run that is meant; anything else is one line that says why not."""
        return finished_record(Path(self.source))

    def path(self, suffix: str) -> Path:
        """Where to write: --out, or beside the run under its name with a suffix; never inside the run."""
        run = Path(self.source).resolve()
        chosen = Path(self.out) if self.out else run.with_name(run.name + suffix)
        if chosen.resolve().is_relative_to(run):
            raise DanseoError(f"{chosen} lies in the run directory, which stays as it is; name another --out")
        return chosen


@dataclass(frozen=True)
class Format:
    """One row of the table of formats."""

    name: str
    what: str
    """In a few words, for the list of formats."""
    write: Callable[[Request], Mapping[str, Any]]
    """Does it, and tells what was made: at least "out", where it is now. Heavy imports belong inside."""
    packages: tuple[str, ...] = ()
    """What has to be installed for it, by the names that extras.py knows."""
    options: tuple[str, ...] = ()
    """The options of its own, by their names in the command line's function."""
