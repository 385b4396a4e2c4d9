"""Users' own tasks: a TOML file describes the data, and a Task like the others comes out."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.files import quote
from danseo.records import RelationExample
from danseo.rows import Row, check_unique
from danseo.tasks.inputs import Input, pair_input, text_input, text_of, words_input
from danseo.tasks.own.description import Description, data_file, read_description
from danseo.tasks.own.examples import choice_of, entity_of, labels_of, question_row, read_examples
from danseo.tasks.own.measures import METRICS, measure_of
from danseo.tasks.task import Form, Kind, Task, check_label

_MOST_LABELS = 1000
_KINDS: dict[str, Kind] = {"relation": "classify", "choose": "classify"}
_FORMS: dict[str, Form] = {
    "tag": "text",
    "choose": "choices",
    "relation": "relation",
    "parse": "words",
    "answer": "question",
}


def own_task(path: Path) -> Task:
    """The task of a user's file, or of the ready one of that name."""
    source = path if path.is_file() else ready_task(path)
    description = read_description(source)
    files = [data_file(description, split) for split in ("train", "dev")]
    stamps = tuple((str(file), file.stat().st_mtime_ns) for file in files if file)
    return _built(str(source), source.stat().st_mtime_ns, stamps)


def ready_task(path: Path) -> Path:
    """A task file that comes with danseo."""
    package = Path(__file__).parents[2]
    folder = next((root / "configs" for root in (package, package.parents[1]) if (root / "configs").is_dir()), package)
    found = folder / "tasks" / path.name
    if found.is_file():
        return found
    known = ", ".join(sorted(each.name for each in (folder / "tasks").glob("*.toml")))
    raise DataError(
        f"{path}: no such task file; `danseo data describe` makes one" + (f"; ready: {known}" * bool(known))
    )


@lru_cache(maxsize=8)
def _built(path: str, stamp: int, stamps: tuple[Any, ...]) -> Task:
    return task_from(learnt(read_description(Path(path))), path)


def stored_task(path: Path) -> Task:
    """The task that a run keeps, its labels with it."""
    return task_from(read_description(path))


def learnt(description: Description) -> Description:
    """The description with the labels, or the range of numbers, that the data has."""
    if description.kind == "answer" or description.labels or description.scale:
        return description
    counts: dict[str, Counter[str]] = {}
    low, high = math.inf, -math.inf
    for split in ("train", "dev")[: 1 if description.share else 2]:
        counts[split] = Counter()
        for example in read_examples(require(description, split), description, lambda label: True):
            if description.kind == "score":
                low, high = min(low, example.gold), max(high, example.gold)
            counts[split].update(labels_of(description.kind, example))
    if description.kind == "score":
        return replace(description, scale=_scale(low, high, description))
    found = sorted(counts["train"]) + sorted(set(counts.get("dev", ())) - set(counts["train"]))
    _check_labels(found, counts["train"], description)
    if description.kind == "tag":
        found = [f"{prefix}-{label[2:]}" for label in found for prefix in "BI"] + ["O"]
    return replace(description, labels=tuple(found))


def _scale(low: float, high: float, description: Description) -> tuple[float, float]:
    if not low < high:
        raise DataError(
            f"{description.train}: column {description.label!r} holds one number only; nothing is to be learnt"
        )
    return low, high


def _check_labels(found: Sequence[str], train: Counter[str], description: Description) -> None:
    if not found or not train:
        raise DataError(f"{description.train}: there are no labels in it; check kind and columns in the task file")
    if description.kind in ("classify", "relation") and len(train) < 2:
        what = f"all {train.total():,} examples are {found[0]}; two labels are due"
        raise DataError(f"{description.train}: {what}: is {description.label} the right column?")
    if description.kind == "labels" and len(train) < 2:
        raise DataError(f"{description.train}: {found[0]} is the only label; two are due, or kind = classify")
    if description.kind == "choose" and len(found) != len(description.choices):
        labels, count = ", ".join(found[:10]), len(description.choices)
        raise DataError(f"{description.train}: {count} choices, but {len(found)} labels ({labels}); one each is due")
    if len(found) > _MOST_LABELS:
        raise DataError(
            f"{description.train}: column {description.label!r} has {len(found):,} different labels, but at most "
            f"{_MOST_LABELS:,} make sense; is it the right column? numbers are kind = score"
        )


