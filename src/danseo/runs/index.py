"""All runs of a folder as records."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from danseo.config.base import flatten_config
from danseo.config.run import BASELINES
from danseo.data.find import find_dev_hash
from danseo.errors import DanseoError
from danseo.language import Message, _, join
from danseo.runs.naming import shorten_model, split_prefix
from danseo.runs.schemas import ENVIRONMENT, SCORES, matches_schema
from danseo.runs.store import OWN_TASK, Run

_LISTED_SEEDS = 4


@dataclass(frozen=True)
class Record:
    """One run with its settings, scores and environment."""

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
    def status_line(self) -> str:
        """The status with its reason."""
        note = self.note.removeprefix(self.status).strip()
        separator = " " if note != self.note.strip() else ": "
        return join([Message(self.status), *([note] if note else [])], separator)

    @property
    def status_with_note(self) -> str:
        """The status in a table, with the whole note."""
        return join([Message(self.status), *([self.note] if self.note else [])], ": ")

    @property
    def failed_percent(self) -> float | None:
        """Percent of dev examples without a valid answer; None for models that always give one."""
        return cast("float | None", self.scores.get("failed_percent"))

    @property
    def model(self) -> str:
        """The name of the model; that of the run if its settings cannot be read."""
        known = self.surroundings.get("model")
        if isinstance(known, dict) and known.get("name"):
            return str(known["name"])
        return self.model_path if self.is_made_of_runs else shorten_model(self.model_path)

    @property
    def model_path(self) -> str:
        """The model in the settings: a folder, a Hub id or a name."""
        return str(self.settings.get("model", self.run.path.name))

    @property
    def identity(self) -> str:
        """The hash of the model; its folder or Hub id if the hash is unknown.

        The same weights as an encoder and as a language model (llm:) are two models.
        """
        sort, _ = split_prefix(self.model_path)
        return f"{sort}:{self.model_hash}" if sort and self.model_hash else self.model_hash or self.model_location

    @property
    def model_location(self) -> str:
        """The absolute folder of the model if it exists, else the model in the settings."""
        folder = Path(self.model_path)
        return str(folder.resolve()) if "/" in self.model_path and folder.is_dir() else self.model_path

    @property
    def model_hash(self) -> str | None:
        """The hash of the model, if the run recorded it."""
        known = self.surroundings.get("model")
        return known.get("sha256") if isinstance(known, dict) else None

    @property
    def is_baseline(self) -> bool:
        """Whether the run is a baseline."""
        return self.surroundings.get("family") == "baseline" or self.settings.get("model") in BASELINES

    @property
    def is_under_own_name(self) -> bool:
        """Whether the directory has a name that danseo gives; a copy often has another."""
        return bool(re.fullmatch(r".+--s[^-]*--[0-9a-f]{8}", self.run.path.name))

    @property
    def is_made_of_runs(self) -> bool:
        """Whether this is an ensemble or a soup, which has no training settings."""
        return self.settings.get("run_type") in ("ensemble", "soup")

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The members of an ensemble or soup."""
        return list(self.scores.get("ensemble", {}).get("members", []))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of a run, or those of the members."""
        found = sorted({member["seed"] for member in self.parts if member.get("seed") is not None})
        return tuple(found) or ((int(self.settings["seed"]),) if "seed" in self.settings else ())

    @property
    def seed(self) -> int | str | None:
        """The seed, or several seeds as text."""
        seeds = self.seeds
        if len(seeds) < 2:
            return seeds[0] if seeds else None
        if seeds[-1] - seeds[0] == len(seeds) - 1:
            return f"{seeds[0]}–{seeds[-1]}"
        return "+".join(map(str, seeds)) if len(seeds) <= _LISTED_SEEDS else f"{len(seeds)} seeds"

    @property
    def dev_sha256(self) -> str:
        """The hash of the dev file; empty if the run did not record it."""
        return str(find_dev_hash(self.surroundings.get("data", {})) or "")

    def score(self, metric: str | None = None, split: str | None = None) -> dict[str, Any] | None:
        """Return a score by metric id; by default the headline on the reported split."""
        if not self.scores:
            return None
        listed = self.scores["scores"].get(split or self.scores["reported_on"], [])
        return next((s for s in listed if s["id"] == (metric or self.scores["headline"])), None)

    def value(self, metric: str | None = None) -> float | None:
        """Return the value of a score; None if it is undefined."""
        score = self.score(metric)
        return score["value"] if score else None

    def rank_value(self, metric: str | None = None) -> float:
        """Return the value of a score for sorting; minus infinity if it is undefined."""
        value = self.value(metric)
        return float("-inf") if value is None else value


def find_runs(folder: Path) -> list[Record]:
    """Return every run below a folder, by name."""
    if not folder.is_dir():
        raise DanseoError(
            _("{folder} is not a folder of runs; `danseo train` makes them in runs/").format(folder=folder)
        )
    paths = [path.parent for path in folder.rglob("config.tom[l]")]  # a pattern also finds links that lead nowhere
    return [read_record(Run(path)) for path in sorted(paths, key=lambda path: natural_sort_key(str(path)))]


def natural_sort_key(name: str) -> list[str | int]:
    """Return a sort key that puts s10 after s2."""
    return [int(part) if position % 2 else part for position, part in enumerate(re.split(r"([0-9]+)", name))]


def read_record(run: Run) -> Record:
    """Return the record of a run directory; an unreadable one is a corrupted run, not an error."""
    try:
        settings, is_finished = flatten_config(run.config), run.is_finished
        scores = run.read_json("scores.json") if is_finished else {}
        environment = run.path / "environment.json"
        surroundings = run.read_json("environment.json") if environment.is_file() else {}
        status, note = run.status, run.reason
        if (run.path / OWN_TASK).is_file():
            _ = run.task  # its pages need it
    except DanseoError as error:
        return Record(run, "corrupted", {}, {}, {}, str(error))
    odd = "scores.json" if is_finished and not matches_schema(scores, SCORES) else None
    odd = odd or ("environment.json" if not matches_schema(surroundings, ENVIRONMENT) else None)
    if odd:
        return Record(run, "corrupted", settings, {}, {}, f"{odd} is not what danseo writes")
    return Record(run, status, settings, scores, surroundings, note)
