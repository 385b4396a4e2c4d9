"""danseo reproduce: train the official recipes as an ordinary sweep, and compare the scores with published ones."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from danseo.config.base import flatten_config
from danseo.data.find import check_files
from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError, suggest
from danseo.files import quote
from danseo.models.registry import get_family
from danseo.runs.index import Record
from danseo.sweeps.mining import short_name
from danseo.sweeps.preparation import SweepOptions
from danseo.sweeps.sweep import run_sweep
from danseo.sweeps.sweep_file import Sweep
from danseo.tables.published import PublishedScore, find_model_scores, read_published
from danseo.tasks import TASKS, get_task

OFFICIAL_SEED = 42
_OFFICIAL_VERSIONS = "torch 1.7.0, transformers 3.5.1, pytorch-lightning 1.1.0"
_INCIDENTAL = ("task", "model", "seed", "recipe", "trust_remote_code")


@dataclass(frozen=True)
class ScoreComparison:
    """A score on dev next to the published one and the range of reruns."""

    task: str
    metric: str
    value: float
    """The mean over seeds."""
    interval: tuple[float, float] | None
    """The 95 % intervals of all seeds together."""
    seeds: tuple[int, ...]
    published: float | None
    reruns: tuple[float, float] | None

    @property
    def compared_with(self) -> str | None:
        return "reruns" if self.reruns else "published score" if self.published is not None else None

    @property
    def verdict(self) -> str | None:
        """Inside, above or below the range of reruns.

        Without reruns: whether the 95 % interval contains the published score, or is above or below it.
        """
        if self.reruns:
            low, high = self.reruns
            return "below" if round(self.value, 2) < low else "above" if round(self.value, 2) > high else "inside"
        if self.published is None:
            return None
        low, high = self.interval or (self.value, self.value)
        return "below" if round(high, 2) < self.published else "above" if round(low, 2) > self.published else "inside"

    def as_dict(self) -> dict[str, Any]:
        difference = None if self.published is None else round(self.value - self.published, 4)
        found = {"difference": difference, "verdict": self.verdict, "compared_with": self.compared_with}
        return asdict(self) | found


@dataclass(frozen=True)
class Deviation:
    """What differs from the published scores."""

    what: str
    here: str
    there: str


@dataclass(frozen=True)
class Reproduction:
    """The runs of the official recipes, and the published scores of the same model."""

    sweep: Sweep
    options: SweepOptions
    model: str
    published_model: str
    """The model whose published scores are used; empty if there are none."""
    published: Sequence[PublishedScore]
    records: list[Record]
    failed_runs: list[str]

    @property
    def done(self) -> list[Record]:
        return [record for record in self.records if record.status == "done"]

    @cached_property
    def comparisons(self) -> list[ScoreComparison]:
        """The official metrics of every finished task."""
        tasks = [get_task(name) for name in dict.fromkeys(record.task for record in self.done)]
        compared = [self._compare(task.name, metric) for task in tasks for metric in task.columns.values()]
        return [each for each in compared if each]

    def _compare(self, task: str, metric: str) -> ScoreComparison | None:
        records = [record for record in self.done if record.task == task]
        found = [(r, score) for r in records if (score := r.score(metric, "dev")) and score["value"] is not None]
        if not found:
            return None
        ends = [end for _, score in found for end in score["interval"] or ()]
        same = [each for each in self.published if (each.metric, each.split) == (metric, "dev")]
        reruns = [each.value for each in same if each.reported_by == "rerun"]
        return ScoreComparison(
            task,
            metric,
            mean(score["value"] for _, score in found),
            (min(ends), max(ends)) if ends else None,
            tuple(record.settings["seed"] for record, _ in found),
            next((each.value for each in same if each.reported_by == "authors"), None),
            (min(reruns), max(reruns)) if len(reruns) > 1 else None,
        )

    @cached_property
    def differences(self) -> list[Deviation]:
        """What differs: model, data, settings, seeds and versions."""
        is_same = self.model.split("@")[0].lower() in {each.model_id.lower() for each in self.published}
        found = [] if is_same else [Deviation("model", self.model, self.published_model or "none published")]
        return [
            *found,
            *self._compare_data(),
            *self._compare_settings(),
            *self._compare_seeds(),
            self._compare_versions(),
        ]

    def _compare_data(self) -> list[Deviation]:
        tasks = [get_task(name) for name in dict.fromkeys(record.task for record in self.records)]
        reports = [each for each in check_files(self.options.root, tasks) if each.part in ("train", "dev")]
        odd = [each for each in reports if each.verdict != "official" or "Hub" in each.note]
        return [Deviation("data", f"{each.task} {each.part}: {each.note}", "KLUE v1.1") for each in odd]

    def _compare_settings(self) -> list[Deviation]:
        """Compare the settings of the runs with those of the recipe."""
        found = []
        for record in self.records:
            recipe = flatten_config(self.sweep.config({"task": record.task, "model": record.model_path}))
            for name, value in recipe.items():
                if name not in _INCIDENTAL and record.settings.get(name, value) != value:
                    found.append(Deviation("settings", f"{record.task}: {name} = {record.settings[name]}", str(value)))
        return list(dict.fromkeys(found))

    def _compare_seeds(self) -> list[Deviation]:
        seeds = sorted({seed for record in self.records for seed in record.seeds})
        if seeds == [OFFICIAL_SEED]:
            return []
        return [Deviation("seeds", ", ".join(map(str, seeds)), str(OFFICIAL_SEED))]

    def _compare_versions(self) -> Deviation:
        here = [_describe_versions(record) for record in self.done]
        reruns = [each.note.split(";")[0] for each in self.published if each.reported_by == "rerun"]
        there = f"KLUE-baseline: {_OFFICIAL_VERSIONS}"
        there += f"; reruns: {min(reruns)} to {max(reruns)}" if reruns else ""
        return Deviation("versions", "; ".join(dict.fromkeys(here)) or "no finished run", there)

    @property
    def is_comparable(self) -> bool:
        """Whether data and settings are those of the published scores; the user answers for the model of --as."""
        return bool(self.published) and not any(each.what in ("data", "settings") for each in self.differences)

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = [
            (
                TASKS[each.task].short,
                each.metric,
                each.value,
                format_interval(each.interval),
                each.published,
                None if each.published is None else f"{each.value - each.published:+.2f}",
                format_interval(each.reruns),
                each.verdict,
            )
            for each in self.comparisons
        ]
        columns = ("task", "metric", "score", "95 % interval", "published", "difference", "reruns", "verdict")
        title = f"{self.model}: official recipes on dev (SELECTED ON THE REPORTED SET, as published)"
        table = Table(title, columns, rows, self._write_note(), keys=2).without_empty()
        failures = [(record.task, record.status_line) for record in self.records if record.status != "done"]
        differences: list[tuple[object, ...]] = [(each.what, each.here, each.there) for each in self.differences]
        tables = [table, Table("what differs", ("what", "here", "published"), differences)]
        return [*tables, *([Table("not finished", ("task", "status"), failures)] if failures else [])]

    def _write_note(self) -> str:
        if not self.published:
            return describe_no_scores(self.model)
        has_reruns = any(each.reruns for each in self.comparisons)
        how = "against the range of reruns of the official code; without one, " if has_reruns else ""
        verdict = f"verdict: {how}inside if the 95 % interval contains the published score"
        warning = "WARNING: data or settings differ, so these scores do not reproduce the published ones"
        return verdict if self.is_comparable else f"{warning}\n{verdict}"

    def as_dict(self) -> dict[str, Any]:
        runs = [
            {"run": str(record.run.path), "task": record.task, "seed": record.seed, "status": record.status}
            for record in self.records
        ]
        return {
            "model": self.model,
            "published_model": self.published_model or None,
            "comparable": self.is_comparable,
            "scores": [each.as_dict() for each in self.comparisons],
            "differences": [asdict(each) for each in self.differences],
            "runs": runs,
            "failed": self.failed_runs,
        }


def _describe_versions(record: Record) -> str:
    facts = record.surroundings
    versions = {"danseo": facts.get("danseo"), **(facts.get("versions") or {})}
    known = [f"{name} {versions[name]}" for name in ("danseo", "torch", "transformers") if versions.get(name)]
    return ", ".join([*known, str(facts.get("device"))])


def plan_reproduction(model: str, tasks: Sequence[str], seeds: Sequence[int]) -> Sweep:
    """Return the sweep of the official recipes, selected and reported on dev as the official code does."""
    names = list(dict.fromkeys(get_task(name).name for name in tasks)) or list(TASKS)
    if other := next((name for name in names if name not in TASKS), None):
        raise DanseoError(f"{other} has no official recipe; choose tasks of KLUE: {', '.join(TASKS)}")
    if get_family(model).name != "encoder":
        raise DanseoError(f"{model} has no official recipe: KLUE's recipes are for encoders; use `danseo train`")
    base = {"model": model, "recipe": "official", "train.select_on": "dev"}
    return Sweep(Path(f"reproduce-{short_name(model)}"), base, {"task": names, "seed": list(dict.fromkeys(seeds))})


def find_published_model(model: str, chosen: str) -> list[PublishedScore]:
    """Return the published scores of the chosen model, or of the model itself; a chosen one must have some."""
    found = find_model_scores(chosen or model)
    if chosen and not found:
        hint = suggest(chosen, {name for score in read_published() for name in (score.model, score.model_id) if name})
        raise DanseoError(f"--as {quote(chosen)}: no published scores of this model; {hint}see `danseo published`")
    return found


def describe_no_scores(model: str) -> str:
    return f"no published scores of {model}; --as NAME compares with those of another model"


def reproduce(
    sweep: Sweep, options: SweepOptions, published: Sequence[PublishedScore], published_model: str
) -> Reproduction:
    """Train what is not finished, and compare."""
    outcome = run_sweep(sweep, options)
    order = {name: position for position, name in enumerate(sweep.grid["task"])}
    records = sorted(outcome.records, key=lambda record: (order.get(record.task, len(order)), record.seeds))
    name = published_model if published else ""
    return Reproduction(sweep, options, sweep.base["model"], name, published, records, outcome.failed_runs)
