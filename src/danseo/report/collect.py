"""The runs that pages are about: found, named apart, and read with their examples where the data is there."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.data.find import data_root, find_file, load, split_sha256
from danseo.data.halves import in_half
from danseo.errors import DanseoError
from danseo.runs.answers import Member, open_run
from danseo.runs.directory import Run
from danseo.runs.index import Record, find_runs, in_order, read_record
from danseo.runs.layouts.variants import distinct, label_variants
from danseo.tasks import TASKS
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Answers:
    """A run's answers to the examples that it reports."""

    examples: list[Any]
    member: Member


@dataclass
class Collection:
    """Runs, what each is called, and the data that they answered."""

    records: list[Record]
    data_dir: str | None = None
    folders: Sequence[Path] = ()
    """Where else to look, for what lies beside runs."""
    names: dict[str, str] = field(default_factory=dict)
    """Run directory -> its name on pages, different for different runs."""
    keys: dict[str, str] = field(default_factory=dict)
    """Run directory -> the key of its page."""
    _dev: dict[str, tuple[str, list[Any]] | None] = field(default_factory=dict)
    _train: dict[str, list[Any] | None] = field(default_factory=dict)
    _tasks: list[Task] | None = None

    def __post_init__(self) -> None:
        for record, name in zip(self.records, run_names(self.records), strict=True):
            self.names[str(record.run.path)] = name
        for number, record in enumerate(self.records, 1):
            self.keys.setdefault(str(record.run.path), f"run/{number}")

    def share(self, dev: dict[str, Any], train: dict[str, Any]) -> None:
        """Keep what is read of the data where the next collection finds it."""
        self._dev, self._train = dev, train

    def name(self, record: Record) -> str:
        """What the run is called."""
        return self.names[str(record.run.path)]

    def key(self, record: Record) -> str:
        """The page of the run."""
        return self.keys[str(record.run.path)]

    def links(self, records: Sequence[Record]) -> dict[str, str]:
        """Name -> page, for tables of runs."""
        return {self.name(record): self.key(record) for record in records}

    def tasks(self) -> list[Task]:
        """The tasks that have runs, in KLUE's order; others behind them by name."""
        if self._tasks is None:
            found = {record.task: record for record in self.records if record.settings}
            known = [name for name in TASKS if name in found]
            self._tasks = [found[name].run.task for name in (*known, *sorted(set(found) - set(known)))]
        return self._tasks

    def _task(self, name: str) -> Task:
        return next(task for task in self.tasks() if task.name == name)

    def done(self, task: Task) -> list[Record]:
        """The finished runs of a task, each once."""
        return distinct([r for r in self.records if r.task == task.name and r.status == "done"]).records

    # Data

    def dev(self, record: Record) -> list[Any] | None:
        """The examples that a run answered; None where that dev file is not there."""
        found = self._read_dev(record.task)
        return found[1] if found and found[0] == record.dev_sha256 else None

    def _read_dev(self, name: str) -> tuple[str, list[Any]] | None:
        if name not in self._dev:
            self._dev[name] = _read(self._task(name), "dev", self.data_dir)
        return self._dev[name]

    def train(self, task: Task) -> list[Any] | None:
        """The training examples, where they are there."""
        if task.name not in self._train:
            found = _read(task, "train", self.data_dir)
            self._train[task.name] = found[1] if found else None
        return self._train[task.name]

    def answers(self, record: Record) -> Answers | None:
        """What a run answered to the examples that it reports; None where they cannot be read."""
        examples = self.dev(record)
        if examples is None:
            return None
        task = record.run.task
        try:
            member = open_run(record, task, examples)
        except DanseoError:
            return None
        positions = in_half(task, examples, str(record.scores["reported_on"]))
        return Answers([examples[position] for position in positions], member.chosen(positions))


def _read(task: Task, split: str, data_dir: str | None) -> tuple[str, list[Any]] | None:
    try:
        root = data_root(data_dir)
        is_there = find_file(task, split, root) is not None
        return (split_sha256(task, split, root), load(task, split, root)) if is_there else None
    except DanseoError:
        return None  # pages without examples say so; `danseo data check` says why


def run_names(records: Sequence[Record]) -> list[str]:
    """A name per run: model, differing settings, and the seed where one name stands for several."""
    labels = label_variants(records, brief=True)
    pairs = Counter((record.task, label) for record, label in zip(records, labels, strict=True))
    seeded = [
        f"{label} s{record.seed}" if pairs[record.task, label] > 1 else label
        for record, label in zip(records, labels, strict=True)
    ]
    taken: dict[tuple[str, str], int] = {}
    names = []
    for record, name in zip(records, seeded, strict=True):
        taken[record.task, name] = taken.get((record.task, name), 0) + 1
        count = taken[record.task, name]
        names.append(name if count == 1 else f"{name} ({count})")
    return names


def collect(paths: Sequence[Path], data_dir: str | None) -> Collection:
    """The runs of folders, and runs named by themselves."""
    found: dict[str, Record] = {}
    for path in paths:
        records = [read_record(Run(path))] if (path / "config.toml").is_file() else find_runs(path)
        found |= {str(record.run.path): record for record in records}
    records = sorted(found.values(), key=lambda record: in_order(str(record.run.path)))
    return Collection(records, data_dir, [path for path in paths if not (path / "config.toml").is_file()])
