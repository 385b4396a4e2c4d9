"""The examples of a run: train with folds and augmentation, dev, the fold that is left out; their weights."""

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.config.run import RunConfig
from danseo.data import find
from danseo.data.augmentation import augment_examples
from danseo.data.dev_split import split_fold
from danseo.errors import DataError
from danseo.files import quote, read_text, write_atomically
from danseo.runs.soft_targets import SoftTargets
from danseo.tasktypes.base import Task

_MAX_NAMED = 5  # labels in a note


@dataclass(frozen=True)
class RunData:
    """The examples of a run."""

    train: Sequence[Any]
    dev: Sequence[Any]
    fold: Sequence[Any] = ()
    """The fold of train that is left out, if the run has folds."""

    @property
    def eval_set(self) -> Sequence[Any]:
        """The examples that fit() evaluates on: the fold that is left out, else dev."""
        return self.fold or self.dev


def load_run_data(config: RunConfig, task: Task, root: Path) -> RunData:
    """Load the examples of a run."""
    train, dev = (find.load(task, split, root) for split in ("train", "dev"))
    check_example_weights(config, train)
    train = train[: config.max_train_samples or None]
    train, fold = split_fold(task, train, config.n_folds, config.fold) if config.n_folds else (train, [])
    train = augment_examples(task, train, config.train.augment, config.seed)
    if config.train.distill_targets:
        train += SoftTargets(Path(config.train.distill_targets)).label_text(task)
    return RunData(train, dev, fold)


def check_example_weights(config: RunConfig, train: Sequence[Any]) -> None:
    """Refuse a file of example weights that names other examples."""
    if config.train.example_weights:
        load_weights(Path(config.train.example_weights), [example.guid for example in train])


def describe_missing_labels(config: RunConfig, task: Task, data: RunData) -> str | None:
    """Return a note on the labels of dev that max_train_samples leaves without examples: files may be sorted."""
    if not config.max_train_samples or not task.type.has_single_label or config.run_type == "prompt":
        return None
    dev_labels = {example.gold for example in data.dev}
    without = dev_labels - {example.gold for example in data.train}
    missing = [label for label in task.labels if label in without]
    if not missing:
        return None
    names = ", ".join(missing[:_MAX_NAMED]) + (", …" if len(missing) > _MAX_NAMED else "")
    count = f"{len(missing)} of {len(dev_labels)} labels in dev"
    return f"max_train_samples = {config.max_train_samples}: {count} have no example there ({names})"


_COLUMNS = ["guid", "weight"]


def read_weights(path: Path) -> dict[str, float]:
    """Return guid -> weight; examples that the file does not name have weight 1."""
    rows = list(csv.reader(read_text(path).splitlines()))
    if not rows or [cell.strip() for cell in rows[0][:2]] != _COLUMNS:
        raise DataError(f"{path}, line 1: should be the header guid,weight; add it")
    weights: dict[str, float] = {}
    for line, row in enumerate(rows[1:], 2):
        if not row:
            continue
        guid, weight = _read_row(row, f"{path}, line {line}")
        if guid in weights:
            raise DataError(f"{path}, line {line}: {quote(guid)} occurs twice; keep one of them")
        weights[guid] = weight
    return weights


def _read_row(row: Sequence[str], where: str) -> tuple[str, float]:
    if len(row) < 2:
        raise DataError(f"{where}: no weight; write guid,weight")
    try:
        weight = float(row[1])
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0):
        raise DataError(f"{where}: the weight {quote(row[1])} should be a number, 0 or more; correct it")
    return row[0], weight


def write_weights(path: Path, weights: Mapping[str, float]) -> None:
    """Write weights for read_weights; guids are not escaped for spreadsheets."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_COLUMNS, *weights.items()])
    write_atomically(path, buffer.getvalue())


def load_weights(path: Path, guids: Collection[str]) -> dict[str, float]:
    """Return the weights of a file; refuse one that names unknown examples or leaves no weight above 0."""
    weights = read_weights(path)
    known = set(guids)
    if (unknown := next((guid for guid in weights if guid not in known), None)) is not None:
        raise DataError(f"{path}: no training example has the guid {quote(unknown)}; is the file for other data?")
    if not any(weights.get(guid, 1.0) for guid in known):
        raise DataError(f"{path}: every training example has weight 0; keep some of them")
    return weights