def require(description: Description, split: str) -> Path:
    """The file of a split, or a complaint that says where it was looked for."""
    if found := data_file(description, split):
        return found
    name = description.train if split == "train" or description.share else description.dev
    raise DataError(f"{description.name}: {name} is not in {description.folder}; mend {split} in the task file")


def task_from(description: Description, address: str = "") -> Task:
    """The Task of a description whose labels are known."""
    kind = _KINDS.get(description.kind, description.kind)
    return Task(
        name=description.name,
        short=description.name,
        title=description.title or f"own task ({description.kind})",
        kind=kind,  # type: ignore[arg-type]
        form=_FORMS.get(description.kind, "pair" if description.pair else "text"),
        folder="",
        extension="",
        official_rows={},
        read=_reader(description),
        metrics=_metrics(description),
        measure=measure_of(description),
        check_answer=_checker(description),
        input=_input(description),
        labels=description.labels,
        cluster=_cluster(description),
        parts=_parts(description),
        nothing=description.none,
        label_word={"tag": "type", "relation": "relation", "parse": "relation", "score": "score"}.get(
            description.kind, "label"
        ),
        scale=description.scale or (0.0, 5.0),
        own=description,
        address=address,
    )


def _parts(description: Description) -> tuple[str, ...]:
    if description.kind == "answer":
        return ("passage", "question")
    return tuple(filter(None, (description.text or "text", description.pair)))


def _reader(description: Description) -> Callable[[Path], list[Any]]:
    labels = frozenset(description.labels)
    remedy = f"leave id out of {description.name}.toml, or mend the column" if description.id else "mend the file"

    def read(path: Path) -> list[Any]:
        examples = list(read_examples(path, description, lambda label: not labels or label in labels))
        check_unique([example.guid for example in examples], path, remedy)
        return examples

    return read


def _metrics(description: Description) -> dict[str, str]:
    """The metrics of the kind, the headline first."""
    metrics = dict(METRICS[description.kind])
    if not description.headline:
        return metrics
    named = [id_ for id_ in metrics if description.headline in (id_, id_.split("/")[1].split("@")[0])]
    if not named:
        raise DataError(
            f"{description.name}.toml: headline = {quote(description.headline)}: {', '.join(metrics)} are there"
        )
    return {named[0]: metrics[named[0]], **metrics}


def _cluster(description: Description) -> Callable[[Any], str] | None:
    if description.kind == "answer":
        return lambda example: str(example.text)
    return (lambda example: example.source or example.guid) if description.group else None


def _checker(description: Description) -> Callable[[Any, Any], Any]:
    from danseo.tasks import mrc

    if description.kind in ("classify", "choose", "relation"):
        return check_label(description.labels)
    checks: dict[str, Callable[[Any, Any], Any]] = {
        "labels": lambda example, answer: _several(answer, description),
        "score": _number,
        "tag": lambda example, answer: _tags(example, answer, description),
        "parse": lambda example, answer: _tree(example, answer, description),
        "answer": mrc.check_answer,
    }
    return checks[description.kind]


def _several(answer: Any, description: Description) -> tuple[str, ...]:
    if not isinstance(answer, list | tuple):
        raise ValueError(f"the answer should be a list of labels, not {quote(answer)}")
    if unknown := [label for label in answer if label not in description.labels]:
        raise ValueError(f"unknown label {quote(unknown[0])}; known: {', '.join(description.labels[:30])}")
    if len(set(answer)) < len(answer):
        raise ValueError("a label stands in the answer twice; keep one")
    return tuple(label for label in description.labels if label in answer)


