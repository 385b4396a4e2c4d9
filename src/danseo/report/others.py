"""What lies beside runs: pre-trainings and probed checkpoints, as curves."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.files import parse_json, read_text
from danseo.plots.figures import Chart, Curve
from danseo.report.blocks import Block, FigureBlock, Page, Section, TableBlock

_LOSSES = {"held_out_loss": "held-out loss", "loss": "training loss", "held_out_rtd_loss": "held-out detection loss"}
_PROBES = {
    "strict1": "repeated nouns, strict@1",
    "strict5": "repeated nouns, strict@5",
    "choice1": "choice @1",
    "lambada_strict1": "LAMBADA-style, strict@1",
    "composite": "composite",
}
_MOST = 20  # trainings and probed folders on the page
SUMMARY = "probe_summary.json"


def other_pages(folders: Sequence[Path]) -> list[Page]:
    """A page about masked language models, where there are any; none otherwise."""
    trainings = [path.parent for folder in folders for path in sorted(folder.rglob("pretrain.toml"))]
    trainings += [path.parent for folder in folders for path in sorted(folder.rglob("coref.toml"))]
    probed = [path for folder in folders for path in sorted(folder.rglob(SUMMARY))]
    sections = [
        *(Section(f"Training {path.name}", blocks) for path in trainings[:_MOST] if (blocks := _training(path))),
        *(Section(f"Probes in {path.parent.name}", blocks) for path in probed[:_MOST] if (blocks := _probes(path))),
    ]
    if not sections:
        return []
    lead = f"{len(trainings)} masked-language trainings and {len(probed)} folders of probed checkpoints."
    return [Page("masked", "Masked language models", lead, sections)]


def _training(folder: Path) -> list[Block]:
    lines = _log(folder / "log.jsonl")
    curves = [
        Curve(label, points)
        for key, label in _LOSSES.items()
        if (points := [(line["step"], line[key]) for line in lines if _has(line, "step", key)])
    ]
    if not curves:
        return []
    rows: list[tuple[object, ...]] = [(c.name, x, y) for c in curves for x, y in c.points]
    table = Table("losses", ("loss", "step", "value"), rows)
    return [FigureBlock("Loss over steps", Chart(curves, "step", "loss"), table)]


def _has(line: dict[str, Any], *keys: str) -> bool:
    return all(isinstance(line.get(key), int | float) for key in keys)


def _log(path: Path) -> list[dict[str, Any]]:
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
        (Path(str(r.get("checkpoint", "?"))).name, r.get("step"), *(_percent(r.get(name)) for name in known))
        for r in records
    ]
    table = Table("probed checkpoints", ("checkpoint", "step", *(_PROBES[name] for name in known)), rows)
    curves = [
        Curve(_PROBES[name], sorted((r["step"], 100 * r[name]) for r in records if _has(r, "step", name)))
        for name in known
    ]
    drawn = [curve for curve in curves if len(curve.points) > 1]
    chart: list[Block] = [FigureBlock("Probes over steps", Chart(drawn, "step", "% of items"), table)] if drawn else []
    return chart or [TableBlock(table)]


def _percent(value: Any) -> float | None:
    return 100 * value if isinstance(value, int | float) else None
