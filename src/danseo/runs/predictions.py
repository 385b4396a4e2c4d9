"""Predictions of finished runs and prediction files on the same examples, and the scores of a run."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from danseo.data.dev_split import split_indices
from danseo.data.find import data_root, load, require_file, split_sha256
from danseo.data.prediction_file import read_predictions
from danseo.errors import DanseoError, PredictionError
from danseo.files import content_sha256, quote, read_bytes
from danseo.language import Message, _
from danseo.records import Prediction
from danseo.runs.index import Record, read_record
from danseo.runs.store import Run
from danseo.scoring.score import compute_headline
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import Arrays, read_npz


@dataclass(frozen=True)
class MemberPredictions:
    """The predictions of one run or file and their probabilities, in the order of the examples."""

    name: str
    path: Path
    predictions: list[Prediction]
    rows: list[Any] | None
    """What `TaskType.unpack_arrays` returns: the scores that ensembles combine."""
    digest: str
    """A hash of the predictions and probabilities."""
    record: Record | None = None
    select_score: float = float("nan")
    token_starts: list[Any] | None = None
    """For tagging: for each character whether a token starts there; None if unknown."""

    @property
    def model(self) -> str:
        return self.record.model if self.record else self.path.stem

    @property
    def model_folder(self) -> Path:
        return self.path / "model"

    @property
    def seed(self) -> int | None:
        return int(self.record.settings["seed"]) if self.record else None

    @property
    def selected_on(self) -> str:
        return str(self.record.scores["selected_on"]) if self.record else "select"

    def select(self, positions: Sequence[int]) -> "MemberPredictions":
        """Return the member with some of its examples."""
        rows, starts = (
            [values[position] for position in positions] if values is not None else None
            for values in (self.rows, self.token_starts)
        )
        predictions = [self.predictions[position] for position in positions]
        return replace(self, predictions=predictions, rows=rows, token_starts=starts)


@dataclass(frozen=True)
class MemberSet:
    """All members with their task and examples."""

    task: Task
    examples: list[Any]
    gold: Path
    hashes: dict[str, str]
    members: list[MemberPredictions]

    def __len__(self) -> int:
        return len(self.members)

    def select_split(self, name: str) -> "MemberSet":
        """Return the members on one split of dev."""
        positions = split_indices(self.task, self.examples, name)
        return replace(
            self,
            examples=[self.examples[position] for position in positions],
            members=[member.select(positions) for member in self.members],
        )

    def sort_by_name(self) -> tuple["MemberSet", list[int]]:
        """Return the members by name, and the position that each had before."""
        order = sorted(
            range(len(self)), key=lambda position: (self.members[position].name, self.members[position].digest)
        )
        return replace(self, members=[self.members[position] for position in order]), order

    @property
    def select_positions(self) -> list[int]:
        """The positions of the examples of the select split."""
        return split_indices(self.task, self.examples, "select")

    @property
    def select_on(self) -> str:
        """dev if the checkpoint of a member was selected on the whole dev set, else select."""
        return "dev" if any(member.selected_on == "dev" for member in self.members) else "select"


def read_finished_record(path: Path) -> Record:
    """Return the record of a finished run; refuse any other."""
    if not (path / "config.toml").is_file():
        raise DanseoError(
            _("{path} is not a run directory (no config.toml); `danseo runs` lists them").format(path=path)
        )
    record = read_record(Run(path))
    if record.status != "done":
        why = f" ({record.note})" if record.note else ""
        raise DanseoError(
            _("{path} is {status}{why}: all members must be finished; finish it or leave it out").format(
                path=path, status=Message(record.status), why=why
            )
        )
    return record


def open_members(paths: Sequence[Path], data_dir: str | None) -> MemberSet:
    """Read and check all members."""
    if len(paths) < 2:
        raise DanseoError(_("name at least two runs"))
    records = {path: read_finished_record(path) for path in paths if not path.is_file()}
    if not records:
        raise DanseoError("name at least one run directory; of prediction files alone the task is not known")
    _require_same("task", {path: record.task for path, record in records.items()})
    task = next(iter(records.values())).run.task
    sha = _require_same("dev file", {path: get_dev_hash(record) for path, record in records.items()})
    root = data_root(data_dir)
    gold = require_file(task, "dev", root)
    if split_sha256(task, "dev", root) != sha:
        raise DanseoError(
            _("{gold} is not the dev file that the runs were scored on; name its folder with --data").format(gold=gold)
        )
    examples = load(task, "dev", root)
    listed = [_read_member(path, records.get(path), task, examples) for path in paths]
    hashes = {name: sha for record in records.values() for name, sha in record.surroundings["data"].items()}
    return _add_select_scores(MemberSet(task, examples, gold, hashes, listed))


def _require_same(what: str, found: dict[Path, str]) -> str:
    """Return the value that all have; refuse different ones."""
    (first, value), *others = found.items()
    for path, other in others:
        if other != value:
            shown = f" ({quote(value, 30)} and {quote(other, 30)})" if len(value) < 20 else ""
            raise DanseoError(f"{first.name} and {path.name} have a different {what}{shown}; combine runs of the same")
    return value


def get_dev_hash(record: Record) -> str:
    """Return the hash of the dev file of a run."""
    if not record.dev_sha256:
        raise DanseoError(f"{record.run.path}/environment.json has no hash of the dev file; train again")
    return record.dev_sha256


def _read_member(path: Path, record: Record | None, task: Task, examples: Sequence[Any]) -> MemberPredictions:
    """Read the predictions of a run or a file, and check them against the examples."""
    answers = record.run.predictions_path("dev") if record else path
    predictions = read_predictions(answers, task, examples, skip=task.needs_probabilities)
    side = answers.with_suffix(".npz")
    arrays = read_npz(side) if record else None
    digest = hash_predictions(answers, with_arrays=bool(arrays))
    rows = _unpack_rows(arrays, side, task, examples) if arrays else task.type.read_inline_rows(task, predictions)
    starts = task.type.unpack_token_starts(arrays) if arrays else None
    return MemberPredictions(path.resolve().name, path, predictions, rows, digest, record, token_starts=starts)


def hash_predictions(answers: Path, *, with_arrays: bool = True) -> str:
    """Return a hash of a prediction file and of the arrays next to it."""
    side = answers.with_suffix(".npz")
    arrays = read_bytes(side) if with_arrays and side.is_file() else b""
    return hashlib.sha256(content_sha256(answers).encode() + arrays).hexdigest()


def _unpack_rows(arrays: Arrays, path: Path, task: Task, examples: Sequence[Any]) -> list[Any]:
    """Return the stored scores, one row per example; refuse those of other examples."""
    try:
        rows = task.type.unpack_arrays(task, arrays)
    except (KeyError, ValueError, IndexError, UnicodeDecodeError):
        raise PredictionError(f"{path} does not fit {task.name}; train the run again") from None
    if len(rows) != len(examples) or not all(map(task.type.fits_example, rows, examples)):
        raise PredictionError(f"{path} does not fit the dev examples; train the run again")
    return rows


def open_member(record: Record, task: Task, examples: Sequence[Any]) -> MemberPredictions:
    """Read the predictions of a finished run, and check them against the examples."""
    return _read_member(record.run.path, record, task, examples)


def _add_select_scores(members: MemberSet) -> MemberSet:
    """Return the members with their headline score on the select split."""
    select = members.select_split("select")
    scores = [compute_headline(members.task, select.examples, member.predictions) for member in select.members]
    listed = [replace(m, select_score=score) for m, score in zip(members.members, scores, strict=True)]
    return replace(members, members=listed)
