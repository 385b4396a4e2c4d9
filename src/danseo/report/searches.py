"""The page of sweeps: studies with their effects, searches with their trials, and how far each sweep is."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from danseo.display.table import Table, shown_interval
from danseo.errors import DanseoError
from danseo.files import parse_json, read_text
from danseo.plots.figures import Chart, Curve, Forest
from danseo.report.blocks import Block, FigureBlock, NoteBlock, Page, Section, TableBlock
from danseo.report.collect import Collection
from danseo.report.journals import JOURNAL, UNFINISHED, Event, sweep_events, sweep_name
from danseo.runs.index import Record
from danseo.runs.layouts.ablation import Ablation, measure_study, read_studies
from danseo.tuning.tables import study_tables

_MOST = 20  # of each sort
_ROWS = 500  # of a sweep
_ROUNDS = 1000


def search_pages(
    folders: Sequence[Path], tuned: Sequence[Path], data_dir: str | None, runs: Collection | None = None
) -> list[Page]:
    """A page about sweeps, where there are any; none otherwise."""
    searches = {str(document["study"]): document for path in tuned[:_MOST] if (document := search_of(path))}
    journals = [path for folder in folders for path in sorted(folder.glob(f"*{JOURNAL}"))[:_MOST]]
    sections = [
        *(section for folder in folders for section in _studies(folder, data_dir)),
        *(_trials(document) for document in searches.values()),
        *_journals(journals, runs),
    ]
    if not sections:
        return []
    lead = "What sweeps and searches tried, and what it came to. Effects are differences in points against the base."
    return [Page("sweeps", "Sweeps", lead, sections)]


# Studies


def _studies(folder: Path, data_dir: str | None) -> Iterator[Section]:
    try:
        studies = read_studies(folder)
    except DanseoError:
        return  # there are none
    for study in studies[:_MOST]:
        try:
            found = measure_study(folder, study, data_dir, rounds=_ROUNDS)
            blocks: list[Block] = [*_drawn(found), TableBlock(found.table())]
        except DanseoError as error:
            blocks = [NoteBlock(f"no effects: {error}")]
        yield Section(f"Study {study.name}", blocks)


def _drawn(found: Ablation) -> list[Block]:
    """The effects with their intervals along one axis, the largest first."""
    ordered = sorted(found.differences.items(), key=lambda pair: -pair[1].value)
    if not ordered:
        return []
    names = [f"{cell}{' *' if difference.is_significant else ''}" for cell, difference in ordered]
    values = [(d.low, d.value, d.high) for _, d in ordered]
    rows: list[tuple[object, ...]] = [(cell, d.value, d.low, d.high) for cell, d in ordered]
    figure = Forest(names, values, f"points of {found.headline}", levels=[("base", 0.0)])
    table = Table("effects", ("change", "effect", "low", "high"), rows)
    caption = "bars are 95 % intervals over seeds and examples; * differs at 5 % after Holm's correction"
    return [FigureBlock("Effects against the base", figure, table, caption)]


# Searches


def search_of(path: Path) -> dict[str, Any] | None:
    """What `danseo tune` wrote; nothing where the file is of another sort."""
    try:
        document: dict[str, Any] = parse_json(read_text(path), path)
        study_tables(document)
        return document
    except (DanseoError, KeyError, TypeError, AttributeError):
        return None


def _trials(document: dict[str, Any]) -> Section:
    done = [(t["trial"], float(t["value"])) for t in document["trials"] if isinstance(t.get("value"), int | float)]
    tables = [TableBlock(table.without_empty()) for table in study_tables(document)]
    return Section(f"Search {document['study']}", [*_history(document, done), *_importance(document), *tables])


def _history(document: dict[str, Any], done: Sequence[tuple[int, float]]) -> list[Block]:
    if len(done) < 2:
        return []
    ended = [t["trial"] for t in document["trials"] if t.get("state") == "complete"]
    best, so_far = float("-inf"), []
    for number, value in ((number, value) for number, value in done if number in ended):
        best = max(best, value)
        so_far.append((float(number), best))
    curves = [Curve("trial", [(float(n), v) for n, v in done]), Curve("best so far", so_far)]
    table = Table("trials", ("trial", document["metric"]), [*done])
    caption = f"{document['metric']}; of a pruned trial its last value"
    return [FigureBlock("Trials", Chart([c for c in curves if c.points], "trial", "value"), table, caption)]


def _importance(document: dict[str, Any]) -> list[Block]:
    shares = document.get("importance") or {}
    rows: list[tuple[object, ...]] = [
        (name.rsplit(".", 1)[-1], round(100 * share, 1)) for name, share in shares.items()
    ]
    note = "share of what tells the best trials from the others"
    return [TableBlock(Table("which settings mattered", ("setting", "share %"), rows, note))] if rows else []


# Sweeps


def _journals(paths: Sequence[Path], runs: Collection | None) -> list[Section]:
    found = [(path, events) for path in paths if (events := sweep_events(path))]
    if not found:
        return []
    counts = [(sweep_name(path), Counter(event.state for event in events)) for path, events in found]
    names = list(dict.fromkeys(state for _, states in counts for state in states))
    rows: list[tuple[object, ...]] = [(name, *(states.get(state) for state in names)) for name, states in counts]
    return [
        Section("Runs of sweeps by state", [TableBlock(Table("sweeps", ("sweep", *names), rows))]),
        *(Section(f"Sweep {sweep_name(path)}", [_runs(path, events, runs)]) for path, events in found),
    ]


def _runs(path: Path, events: Sequence[Event], runs: Collection | None) -> Block:
    """The runs of a sweep: what goes on, then what ended, the best first."""
    records = {str(record.run.path): record for record in runs.records} if runs else {}
    known = [(event, records.get(str(path.parent / event.run))) for event in events]
    rows = [(_sweep_row(event, record, runs), event, record) for event, record in known]
    rows.sort(key=lambda each: (each[1].state not in UNFINISHED, -float(str(each[0][2] or 0)), each[1].run))
    links = [{runs.name(record): runs.key(record)} if runs and record else {} for _, _, record in rows]
    columns = ("run", "state", "score", "95 % interval", "seconds", "where", "why")
    table = Table("runs", columns, [row for row, _, _ in rows[:_ROWS]]).without_empty()
    return TableBlock(table, row_links=links[:_ROWS])


def _sweep_row(event: Event, record: Record | None, runs: Collection | None) -> tuple[object, ...]:
    score = record.score() if record else None
    interval = shown_interval(*score["interval"]) if score and score["interval"] else None
    seconds = record.surroundings.get("seconds") if record else None
    name = runs.name(record) if runs and record else event.run
    value = score["value"] if score else None
    return name, event.state, value, interval, seconds, event.where or None, event.error or None
