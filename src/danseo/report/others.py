"""What lies beside runs: pre-trainings and probed checkpoints, as curves."""

import json
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from danseo.display.table import Table, shown_interval
from danseo.errors import DanseoError
from danseo.files import parse_json, read_text
from danseo.plots.figures import Chart, Curve
from danseo.report.blocks import Block, FigureBlock, Page, Section, TableBlock
from danseo.report.collect import Collection as Runs
from danseo.report.journals import JOURNAL
from danseo.report.searches import search_of, search_pages
from danseo.runs.layouts.ablation import ENDING
from danseo.tuning.tables import BESIDE as TUNED

_LOSSES = {"held_out_loss": "held-out loss", "loss": "training loss", "held_out_rtd_loss": "held-out detection loss"}
_FOUND = {"held_out_accuracy": "held-out words found", "recovered": "entities recovered"}
_INSIDE = ("strict@1", "strict@5", "choice@1")  # probes while training
_PROBES = {
    "strict1": "repeated nouns, strict@1",
    "strict5": "repeated nouns, strict@5",
    "choice1": "choice @1",
    "lambada_strict1": "LAMBADA-style, strict@1",
    "composite": "composite",
}
_MOST = 20  # trainings and probed folders on the page
SUMMARY = "probe_summary.json"
_SETTINGS = ("pretrain.toml", "coref.toml")
_TELLING = (*_SETTINGS, SUMMARY, "result.json")
_DEEPEST = 4
OTHERS = {"sweeps": "Sweeps", "masked": "Masked LMs"}
"""Key -> title of the pages about other work than runs."""


def other_pages(folders: Sequence[Path], data_dir: str | None = None, runs: Runs | None = None) -> list[Page]:
    """Pages about sweeps and about masked language models, where there are any; runs are named as there."""
    found = [path for folder in folders for path in _beside_runs(folder)]
    trainings = [path.parent for path in found if path.name in _SETTINGS]
    probed = [path for path in found if path.name == SUMMARY]
    return [*search_pages(folders, _tuned(found), data_dir, runs), *_masked(folders, trainings, probed)]


def _tuned(found: Sequence[Path]) -> list[Path]:
    """What `danseo tune` may have written; a training's result is none."""
    trainings = {path.parent for path in found if path.name in _SETTINGS}
    return [p for p in found if p.name.endswith(TUNED) or (p.name == "result.json" and p.parent not in trainings)]


def other_links(folders: Sequence[Path], runs: Collection[str] = ()) -> list[tuple[str, str]]:
    """The keys and titles of the pages that there may be, without making them; known runs are not opened."""
    beside = [path for folder in folders for path in _beside_runs(folder, runs)]
    found = {path.name for path in beside}
    is_swept = any(path for folder in folders for ending in (JOURNAL, ENDING) for path in folder.glob(f"*{ending}"))
    is_tuned = any(search_of(path) for path in _tuned(beside))
    return [
        *([("sweeps", OTHERS["sweeps"])] if is_swept or is_tuned else []),
        *([("masked", OTHERS["masked"])] if found & {*_SETTINGS, SUMMARY} else []),
    ]


