"""The interface of an export format: its description, its options and the function that writes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError, WorkFailed
from danseo.runs.index import Record
from danseo.runs.predictions import read_finished_record


@dataclass(frozen=True)
class ExportRequest:
    """One export: source, target and options of the format."""

    source: str
    """A run directory, or another source of the format: a checkpoint folder, a Hub id."""
    out: str | None = None
    """A file, a folder, or OWNER/NAME; None lets the format choose a name beside the run."""
    data_dir: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The given options of the format."""
    other_sources: tuple[str, ...] = ()
    """More runs, for formats that take several."""

    @property
    def record(self) -> Record:
        """The finished run; raises if the source is anything else."""
        return read_finished_record(Path(self.source))

    @property
    def records(self) -> list[Record]:
        """All finished runs."""
        return [read_finished_record(Path(source)) for source in (self.source, *self.other_sources)]

    def path(self, suffix: str, name: str = "") -> Path:
        """Return --out, or a path beside the first run: the name, else that of the run with a suffix."""
        runs = [Path(source).resolve() for source in (self.source, *self.other_sources)]
        chosen = Path(self.out) if self.out else runs[0].with_name(name or runs[0].name + suffix)
        if any(chosen.resolve().is_relative_to(run) for run in runs):
            raise DanseoError(f"cannot export into the run directory: {chosen}; name another --out")
        return chosen


@dataclass(frozen=True)
class ExportOption:
    """An option of a format; without a metavar it is a flag."""

    name: str
    """As in `ExportRequest.options`; the command line has it with dashes."""
    help: str
    metavar: str | None = None


class ExportRefused(WorkFailed):
    """An export that a check refused; nothing is written, and the tables show the reason."""

    def __init__(self, message: str, tables: Sequence[Table]) -> None:
        super().__init__(message)
        self.tables = tables


TRUST_REMOTE_CODE = ExportOption("trust_remote_code", "run code that comes with the checkpoint.")


@dataclass(frozen=True)
class ExportFormat:
    """One export format; a new one is a module with a FORMAT and a line in registry.py."""

    name: str
    description: str
    write: Callable[[ExportRequest], Mapping[str, Any]]
    """Writes the export and returns facts: "out" if anything is written, "tables" to show. Heavy imports are inside."""
    packages: tuple[str, ...] = ()
    """Required packages, by the names in extras.py."""
    options: tuple[ExportOption, ...] = ()
    takes_several: bool = False
    """Whether several runs are exported together."""
