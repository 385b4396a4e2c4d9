"""The examples of a run: train with folds and augmentation, dev, and the fold that is left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.config.run import RunConfig
from danseo.data import find
from danseo.data.augmentation import augment_examples
from danseo.data.dev_split import split_fold
from danseo.data.example_weights import load_weights
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
