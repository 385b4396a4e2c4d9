"""The members of an ensemble: finished runs, or prediction files, that answer the same examples."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from danseo.data.find import data_root, load, require_file, split_sha256
from danseo.data.halves import in_half
from danseo.errors import DanseoError, PredictionError
from danseo.files import content_sha256, read_bytes
from danseo.predictions.evidence import Arrays, read_arrays, span_rows, tag_rows, tree_rows
from danseo.predictions.file import read_predictions
from danseo.records import Prediction
from danseo.runs.directory import Run
from danseo.runs.index import Record, read_record
from danseo.scoring.score import measure
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Member:
    """The answers of one run or file, and what it kept beside them, in the order of the examples."""

    name: str
    path: Path
    predictions: list[Prediction]
    kept: list[Any] | None
    digest: str
    """Of everything that counts for the ensemble."""
    record: Record | None = None
    select_score: float = float("nan")

    @property
    def model(self) -> str:
        return self.record.model if self.record else self.path.stem

    @property
    def seed(self) -> int | None:
        return int(self.record.settings["seed"]) if self.record else None

    @property
    def selected_on(self) -> str:
        return str(self.record.scores["selected_on"]) if self.record else "select"

    def chosen(self, positions: Sequence[int]) -> "Member":
        """The same member with some of its examples."""
        kept = [self.kept[position] for position in positions] if self.kept is not None else None
        return replace(self, predictions=[self.predictions[position] for position in positions], kept=kept)


@dataclass(frozen=True)
class Members:
    """All members, with what they have in common."""

    task: Task
    examples: list[Any]
    gold: Path
    hashes: dict[str, str]
    listed: list[Member]

    @property
    def rules(self) -> list[Literal[1, 2]]:
        """The rules by which the members' dev was parted."""
        return sorted({member.record.run.config.train.halves for member in self.listed if member.record})

    def require_same_halves(self) -> None:
        """Refuse members of which one was picked on examples that another one reports."""
        if len(self.rules) > 1:
            raise DanseoError(
                "these runs part dev into different halves (train.halves 1 and 2); train the older ones anew"
            )

    def __len__(self) -> int:
        return len(self.listed)

    def half(self, name: str) -> "Members":
        """The members on one half of dev."""
        parted = [set(in_half(replace(self.task, halves=rule), self.examples, name)) for rule in self.rules]
        positions = sorted(set.intersection(*parted))  # of runs that parted dev differently, what is so for all
        return replace(
            self,
            examples=[self.examples[position] for position in positions],
            listed=[member.chosen(positions) for member in self.listed],
        )

    def ordered(self) -> tuple["Members", list[int]]:
        """The members by name, so that the order they were given in changes nothing, and where each was before."""
        order = sorted(
            range(len(self)), key=lambda position: (self.listed[position].name, self.listed[position].digest)
        )
        return replace(self, listed=[self.listed[position] for position in order]), order

    @property
    def select_on(self) -> str:
        """dev as soon as one member's checkpoint was picked on all of it."""
        return "dev" if any(member.selected_on == "dev" for member in self.listed) else "select"


def finished_record(path: Path) -> Record:
    """The record of a run that is whole; anything else is one line that says why not."""
    if not (path / "config.toml").is_file():
        raise DanseoError(f"{path} is not a run directory (no config.toml); `danseo runs` lists them")
    record = read_record(Run(path))
    if record.status != "done":
        why = f" ({record.note})" if record.note else ""
        raise DanseoError(f"{path} is {record.status}{why}: all members have to be whole; finish it or leave it out")
    return record


