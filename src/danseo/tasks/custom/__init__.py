"""Custom tasks: make a Task from a task file (TOML) that describes a user's data."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.files import quote
from danseo.language import _
from danseo.metrics.statistic import Metric
from danseo.rows import Row, check_unique
from danseo.tasks.custom.tables import get_suffix, read_conll, read_table
from danseo.tasks.custom.task_file import find_data_file, read_description
from danseo.tasks.klue import explain_wrong_file
from danseo.tasktypes import TASK_TYPES
from danseo.tasktypes.base import IsKnown, Task, answers_of, golds_of
from danseo.tasktypes.description import TaskDescription


def load_custom_task(path: Path) -> Task:
    """Return the task of a task file, or of the bundled one of that name."""
    source = path if path.is_file() else find_bundled_task(path)
    description = read_description(source)
    files = [find_data_file(description, split) for split in ("train", "dev")]
    data_files_modified = tuple((str(file), file.stat().st_mtime_ns) for file in files if file)
    return _load_cached(str(source), source.stat().st_mtime_ns, data_files_modified)


def list_bundled_tasks() -> dict[str, Path]:
    """Return the task files that come with danseo, by the names of their tasks."""
    package = Path(__file__).parents[2]
    folder = next((root / "configs" for root in (package, package.parents[1]) if (root / "configs").is_dir()), package)
    return {path.stem: path for path in sorted((folder / "tasks").glob("*.toml"))}


def find_bundled_task(path: Path) -> Path:
    """Return a task file that comes with danseo."""
    bundled = list_bundled_tasks()
    if path.name.removesuffix(".toml") in bundled:
        return bundled[path.name.removesuffix(".toml")]
    known = ", ".join(each.name for each in bundled.values()) or "none"
    raise DataError(
        _("{path}: no such task file; `danseo data describe` writes one; bundled: {known}").format(
            path=path, known=known
        )
    )


@lru_cache(maxsize=8)
def _load_cached(path: str, modified: int, data_files_modified: tuple[Any, ...]) -> Task:
    return make_task(learn_labels(read_description(Path(path))), path)


def load_stored_task(path: Path) -> Task:
    """Return the task of the task file in a run folder, which contains the labels."""
    return make_task(read_description(path))


def learn_labels(description: TaskDescription) -> TaskDescription:
    """Return the description with the labels, or the range of numbers, that the data has."""
    task_type = TASK_TYPES[description.type]
    if not task_type.learns_labels or description.labels or description.scale:
        return description
    splits = ("train",) if description.share else ("train", "dev")
    examples = {split: list(read_examples(require_file(description, split), description)) for split in splits}
    return task_type.learn_labels(description, examples)


def require_file(description: TaskDescription, split: str) -> Path:
    """Return the file of a split, or raise a DataError that names the folder."""
    if path := find_data_file(description, split):
        return path
    name = description.train if split == "train" or description.share else description.dev
    raise DataError(
        _("{task}: {name} is not in {folder}; correct the key {split} in the task file").format(
            task=description.name, name=name, folder=description.folder, split=split
        )
    )


@dataclass(frozen=True)
class CustomFile:
    """A data file of a custom task."""

    path: Path
    description: TaskDescription

    def is_squad(self) -> bool:
        return get_suffix(self.path) == ".json" and not self.description.question

    def rows(self) -> Iterator[Row]:
        return read_table(self.path, self.description)

    def blocks(self) -> Iterator[tuple[int, list[str], list[tuple[int, list[str]]]]]:
        return read_conll(self.path, self.description)


def read_examples(path: Path, description: TaskDescription, is_known: IsKnown = lambda label: True) -> Iterator[Any]:
    """Yield the examples of a file; guids are the id column, else the number of the example in the file."""
    try:
        yield from TASK_TYPES[description.type].read_custom(CustomFile(path, description), is_known)
    except DataError as error:
        columns = (description.text, description.label, description.spans, description.question, description.answer)
        raise explain_wrong_file(error, path, description.name, [name for name in columns if name]) from None


def make_task(description: TaskDescription, address: str = "") -> Task:
    """Return the Task of a description whose labels are known."""
    task_type = TASK_TYPES[description.type]
    return Task(
        name=description.name,
        short=description.name,
        title=description.title or task_type.custom_title,
        type=task_type,
        folder="",
        extension="",
        official_rows={},
        read=_make_reader(description),
        metrics=_order_metrics(description),
        measure=lambda examples, predictions: task_type.measure_custom(
            description, examples, golds_of(examples), answers_of(predictions)
        ),
        input=task_type.custom_input(description),
        labels=description.labels,
        cluster=task_type.custom_cluster(description),
        parts=task_type.custom_parts(description),
        nothing=description.none,
        label_word=task_type.custom_label_word,
        scale=description.scale or (0.0, 5.0),
        custom=description,
        address=address,
    )


def _make_reader(description: TaskDescription) -> Callable[[Path], list[Any]]:
    labels = frozenset(description.labels)
    remedy = (
        f"remove the key id from {description.name}.toml, or correct the column"
        if description.id
        else "correct the file"
    )

    def read(path: Path) -> list[Any]:
        examples = list(read_examples(path, description, lambda label: not labels or label in labels))
        check_unique([example.guid for example in examples], path, remedy)
        return examples

    return read


def _order_metrics(description: TaskDescription) -> dict[str, Metric]:
    """Return the metrics of the task type, the headline first."""
    metrics = dict(TASK_TYPES[description.type].custom_metrics)
    if not description.headline:
        return metrics
    headline = next((id_ for id_, m in metrics.items() if description.headline in (id_, m.name)), None)
    if headline is None:
        problem = f"unknown headline {quote(description.headline)}"
        raise DataError(f"{description.name}.toml: {problem}; known: {', '.join(metrics)}")
    return {headline: metrics[headline], **metrics}


def select_split(description: TaskDescription, examples: Sequence[Any], split: str) -> list[Any]:
    """Return the examples of train or of the held-out share: seeded, stratified by label, groups together."""
    held_out = set(_hold_out(description, examples))
    if not held_out or len(held_out) == len(examples):
        raise DataError(
            f"{description.name}: dev = {description.share:g} of {len(examples)} examples leaves dev or train empty; "
            "hold out another share, or name a dev file"
        )
    return [example for position, example in enumerate(examples) if (position in held_out) == (split == "dev")]


def _hold_out(description: TaskDescription, examples: Sequence[Any]) -> Iterator[int]:
    """Yield the positions of the held-out examples: the same share of every label, as far as groups allow."""
    task_type = TASK_TYPES[description.type]
    groups: dict[str, list[int]] = {}
    cluster = task_type.custom_cluster(description) or (lambda example: example.guid)
    for position, example in enumerate(examples):
        groups.setdefault(cluster(example), []).append(position)
    strata: dict[str, list[list[int]]] = {}
    for positions in groups.values():
        strata.setdefault(task_type.stratify(examples[positions[0]].gold), []).append(positions)
    for label in sorted(strata):
        members = sorted(strata[label], key=lambda positions: examples[positions[0]].guid)
        random.Random(f"danseo own split {label}").shuffle(members)
        target, count = description.share * sum(map(len, members)), 0
        for positions in members:
            if count + len(positions) / 2 > target:
                break
            count += len(positions)
            yield from positions
