"""The page of sweeps: effects of studies, trials of searches, and the states of runs."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.display.plots.figures import Forest
from danseo.display.table import Table
from danseo.errors import DanseoError, get_message
from danseo.files import find_own_files, read_json
from danseo.language import Message, _
from danseo.report.collection import Collection
from danseo.report.html import Block, FigureBlock, NoteBlock, Page, PageSection, TableBlock
from danseo.runs.index import Record
from danseo.runs.lock import RunLocks
from danseo.sweeps.plan import SWEEP_LOG
from danseo.sweeps.tuning import history_chart, study_tables
from danseo.tables.ablation import Ablation, measure_study, read_studies
from danseo.tables.runs import format_score

_MAX_LOG_BYTES = 1 << 20  # read from the end of a log
_START_SECONDS = 60.0  # between the start of a run and its lock
UNFINISHED = ("running", "queued", "lost", "stopped")


@dataclass(frozen=True)
class SweepEvent:
    """The last event of a run of a sweep."""

    run: str
    state: str
    where: str = ""
    error: str = ""


def get_sweep_name(path: Path) -> str:
    """Return the name of the sweep that wrote a log."""
    return path.name.removesuffix(SWEEP_LOG)


def read_sweep_events(path: Path, now: float | None = None) -> list[SweepEvent]:
    """Return the last event of each run; a started run without a living process is stopped."""
    last: dict[str, dict[str, Any]] = {}
    for event in _read_lines(path):
        last[str(event["run"])] = event
    now = time.time() if now is None else now
    return [
        SweepEvent(
            run, _find_state(path.parent, event, now), str(event.get("where") or ""), str(event.get("error") or "")
        )
        for run, event in last.items()
    ]


def count_sweep_states(path: Path, now: float | None = None) -> dict[str, int]:
    """Return the number of runs per state of a sweep."""
    return dict(Counter(event.state for event in read_sweep_events(path, now)))


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MAX_LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue  # an incomplete line
        if isinstance(event, dict) and "run" in event and "state" in event:
            yield event


def _find_state(folder: Path, event: dict[str, Any], now: float) -> str:
    state, start, run = str(event["state"]), event.get("time"), folder / Path(str(event["run"])).name
    if state != "running" or is_running(run):
        return state
    is_fresh = isinstance(start, int | float) and now - start < _START_SECONDS and not _was_locked_since(run, start)
    return "running" if is_fresh else "stopped"


def _was_locked_since(run: Path, start: float) -> bool:
    """Return whether a process locked or released the run after that time."""
    try:
        return (run.parent / ".locks" / run.name).stat().st_mtime > start
    except OSError:
        return False


def is_running(run: Path) -> bool | None:
    """Return whether a living process has the lock of a run; None if there is no lock."""
    if run.name in ("", ".", ".."):
        return None
    locks = RunLocks(run.parent, now=time.time)
    try:
        return locks.is_held(run.name) if locks.exists(run.name) else None
    except (OSError, TypeError, ValueError):
        return None  # not a lock file of danseo


_MAX_SHOWN = 20  # studies, searches, sweeps
_MAX_ROWS = 500  # of a sweep
_ROUNDS = 1000


def make_sweeps_pages(
    folders: Sequence[Path], tuned: Sequence[Path], data_dir: str | None, runs: Collection | None = None
) -> list[Page]:
    """Return the page about sweeps; nothing if there are none."""
    searches = {str(document["study"]): document for path in tuned[:_MAX_SHOWN] if (document := read_search(path))}
    logs = [path for folder in folders for path in find_own_files(folder, f"*{SWEEP_LOG}")[:_MAX_SHOWN]]
    sections = [
        *(section for folder in folders for section in _make_study_sections(folder, data_dir)),
        *(_make_search_section(document) for document in searches.values()),
        *_make_sweep_sections(logs, runs),
    ]
    if not sections:
        return []
    lead = _("The results of sweeps and searches. Effects are differences in points from the base.")
    return [Page("sweeps", "Sweeps", lead, sections)]


# Studies


def _make_study_sections(folder: Path, data_dir: str | None) -> Iterator[PageSection]:
    try:
        studies = read_studies(folder)
    except DanseoError:
        return  # no studies
    for study in studies[:_MAX_SHOWN]:
        try:
            found = measure_study(folder, study, data_dir, rounds=_ROUNDS)
            blocks: list[Block] = [*_draw_effects(found), TableBlock(found.table())]
        except DanseoError as error:
            blocks = [NoteBlock(_("no effects: {error}").format(error=get_message(error)))]
        yield PageSection(_("Study {name}").format(name=study.name), blocks)


def _draw_effects(found: Ablation) -> list[Block]:
    """Return a figure of the effects with their intervals, the largest first."""
    ordered = sorted(found.differences.items(), key=lambda pair: -pair[1].value)
    if not ordered:
        return []
    names = [f"{cell}{' *' if difference.is_significant else ''}" for cell, difference in ordered]
    values = [(d.low, d.value, d.high) for _, d in ordered]
    rows = [(cell, d.value, d.low, d.high) for cell, d in ordered]
    figure = Forest(names, values, _("points of {metric}").format(metric=found.headline), levels=[(_("base"), 0.0)])
    table = Table("effects", ("change", "effect", "low", "high"), rows)
    caption = _("bars are 95 % intervals over seeds and examples; * significant (α = 5 %) after Holm's correction")
    return [FigureBlock("Effects against the base", figure, table, caption)]


# Searches


def read_search(path: Path) -> dict[str, Any] | None:
    """Read what `danseo tune` wrote; return None for any other file."""
    try:
        document: dict[str, Any] = read_json(path)
        study_tables(document)
        return document
    except (DanseoError, KeyError, TypeError, AttributeError):
        return None


def _make_search_section(document: dict[str, Any]) -> PageSection:
    tables = [TableBlock(table.without_empty()) for table in study_tables(document)]
    return PageSection(
        _("Search {name}").format(name=document["study"]),
        [*_draw_history(document), *_make_importance_table(document), *tables],
    )


def _draw_history(document: dict[str, Any]) -> list[Block]:
    chart = history_chart(document["trials"], document["metric"])
    values = sorted(point for curve in chart.curves if curve.style == "points" for point in curve.points)
    table = Table("trials", ("trial", document["metric"]), [*values])
    return [FigureBlock("Trials", chart, table, document["metric"])] if len(values) > 1 else []


def _make_importance_table(document: dict[str, Any]) -> list[Block]:
    shares = document.get("importance") or {}
    rows = [(name.rsplit(".", 1)[-1], round(100 * share, 1)) for name, share in shares.items()]
    note = _("share in what distinguishes the best trials from the others")
    return [TableBlock(Table("importance of settings", ("setting", "share %"), rows, note))] if rows else []


# Sweeps


def _make_sweep_sections(paths: Sequence[Path], runs: Collection | None) -> list[PageSection]:
    found = [(path, events) for path in paths if (events := read_sweep_events(path))]
    if not found:
        return []
    counts = [(get_sweep_name(path), Counter(event.state for event in events)) for path, events in found]
    names = list(dict.fromkeys(state for _, states in counts for state in states))
    rows = [(name, *(states.get(state) for state in names)) for name, states in counts]
    return [
        PageSection("Runs of sweeps by state", [TableBlock(Table("sweeps", ("sweep", *names), rows))]),
        *(
            PageSection(_("Sweep {name}").format(name=get_sweep_name(path)), [_make_run_table(path, events, runs)])
            for path, events in found
        ),
    ]


def _make_run_table(path: Path, events: Sequence[SweepEvent], runs: Collection | None) -> Block:
    """Return the runs of a sweep: unfinished ones first, then the best."""
    records = {str(record.run.path): record for record in runs.records} if runs else {}
    known = [(event, records.get(str(path.parent / event.run))) for event in events]
    rows = [(_make_run_row(event, record, runs), event, record) for event, record in known]
    rows.sort(key=lambda each: (each[1].state not in UNFINISHED, -float(str(each[0][2] or 0)), each[1].run))
    links = [{runs.name(record): runs.key(record)} if runs and record else {} for _, _, record in rows]
    columns = ("run", "state", "score", "95 % interval", "seconds", "where", "why")
    table = Table("runs", columns, [row for row, _, _ in rows[:_MAX_ROWS]]).without_empty()
    return TableBlock(table, row_links=links[:_MAX_ROWS])


def _make_run_row(event: SweepEvent, record: Record | None, runs: Collection | None) -> tuple[object, ...]:
    score = format_score(record) if record else (None, None)
    seconds = record.surroundings.get("seconds") if record else None
    name = runs.name(record) if runs and record else event.run
    return name, Message(event.state), *score, seconds, event.where or None, event.error or None
