"""All runs of a folder as tables: a view that can be made anew at any time."""

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from danseo.config import flat
from danseo.errors import DanseoError
from danseo.reading import read_text
from danseo.runs.directory import Run
from danseo.tables import Best, Second, Table, to_latex, to_markdown

_LISTED_SEEDS = 4
FORMATS = ("table", "markdown", "csv", "json", "latex")


@dataclass(frozen=True)
class Record:
    """One run as the index sees it."""

    run: Run
    status: str
    settings: dict[str, Any]
    scores: dict[str, Any]
    surroundings: dict[str, Any]
    note: str = ""

    @property
    def task(self) -> str:
        return str(self.settings.get("task", "?"))

    @property
    def model(self) -> str:
        """The model's name without folders; the run's where its settings cannot be read."""
        return Path(str(self.settings.get("model", self.run.path.name))).name

    @property
    def is_made_of_runs(self) -> bool:
        """Whether this is an ensemble or a soup: its own training settings then say nothing."""
        return self.settings.get("recipe") in ("ensemble", "soup")

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The members of an ensemble or soup."""
        return list(self.scores.get("ensemble", {}).get("members", []))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of a run; those of its members for an ensemble or soup."""
        found = sorted({member["seed"] for member in self.parts if member.get("seed") is not None})
        return tuple(found) or ((int(self.settings["seed"]),) if "seed" in self.settings else ())

    @property
    def seed(self) -> int | str | None:
        """The seed, or of several the first and the last where none is left out between them."""
        seeds = self.seeds
        if len(seeds) < 2:
            return seeds[0] if seeds else None
        if seeds[-1] - seeds[0] == len(seeds) - 1:
            return f"{seeds[0]}–{seeds[-1]}"
        return "+".join(map(str, seeds)) if len(seeds) <= _LISTED_SEEDS else f"{len(seeds)} seeds"

    def setting(self, name: str) -> Any:
        """A setting of the training; None where nothing was trained."""
        return None if self.is_made_of_runs else self.settings.get(name)

    def score(self, metric: str | None = None, split: str | None = None) -> dict[str, Any] | None:
        """A score by metric id; the headline on the reported split unless told otherwise."""
        if not self.scores:
            return None
        listed = self.scores["scores"].get(split or self.scores["reported_on"], [])
        return next((s for s in listed if s["id"] == (metric or self.scores["headline"])), None)


def find_runs(folder: Path) -> list[Record]:
    """Every run below a folder, by name."""
    if not folder.is_dir():
        raise DanseoError(f"{folder} is not a folder of runs; `danseo train` makes them in runs/")
    paths = [path.parent for path in folder.rglob("config.toml")]
    return [read_record(Run(path)) for path in sorted(paths, key=lambda path: in_order(str(path)))]


