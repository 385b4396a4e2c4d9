"""What `danseo probe` does: find checkpoints, probe them one by one, compare, draw."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.display.escaping import say
from danseo.display.progress import LiveDisplay, unmarked
from danseo.display.table import Table
from danseo.extras import require
from danseo.files import check_writable
from danseo.models.encoder.facts import PACKAGES
from danseo.probing.checkpoints import Checkpoint, Range, find_checkpoints, is_settled, shown_name
from danseo.probing.items import ProbeItem, items_hash, read_items, shipped_items
from danseo.probing.probe import ProbeOptions
from danseo.probing.results import CURVE, Record, read_reference, tidy
from danseo.probing.sweep import Sweep
from danseo.probing.tables import comparison, comparison_table, result_tables, sweep_table
from danseo.runs.locks import owned
from danseo.text.morphology import KiwiAnalyser


@dataclass(frozen=True)
class Job:
    """The command's arguments; poll is set where new checkpoints are waited for."""

    checkpoints: tuple[str, ...]
    options: ProbeOptions = field(default_factory=ProbeOptions)
    steps: Range = field(default_factory=Range)
    items: Path | None = None
    split: str = "dev"
    output: Path | None = None
    reference: Path | None = None
    poll: float | None = None
    precision: str = "auto"
    device: str | None = None
    trust_remote_code: bool = False
    wait: bool = True
    """Whether a folder that another process writes to is waited for."""


@dataclass(frozen=True)
class Outcome:
    """What there is to show in the end."""

    records: list[Record]
    summary: Record
    folder: Path
    reference: Record | None = None
    differences: list[Record] = field(default_factory=list)
    curve: Path | None = None

    @property
    def exit_code(self) -> int:
        """3 where a checkpoint failed."""
        return 3 if any(record["status"] == "failed" for record in self.records) else 0

    def tables(self) -> list[Table]:
        good = [record for record in self.records if record["status"] == "ok"]
        tables = list(result_tables(good[0])) if len(good) == 1 else []
        tables.append(sweep_table(self.summary))
        if self.reference:
            tables.append(comparison_table(self.differences, self.reference))
        return tables

    def as_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "summary": self.summary,
            "records": self.records,
            "comparison": self.differences,
            "curve": str(self.curve) if self.curve else None,
        }


def run_job(job: Job, quiet: bool = False) -> Outcome:
    """Probe all checkpoints; results are on disk after each one."""
    items = read_items(job.items, job.split) if job.items else shipped_items(job.split)
    waiting = find_checkpoints(job.checkpoints, job.steps, empty=job.poll is not None)
    folder = job.output or _home(job, waiting)
    check_writable(folder)
    with owned(folder, wait=job.wait, on_note=lambda line: None if quiet else say(line), inside=True):
        tidy(folder)
        return _run(job, items, waiting, folder, quiet)


def _run(job: Job, items: Sequence[ProbeItem], waiting: list[Checkpoint], folder: Path, quiet: bool) -> Outcome:
    spelling = job.options.spelling
    reference = read_reference(job.reference, items_hash(items), spelling) if job.reference else None
    require(*PACKAGES, "kiwipiepy")
    with _Display(quiet=quiet) as display:
        sweep = Sweep(items, job.options, KiwiAnalyser(), job.output, job.device, job.precision, job.trust_remote_code)
        sweep.on_progress, sweep.on_note = display.progress, display.note
        sweep.is_alone = job.poll is None and [each.source for each in waiting] == list(job.checkpoints)[:1]
        for number, checkpoint in enumerate(_stream(job, waiting, display), 1):
            display.start(number, max(number, len(waiting)), shown_name(checkpoint.source))
            sweep.probe(checkpoint)
            sweep.save(folder, max(number, len(waiting)), "running")
    summary = sweep.save(folder, max(len(sweep.records), len(waiting)), "complete")
    good = [record for record in sweep.records if record["status"] == "ok"]
    differences = comparison(good, reference) if reference else []
    return Outcome(sweep.records, summary, folder, reference, differences, _drawn(summary, good, folder))


def _home(job: Job, checkpoints: list[Checkpoint]) -> Path:
    """Where the summary goes without --output-dir: the folder that was named, or the one that holds the checkpoint."""
    first = Path(job.checkpoints[0])
    is_parent = first.is_dir() and [each.source for each in checkpoints] != [str(first)]
    return first if is_parent else first.resolve().parent if first.is_dir() else Path()


def _stream(job: Job, waiting: list[Checkpoint], display: "_Display") -> Iterator[Checkpoint]:
    """The checkpoints that are there, then new ones as they come; Ctrl-C ends the waiting, not the results."""
    seen: dict[str, None] = {}
    try:
        for checkpoint in waiting:
            if job.poll is None or not checkpoint.path.is_dir() or is_settled(checkpoint):
                seen[checkpoint.source] = None
                yield checkpoint
        if job.poll is not None:
            display.note(f"waiting for checkpoints in {', '.join(job.checkpoints)}; Ctrl-C ends")
        while job.poll is not None:
            time.sleep(job.poll)
            for checkpoint in find_checkpoints(job.checkpoints, job.steps, empty=True):
                if checkpoint.source not in seen and is_settled(checkpoint):
                    seen[checkpoint.source] = None
                    yield checkpoint
    except KeyboardInterrupt:
        if job.poll is None:
            raise
        display.note("no longer waiting")


def _drawn(summary: Record, good: list[Record], folder: Path) -> Path | None:
    from danseo.plots.curves import draw_probe_curve

    rows = [row for row in summary["results"] if row["status"] == "ok"]
    return folder / CURVE if draw_probe_curve(rows, folder / CURVE, _levels(good)) else None


def _levels(records: list[Record]) -> Mapping[str, float]:
    """What a guess without a model scores, to see the curve against."""
    found = records[0]["probes"].get("repeated", {}).get("baselines", {}) if records else {}
    names = {"nearest": "nearest noun @1", "frequent": "most frequent noun @1"}
    return {label: found[name]["strict@1"]["value"] for name, label in names.items() if name in found}


class _Display(LiveDisplay):
    """A bar with ETA on a terminal, a line per checkpoint elsewhere."""

    title = ""

    def start(self, number: int, count: int, name: str) -> None:
        """The next checkpoint begins; its bar takes the place of the last one's."""
        self.title = f"{name} ({number} of {count})" if count > 1 else name
        if self.bar:
            for task in self.bar.task_ids:
                self.bar.remove_task(task)

    def draw_on(self, console: Any) -> Any:
        from rich.progress import Progress

        return Progress(console=console, transient=True)

    def progress(self, done: int, total: int) -> None:
        if self.bar:
            task = self.bar.task_ids[0] if self.bar.task_ids else self.bar.add_task(unmarked(self.title), total=total)
            self.bar.update(task, completed=done)
