"""All runs of a folder as records: a view that can be made anew at any time."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from danseo.config import FLOORS
from danseo.errors import DanseoError
from danseo.runs.directory import Run, fingerprint
from danseo.runs.naming import model_name, prefixed
from danseo.runs.shapes import ENVIRONMENT, SCORES, has_shape
from danseo.settings.declaring import flat

_LISTED_SEEDS = 4


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
    def standing(self) -> str:
        """The status, and why it is so where there is more to say."""
        note = self.note.removeprefix(self.status).strip()
        return f"{self.status}{' ' if note != self.note.strip() else ': '}{note}" if note else self.status

    @property
    def failed_percent(self) -> float | None:
        """The share of a language model's replies that failed; None for models that answer otherwise."""
        replies = self.scores.get("replies")
        return replies.get("failed_percent") if isinstance(replies, dict) else None

    @property
    def model(self) -> str:
        """The model's name; the run's where its settings cannot be read."""
        known = self.surroundings.get("model")
        if isinstance(known, dict) and known.get("name"):
            return str(known["name"])
        return self.model_path if self.is_made_of_runs else model_name(self.model_path)

    @property
    def model_path(self) -> str:
        """The model as it was given: a folder, a Hub id, a word."""
        return str(self.settings.get("model", self.run.path.name))

    @property
    def identity(self) -> str:
        """What the model's folder held, as a hash; where that is not known, which folder or Hub id it was.

        The same weights with a head and as a model that writes (llm:) are two models.
        """
        sort, _ = prefixed(self.model_path)
        return f"{sort}:{self.model_hash}" if sort and self.model_hash else self.model_hash or self.model_location

    @property
    def model_location(self) -> str:
        """Where the model is: the folder in full where it is still there, else as it was given."""
        folder = Path(self.model_path)
        return str(folder.resolve()) if "/" in self.model_path and folder.is_dir() else self.model_path

    @property
    def model_hash(self) -> str | None:
        """What the model's folder held, where the run noted it."""
        known = self.surroundings.get("model")
        return known.get("sha256") if isinstance(known, dict) else None

    @property
    def is_floor(self) -> bool:
        """Whether it is there to be beaten; older runs tell it only by the name of their model."""
        return self.surroundings.get("family") == "floor" or self.settings.get("model") in FLOORS

    @property
    def is_under_own_name(self) -> bool:
        """Whether the directory has such a name as danseo gives; a copy often has another."""
        return bool(re.fullmatch(r".+--s[^-]*--[0-9a-f]{8}", self.run.path.name))

    @property
    def is_made_of_runs(self) -> bool:
        """Whether this is an ensemble or a soup: its own training settings then say nothing."""
        return self.settings.get("kind") in ("ensemble", "soup")

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

    @property
    def dev_sha256(self) -> str:
        """The hash of the dev file that was answered; nothing where the run does not say."""
        hashes = self.surroundings.get("data", {})
        return str(next((sha for name, sha in hashes.items() if "dev" in name or "validation" in name), ""))

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
    paths = [path.parent for path in folder.rglob("config.tom[l]")]  # a pattern also finds links that lead nowhere
    return _identified([read_record(Run(path)) for path in sorted(paths, key=lambda path: in_order(str(path)))])


def _identified(records: list[Record]) -> list[Record]:
    """The records, those from before runs noted what their model held with what their fingerprint says."""
    known: dict[str, set[str]] = {}
    for record in records:
        if record.model_hash:
            known.setdefault(record.model_path, set()).add(record.model_hash)
    ends = {record.run.path.name[-8:] for record in records if record.is_under_own_name}
    return [_with_hash(record, known.get(record.model_path, set()), ends) for record in records]


def _with_hash(record: Record, hashes: set[str], fingerprints: set[str]) -> Record:
    """The record with the hash that makes its fingerprint one of those there are: its own, or what it is a copy of."""
    data = record.surroundings.get("data")
    if record.model_hash or not data or not hashes:
        return record
    for sha in hashes:
        if fingerprint(record.run.config, {**data, "model": sha}) in fingerprints:
            facts = {"name": record.model, "sha256": sha}
            return replace(record, surroundings={**record.surroundings, "model": facts})
    return record


def in_order(name: str) -> list[str | int]:
    """A key that puts s10 behind s2: numbers count as numbers."""
    return [int(part) if position % 2 else part for position, part in enumerate(re.split(r"([0-9]+)", name))]


def read_record(run: Run) -> Record:
    """What a run directory says; an unreadable one is a damaged run, not an error."""
    try:
        settings = flat(run.config)
        scores = run.read_json("scores.json") if run.is_finished else None
        environment = run.path / "environment.json"
        surroundings = run.read_json("environment.json") if environment.is_file() else {}
        status, note = run.status, run.reason
    except DanseoError as error:
        return Record(run, "damaged", {}, {}, {}, str(error))
    if odd := _odd(scores, surroundings):
        return Record(run, "damaged", settings, {}, {}, f"{odd} is not what danseo writes")
    return Record(run, status, settings, scores or {}, surroundings, note)


def _odd(scores: Any, surroundings: Any) -> str | None:
    """The file that is none of ours, where there is one; before scores.json is written there is nothing."""
    if scores is not None and not has_shape(scores, SCORES):
        return "scores.json"
    return None if has_shape(surroundings, ENVIRONMENT) else "environment.json"


def protocol(record: Record) -> str | None:
    """Which examples the number is from, and a mark where the same ones picked the checkpoint."""
    if not record.scores:
        return None
    if record.scores["selected_on"] == "dev":
        return "dev (SELECTED ON THE REPORTED SET)"
    return f"{record.scores['reported_on']} half"