def _number(example: Any, answer: Any) -> float:
    if isinstance(answer, bool) or not isinstance(answer, int | float) or not math.isfinite(answer):
        raise ValueError(f"the answer should be a number, not {quote(answer)}")
    return float(answer)


def _tags(example: Any, answer: Any, description: Description) -> tuple[str, ...]:
    if not isinstance(answer, list | tuple) or len(answer) != len(example.text):
        count = len(answer) if isinstance(answer, list | tuple) else "no list of"
        raise ValueError(f"{count} tags for {len(example.text)} characters (spaces count)")
    if unknown := [tag for tag in answer if tag not in description.labels]:
        raise ValueError(f"unknown tag {quote(unknown[0])}; known: {', '.join(description.labels[:30])}")
    return tuple(answer)


def _tree(example: Any, answer: Any, description: Description) -> tuple[tuple[int, str], ...]:
    words = len(example.words)
    if not isinstance(answer, list | tuple) or len(answer) != words:
        raise ValueError(f"the answer should be a list of [head, relation], one for each of {words} words")
    for position, pair in enumerate(answer, 1):
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or type(pair[0]) is not int or not 0 <= pair[0] <= words or pair[1] not in description.labels:
            raise ValueError(f"word {position} should be [head from 0 to {words}, a known relation], not {quote(pair)}")
    return tuple((head, relation) for head, relation in answer)


def _input(description: Description) -> Input:
    text = description.text or "text"
    if description.kind in ("classify", "labels", "score"):
        return pair_input(text, description.pair) if description.pair else text_input(text)
    if description.kind == "tag":
        return text_input(text)
    if description.kind == "choose":
        names = ", ".join(filter(None, (text, description.pair, *description.choices)))
        return Input(names, lambda row, guid: choice_of(row, guid, description))
    if description.kind == "parse":
        return words_input()
    if description.kind == "answer":
        names = f"{description.text or 'context'} and {description.question or 'question'}"
        return Input(names, lambda row, guid: question_row(row, guid, description))
    return Input(
        f"{text}, {description.subject} and {description.object}", lambda row, guid: _related(row, guid, description)
    )


def _related(row: Row, guid: str, description: Description) -> RelationExample:
    text = text_of(row, description.text)
    subject, other = (entity_of(row, key, text) for key in (description.subject, description.object))
    return RelationExample(guid, text=text, subject=subject, object=other, gold="")


def part_of(description: Description, examples: Sequence[Any], split: str) -> list[Any]:
    """The examples of train or of the held-out share: seeded, stratified by label, groups kept together."""
    held = set(_held_out(description, examples))
    return [example for position, example in enumerate(examples) if (position in held) == (split == "dev")]


def _held_out(description: Description, examples: Sequence[Any]) -> Iterator[int]:
    """The positions of the share: of each label, or as near to it as whole groups allow."""
    groups: dict[str, list[int]] = {}
    cluster = _cluster(description) or (lambda example: example.guid)
    for position, example in enumerate(examples):
        groups.setdefault(cluster(example), []).append(position)
    strata: dict[str, list[list[int]]] = {}
    for positions in groups.values():
        gold = examples[positions[0]].gold
        strata.setdefault(_stratum(gold, description), []).append(positions)
    for label in sorted(strata):
        members = sorted(strata[label], key=lambda positions: examples[positions[0]].guid)
        random.Random(f"danseo own split {label}").shuffle(members)
        due, taken = description.share * sum(map(len, members)), 0
        for positions in members:
            if taken + len(positions) / 2 > due:
                break
            taken += len(positions)
            yield from positions


def _stratum(gold: Any, description: Description) -> str:
    """What is shared out evenly: labels, alone or together."""
    if description.kind == "labels":
        return ", ".join(gold)
    return gold if isinstance(gold, str) else ""