def _beside_runs(folder: Path, runs: Collection[str] = (), depth: int = 0) -> Iterator[Path]:
    """The files that tell of other work than runs; links are not followed, and runs not looked into."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == "config.toml" for entry in entries):
        return
    for entry in entries:
        if entry.is_file(follow_symlinks=False) and (entry.name in _TELLING or entry.name.endswith(TUNED)):
            yield Path(entry.path)
        elif entry.path in runs or depth >= _DEEPEST or entry.name.startswith("."):
            continue
        elif entry.is_dir(follow_symlinks=False):
            yield from _beside_runs(Path(entry.path), runs, depth + 1)


def masked_trainings(folders: Sequence[Path], runs: Collection[str] = ()) -> list[tuple[str, Path]]:
    """Where masked language models are trained, by name; known runs are not opened."""
    found = [path.parent for folder in folders for path in _beside_runs(folder, runs) if path.name in _SETTINGS]
    return [(_place(path, folders), path) for path in found]


def _masked(folders: Sequence[Path], trainings: Sequence[Path], probed: Sequence[Path]) -> list[Page]:
    named = [(_place(path, folders), path) for path in trainings[:_MOST]]
    drawn = [(name, path, blocks) for name, path in named if (blocks := _training(path))]
    sections = [
        *([Section("Trainings", [_trainings(named)])] if drawn else []),
        *(Section(f"Training {name}", blocks) for name, _, blocks in drawn),
        *(
            Section(f"Probes in {_place(path.parent, folders)}", blocks)
            for path in probed[:_MOST]
            if (blocks := _probes(path))
        ),
    ]
    if not sections:
        return []
    told = f"{_count(len(trainings), 'training')} and {_count(len(probed), 'folder')} of probed checkpoints"
    lead = f"Masked language models: {told}. A loss is better when lower; found words and probes when higher."
    return [Page("masked", OTHERS["masked"], lead, sections)]


def _place(path: Path, folders: Sequence[Path]) -> str:
    """A folder as seen from where was looked: two trainings may have the same name."""
    inside = [path.relative_to(folder).as_posix() for folder in folders if path.is_relative_to(folder)]
    return next((name for name in inside if name != "."), path.name)


def _trainings(named: Sequence[tuple[str, Path]]) -> Block:
    """A line per training: how far it came, and how good it was at its best."""
    rows: list[tuple[object, ...]] = []
    for name, path in named:
        lines, result = log_lines(path / "log.jsonl"), _document(path / "result.json")
        best = min((line for line in lines if _has(line, "step", "held_out_loss")), key=_held_out, default={})
        found = best.get("held_out_accuracy")
        rows.append(
            (
                name,
                "entity fine-tuning" if (path / "coref.toml").is_file() else "pre-training",
                "done" if result else "unfinished",
                lines[-1].get("step") if lines else None,
                best.get("held_out_loss"),
                best.get("step"),
                _percent(found),
                result.get("pieces_per_second"),
            )
        )
    columns = ("training", "sort", "state", "steps", "least held-out loss", "at step", "words found there, %")
    return TableBlock(Table("trainings", (*columns, "pieces per second"), rows).without_empty())


def _held_out(line: dict[str, Any]) -> float:
    return float(line["held_out_loss"])


def _document(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is none."""
    try:
        found = parse_json(read_text(path), path) if path.is_file() else {}
    except DanseoError:
        return {}
    return found if isinstance(found, dict) else {}


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _training(folder: Path) -> list[Block]:
    """Losses, and how many masked words are found, over steps."""
    lines = log_lines(folder / "log.jsonl")
    losses = _curves(lines, _LOSSES, 1)
    found = _curves(lines, _FOUND, 100)
    found += [
        Curve(name, points)
        for name in _INSIDE
        if (points := [(p[0], 100 * p[1]) for line in lines if (p := _probe(line, name))])
    ]
    return [*_drawn("Loss over steps", losses, "loss"), *_drawn("Words found over steps", found, "% of items")]


def _curves(lines: Sequence[dict[str, Any]], names: dict[str, str], times: float) -> list[Curve]:
    return [
        Curve(label, points)
        for key, label in names.items()
        if (points := [(line["step"], times * line[key]) for line in lines if _has(line, "step", key)])
    ]


def _probe(line: dict[str, Any], name: str) -> tuple[float, float] | None:
    probes = line.get("probes")
    value = probes.get(name) if isinstance(probes, dict) else None
    return (line["step"], value) if isinstance(value, int | float) and _has(line, "step") else None


def _drawn(title: str, curves: list[Curve], unit: str) -> list[Block]:
    if not curves:
        return []
    rows: list[tuple[object, ...]] = [(c.name, x, y) for c in curves for x, y in c.points]
    return [FigureBlock(title, Chart(curves, "step", unit), Table(title.lower(), ("curve", "step", unit), rows))]


def _has(line: dict[str, Any], *keys: str) -> bool:
    return all(isinstance(line.get(key), int | float) for key in keys)


def log_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; one that is being written is left out."""
    found = []
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found += [record] if isinstance(record, dict) else []
    return found


def _probes(path: Path) -> list[Block]:
    try:
        document = parse_json(read_text(path), path)
    except DanseoError:
        return []
    listed = document.get("results", document.get("checkpoints", [])) if isinstance(document, dict) else document
    records = [record for record in listed if isinstance(record, dict)] if isinstance(listed, list) else []
    known = [name for name in _PROBES if any(isinstance(r.get(name), int | float) for r in records)]
    if not known:
        return []
    rows: list[tuple[object, ...]] = [
        (
            Path(str(r.get("checkpoint", "?"))).name,
            r.get("step"),
            *(_percent(r.get(name)) for name in known),
            _ends(r.get("strict1_interval")),
        )
        for r in records
    ]
    columns = ("checkpoint", "step", *(_PROBES[name] for name in known), "95 % of repeated nouns, strict@1")
    table = Table("probed checkpoints", columns, rows).without_empty()
    curves = [
        Curve(_PROBES[name], sorted((r["step"], 100 * r[name]) for r in records if _has(r, "step", name)))
        for name in known
    ]
    drawn = [curve for curve in curves if len(curve.points) > 1]
    chart: list[Block] = [FigureBlock("Probes over steps", Chart(drawn, "step", "% of items"), table)] if drawn else []
    return chart or [TableBlock(table)]


def _ends(found: Any) -> str | None:
    """An interval of shares, in percent."""
    if isinstance(found, list) and len(found) == 2 and all(isinstance(end, int | float) for end in found):
        return shown_interval(100 * found[0], 100 * found[1])
    return None


def _percent(value: Any) -> float | None:
    return 100 * value if isinstance(value, int | float) else None
