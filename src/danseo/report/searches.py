"""The page of sweeps: studies with their effects, searches with their trials, and how far each sweep is."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.files import parse_json, read_text
from danseo.plots.figures import Chart, Curve, Forest
from danseo.report.blocks import Block, FigureBlock, NoteBlock, Page, Section, TableBlock
from danseo.runs.layouts.ablation import Ablation, measure_study, read_studies
from danseo.tuning.tables import study_tables

_MOST = 20  # of each sort
_TAIL = 1 << 20  # bytes of a sweep's journal that are read
_ROUNDS = 1000
JOURNAL = ".sweep.jsonl"


def search_pages(folders: Sequence[Path], tuned: Sequence[Path], data_dir: str | None) -> list[Page]:
    """A page about sweeps, where there are any; none otherwise."""
    journals = [path for folder in folders for path in sorted(folder.glob(f"*{JOURNAL}"))[:_MOST]]
    sections = [
        *(section for folder in folders for section in _studies(folder, data_dir)),
        *(section for path in tuned[:_MOST] for section in _trials(path)),
        *_journals(journals),
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


def _trials(path: Path) -> Iterator[Section]:
    """The trials of `danseo tune`; a file of another sort says nothing."""
    try:
        document = parse_json(read_text(path), path)
        tables = study_tables(document)
    except (DanseoError, KeyError, TypeError, AttributeError):
        return
    done = [(t["trial"], float(t["value"])) for t in document["trials"] if isinstance(t.get("value"), int | float)]
    yield Section(f"Search {document['study']}", [*_history(document, done), *map(TableBlock, tables)])


def _history(document: dict[str, Any], done: Sequence[tuple[int, float]]) -> list[Block]:
    if len(done) < 2:
        return []
    best, so_far = float("-inf"), []
    for number, value in done:
        best = max(best, value)
        so_far.append((float(number), best))
    curves = [Curve("trial", [(float(n), v) for n, v in done]), Curve("best so far", so_far)]
    table = Table("trials", ("trial", document["metric"]), [*done])
    return [FigureBlock("Trials", Chart(curves, "trial", "value"), table, str(document["metric"]))]


# Sweeps


def _journals(paths: Sequence[Path]) -> list[Section]:
    found = [(path.name.removesuffix(JOURNAL), states) for path in paths if (states := sweep_states(path))]
    if not found:
        return []
    names = list(dict.fromkeys(state for _, states in found for state in states))
    rows: list[tuple[object, ...]] = [(name, *(states.get(state) for state in names)) for name, states in found]
    return [Section("Runs of sweeps by state", [TableBlock(Table("sweeps", ("sweep", *names), rows))])]


def sweep_states(path: Path) -> dict[str, int]:
    """How many runs of a sweep are in which state, by the last word on each."""
    states: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        try:
            event = json.loads(line)
            states[str(event["run"])] = str(event["state"])
        except (ValueError, KeyError, TypeError):
            continue  # a line that is cut or being written
    return dict(Counter(states.values()))
