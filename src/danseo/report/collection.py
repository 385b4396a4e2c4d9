"""The runs of a report or board, with unique names and, if the data is there, their examples."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from danseo.data.dev_split import split_indices
from danseo.data.find import data_root, find_file, load, sample_examples, sample_sha256, split_sha256
from danseo.errors import DanseoError
from danseo.runs.index import Record, find_runs, natural_sort_key, read_record
from danseo.runs.predictions import MemberPredictions, open_member
from danseo.runs.store import Run
from danseo.tables.variants import drop_copies, label_variants
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task


@dataclass(frozen=True)
class RunAnswers:
    """The examples that a run reports, and its predictions."""

    examples: list[Any]
    member: MemberPredictions


@dataclass
class Collection:
    """Runs with their names, page keys and data."""

    records: list[Record]
    data_dir: str | None = None
    folders: Sequence[Path] = ()
    """Folders with other files of pages, such as sweeps."""
    names: dict[str, str] = field(default_factory=dict)
    """Run directory -> its unique name on pages."""
    keys: dict[str, str] = field(default_factory=dict)
    """Run directory -> the key of its page."""
    _dev: dict[str, tuple[str, list[Any]] | None] = field(default_factory=dict)
    _train: dict[str, list[Any] | None] = field(default_factory=dict)
    _tasks: list[Task] | None = None

    def __post_init__(self) -> None:
        for record, name in zip(self.records, name_runs(self.records), strict=True):
            self.names[str(record.run.path)] = name
        for number, record in enumerate(self.records, 1):
            self.keys.setdefault(str(record.run.path), f"run/{number}")

    def share(self, dev: dict[str, Any], train: dict[str, Any]) -> None:
        """Use caches of examples that a later collection can use, too."""
        self._dev, self._train = dev, train

    def name(self, record: Record) -> str:
        """Return the name of a run on pages."""
        return self.names[str(record.run.path)]

    def key(self, record: Record) -> str:
        """Return the key of a run's page."""
        return self.keys[str(record.run.path)]

    def links(self, records: Sequence[Record]) -> dict[str, str]:
        """Return name -> page key, for tables of runs."""
        return {self.name(record): self.key(record) for record in records}

    def tasks(self) -> list[Task]:
        """Return the tasks that have runs: KLUE's in its order, then the others by name."""
        if self._tasks is None:
            found: dict[str, Task] = {}
            for record in self.records:
                if record.settings and record.task not in found:
                    with suppress(DanseoError):  # an unreadable task file
                        found[record.task] = record.run.task
            known = [name for name in TASKS if name in found]
            tasks = [found[name] for name in (*known, *sorted(set(found) - set(known)))]
            self._tasks = [replace(task, dev_sample=(0, 0)) for task in tasks]  # each run has its own sample
        return self._tasks

    def _task(self, name: str) -> Task:
        return next(task for task in self.tasks() if task.name == name)

    def done(self, task: Task) -> list[Record]:
        """Return the finished runs of a task without copies."""
        return drop_copies([r for r in self.records if r.task == task.name and r.status == "done"]).records

    # Data

    def dev(self, record: Record) -> list[Any] | None:
        """Return the examples that a run answered; None if that dev file is missing."""
        found = self._read_dev(record.task)
        if not found:
            return None
        sample = int(record.settings.get("prompt.max_eval_samples") or 0), int(record.settings.get("seed") or 0)
        is_same = sample_sha256(found[0], *sample) == record.dev_sha256
        return sample_examples(found[1], *sample) if is_same else None

    def _read_dev(self, name: str) -> tuple[str, list[Any]] | None:
        if name not in self._dev:
            self._dev[name] = _read_split(self._task(name), "dev", self.data_dir)
        return self._dev[name]

    def train(self, task: Task) -> list[Any] | None:
        """Return the training examples; None if their file is missing."""
        if task.name not in self._train:
            found = _read_split(task, "train", self.data_dir)
            self._train[task.name] = found[1] if found else None
        return self._train[task.name]

    def answers(self, record: Record) -> RunAnswers | None:
        """Return a run's predictions of the examples that it reports; None if they cannot be read."""
        examples = self.dev(record)
        if examples is None:
            return None
        try:
            task = record.run.task
            member = open_member(record, task, examples)
        except DanseoError:
            return None
        positions = split_indices(task, examples, str(record.scores["reported_on"]))
        return RunAnswers([examples[position] for position in positions], member.select(positions))


def _read_split(task: Task, split: str, data_dir: str | None) -> tuple[str, list[Any]] | None:
    try:
        root = data_root(data_dir)
        has_file = find_file(task, split, root) is not None
        return (split_sha256(task, split, root), load(task, split, root)) if has_file else None
    except DanseoError:
        return None  # the pages name the missing file; `danseo data check` reports the reason


def name_runs(records: Sequence[Record]) -> list[str]:
    """Return a name per run: model, differing settings, and the seed if several runs share them."""
    labels = label_variants(records, brief=True)
    pairs = Counter((record.task, label) for record, label in zip(records, labels, strict=True))
    seeded = [
        f"{label} s{record.seed}" if pairs[record.task, label] > 1 else label
        for record, label in zip(records, labels, strict=True)
    ]
    counts: Counter[tuple[str, str]] = Counter()
    names = []
    for record, name in zip(records, seeded, strict=True):
        counts[record.task, name] += 1
        count = counts[record.task, name]
        names.append(name if count == 1 else f"{name} ({count})")
    return names


def collect_runs(paths: Sequence[Path], data_dir: str | None) -> Collection:
    """Return the runs of folders, and runs given by their directory."""
    found: dict[str, Record] = {}
    for path in paths:
        records = [read_record(Run(path))] if (path / "config.toml").is_file() else find_runs(path)
        found |= {str(record.run.path): record for record in records}
    records = sorted(found.values(), key=lambda record: natural_sort_key(str(record.run.path)))
    return Collection(records, data_dir, [path for path in paths if not (path / "config.toml").is_file()])