def open_members(paths: Sequence[Path], data_dir: str | None) -> Members:
    """Read and check all members."""
    if len(paths) < 2:
        raise DanseoError("name at least two runs")
    records = {path: finished_record(path) for path in paths if not path.is_file()}
    if not records:
        raise DanseoError("name at least one run directory; of prediction files alone the task is not known")
    _same("task", {path: record.task for path, record in records.items()})
    task = next(iter(records.values())).run.task
    sha = _same("dev file", {path: dev_hash(record) for path, record in records.items()})
    root = data_root(data_dir)
    gold = require_file(task, "dev", root)
    if split_sha256(task, "dev", root) != sha:
        raise DanseoError(f"{gold} is not the dev file that the runs were scored on; name its folder with --data")
    examples = load(task, "dev", root)
    listed = [_member(path, records.get(path), task, examples) for path in paths]
    hashes = {name: sha for record in records.values() for name, sha in record.surroundings["data"].items()}
    return _with_scores(Members(task, examples, gold, hashes, listed))


def _same(what: str, found: dict[Path, str]) -> str:
    """The one value that all have."""
    (first, value), *others = found.items()
    for path, other in others:
        if other != value:
            shown = f" ({value} and {other})" if len(value) < 20 else ""
            raise DanseoError(f"{first.name} and {path.name} have a different {what}{shown}; combine runs of the same")
    return value


def dev_hash(record: Record) -> str:
    """The hash of the dev file that a run answered."""
    hashes = record.surroundings.get("data", {})
    found = next((sha for name, sha in hashes.items() if "dev" in name or "validation" in name), None)
    if found is None:
        raise DanseoError(f"{record.run.path}/environment.json does not say which dev file was answered; train anew")
    return str(found)


def _member(path: Path, record: Record | None, task: Task, examples: Sequence[Any]) -> Member:
    """The answers of a run or a prediction file, checked against the examples."""
    answers = record.run.predictions_path("dev") if record else path
    predictions = read_predictions(answers, task, examples, skip=task.needs_probabilities)
    side = answers.with_suffix(".npz")
    arrays = read_arrays(side) if record else None
    digest = hashlib.sha256(content_sha256(answers).encode() + (read_bytes(side) if arrays else b"")).hexdigest()
    kept = _kept(arrays, side, task, examples) if arrays else _inline(predictions, task)
    return Member(path.resolve().name, path, predictions, kept, digest, record)


def _kept(arrays: Arrays, path: Path, task: Task, examples: Sequence[Any]) -> list[Any]:
    """What the run kept per example; it has to be about these examples."""
    try:
        if task.kind == "tag":
            rows: list[Any] = tag_rows(arrays, task.labels)
            sizes, due = [len(row) for row in rows], [len(example.text) for example in examples]
        elif task.kind == "parse":
            rows = tree_rows(arrays, task.labels)
            sizes, due = [len(arcs) for arcs, _ in rows], [len(example.words) for example in examples]
        else:
            rows = list(span_rows(arrays))
            sizes, due = [min(1, len(row)) for row in rows], [1] * len(examples)
    except (KeyError, ValueError, IndexError, UnicodeDecodeError):
        raise PredictionError(f"{path} does not hold what {task.name} runs keep; train the run anew") from None
    if sizes != due:
        raise PredictionError(f"{path} does not fit the dev examples; train the run anew")
    return rows


def _inline(predictions: Sequence[Prediction], task: Task) -> list[Any] | None:
    """Tag probabilities that stand in the prediction file itself."""
    if task.kind != "tag" or any(prediction.probabilities is None for prediction in predictions):
        return None
    try:
        return [
            np.array([[character.get(label, 0.0) for label in task.labels] for character in prediction.probabilities])  # type: ignore[union-attr]
            for prediction in predictions
        ]
    except (AttributeError, TypeError):
        return None


def open_run(record: Record, task: Task, examples: Sequence[Any]) -> Member:
    """The answers of one finished run, checked against the examples."""
    return _member(record.run.path, record, task, examples)


def _with_scores(members: Members) -> Members:
    """The members with their headline on the select half, which weighs them and breaks ties."""
    half = members.half("select")
    scores = [headline(members.task, half.examples, member.predictions) for member in half.listed]
    listed = [replace(m, select_score=score) for m, score in zip(members.listed, scores, strict=True)]
    return replace(members, listed=listed)


def headline(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> float:
    """The task's first metric; NaN where it is undefined or there are no examples."""
    return measure(task, examples, predictions)[task.headline].value() if examples else float("nan")