def in_order(name: str) -> list[str | int]:
    """A key that puts s10 behind s2: numbers count as numbers."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", name))]


def read_record(run: Run) -> Record:
    """What a run directory says; an unreadable one is a damaged run, not an error."""
    try:
        settings = flat(run.config)
        scores = run.read_json("scores.json") if run.is_finished else {}
        environment = run.path / "environment.json"
        surroundings = run.read_json("environment.json") if environment.is_file() else {}
        failed = run.path / "error.txt"
        note = read_text(failed).strip() if failed.is_file() and not scores else ""
    except DanseoError as error:
        return Record(run, "damaged", {}, {}, {}, str(error))
    if not (_is_scores(scores) and isinstance(surroundings, dict)):
        return Record(run, "damaged", settings, {}, {}, "scores.json or environment.json is not what danseo writes")
    status = "done" if scores else "pruned" if note.startswith("pruned") else "failed" if note else "unfinished"
    return Record(run, status, settings, scores, surroundings, note)


def _is_scores(document: Any) -> bool:
    """Whether this is what finish() writes, or nothing yet."""
    if document == {}:
        return True
    facts = {"headline", "selected_on", "reported_on"}
    return isinstance(document, dict) and facts <= document.keys() and isinstance(document.get("scores"), dict)


def run_table(records: Sequence[Record], metric: str | None = None, *, with_paths: bool = False) -> Table:
    """One row per run; with its directory where the table is for programs."""
    rows: list[tuple[object, ...]] = []
    for record in records:
        found = record.score(metric)
        ends = found["interval"] if found else None
        rows.append(
            (
                record.task,
                record.model,
                record.seed,
                record.setting("train.learning_rate"),
                record.setting("train.epochs"),
                found["id"] if found else None,
                found["value"] if found else None,
                f"{ends[0]:.2f} – {ends[1]:.2f}" if ends else None,
                protocol(record),
                record.surroundings.get("seconds"),
                record.status + (f": {record.note}" if record.note else ""),
            )
        )
    columns = (
        "task",
        "model",
        "seed",
        "rate",
        "epochs",
        "metric",
        "score",
        "95 % interval",
        "scored on",
        "seconds",
        "status",
    )
    if not with_paths:
        return Table("runs", columns, rows)
    named = [(str(record.run.path), *row) for record, row in zip(records, rows, strict=True)]
    return Table("runs", ("run", *columns), named)


def protocol(record: Record) -> str | None:
    """Which examples the number is from, and a mark where the same ones picked the checkpoint."""
    if not record.scores:
        return None
    if record.scores["selected_on"] == "dev":
        return "dev (SELECTED ON THE REPORTED SET)"
    return f"{record.scores['reported_on']} half"


def group_table(records: Sequence[Record], keys: Sequence[str], metric: str | None = None) -> Table:
    """Mean, sample standard deviation and a 95 % t-interval over the finished runs of each group."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record.status == "done":
            groups.setdefault(tuple(_key(record, key) for key in keys), []).append(record)
    rows: list[tuple[object, ...]] = []
    for group, members in groups.items():
        for id_, split, values in _scored(members, metric):
            low, high = t_interval(values)
            spread = stdev(values) if len(values) > 1 else None
            shown = f"{low:.2f} – {high:.2f}" if low is not None else None
            rows.append((*group, id_, mean(values), spread, len(values), shown, split))
    columns = (*keys, "metric", "mean", "std", "n", "95 % t-interval", "scored on")
    return Table(f"runs by {', '.join(keys)}", columns, rows, "std is the sample standard deviation (n - 1)")


def _key(record: Record, key: str) -> Any:
    """A setting by its full or short name."""
    if key == "model":
        return record.model
    matches = [name for name in record.settings if key in (name, name.split(".")[-1])]
    if not matches:
        raise DanseoError(f"--group {key}: no such setting; try model, task, seed or train.learning_rate")
    return record.settings[matches[0]]


def _scored(members: Sequence[Record], metric: str | None) -> list[tuple[str, str, list[float]]]:
    """The values of a metric, apart by what they were scored on."""
    found: dict[tuple[str, str], list[float]] = {}
    for member in members:
        score = member.score(metric)
        if score and score["value"] is not None:
            found.setdefault((score["id"], protocol(member) or ""), []).append(score["value"])
    return [(id_, split, values) for (id_, split), values in found.items()]


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float | None, float | None]:
    """The mean's interval by Student's t; none for fewer than two values."""
    if len(values) < 2:
        return None, None
    from scipy.stats import t

    half = float(t.ppf((1 + level) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def formatted(table: Table, style: str) -> str:
    """The table as markdown, csv, json or latex."""
    if style == "json":
        return json.dumps(as_rows(table), ensure_ascii=False, indent=2)
    if style == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([table.columns, *table.rows])
        return buffer.getvalue().rstrip("\n")
    return (to_latex if style == "latex" else to_markdown)(table).rstrip("\n")


def as_rows(table: Table) -> list[dict[str, Any]]:
    """Every row by column name; where numbers are marked as best, their columns are named too."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.as_dict()["rows"]]
    for kind, key in ((Best, "best"), (Second, "best of its size")):
        if any(isinstance(value, kind) for row in table.rows for value in row):
            for shown, row in zip(rows, table.rows, strict=True):
                columns = zip(table.columns, row, strict=True)
                shown[key] = [name for name, value in columns if isinstance(value, kind)]
    return rows
