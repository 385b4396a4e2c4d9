"""What `danseo data check` says of a user's own task: what it understood, and what is odd about the data."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.data.find import data_hashes, load, require_file
from danseo.display.table import Table
from danseo.tasks.own.examples import labels_of
from danseo.tasks.task import Task

LONG = 2000
"""Characters from which a text is called long: most encoders read no more of it."""
_SHOWN = 40


def judge(task: Task, root: Path) -> list[Table]:
    """The tables on a task; damage is an error that names its line."""
    data_hashes(task, root)  # refuses a dev that is train again
    splits = {split: load(task, split, root) for split in ("train", "dev")}
    tables = [_understood(task, splits, root), _labels(task, splits), _oddities(task, splits), _examples(splits)]
    return [table for table in tables if table.rows]


def _understood(task: Task, splits: Mapping[str, Sequence[Any]], root: Path) -> Table:
    description = task.own
    rows: list[tuple[object, ...]] = [("kind", description.kind), ("headline metric", task.headline)]
    for split, examples in splits.items():
        held = f" ({description.share:.0%}) held out" if description.share and split == "dev" else ""
        rows.append((split, f"{len(examples):,} examples{held} of {require_file(task, split, root)}"))
    columns = ("text", "pair", "label", "question", "answer", "subject", "object", "spans", "group", "id")
    rows += [(name, f"column {value}") for name in columns if (value := getattr(description, name))]
    if description.kind == "labels" and description.label:
        rows.append(("labels are lists, or have between them", description.label_separator))
    elif description.kind == "labels":
        rows.append(("columns that hold 0 or 1", ", ".join(description.labels)))
    if description.choices:
        rows.append(("candidates", f"columns {', '.join(description.choices)}"))
    if not description.id and description.kind in ("classify", "labels", "choose", "score", "relation", "tag"):
        rows.append(("id", "none named: examples are numbered from 1"))
    return Table(f"{task.name}: what was understood", ("what", "value"), rows)


def _labels(task: Task, splits: Mapping[str, Sequence[Any]]) -> Table:
    kind = task.own.kind
    counts = {
        split: Counter(name for e in examples for name in labels_of(kind, e)) for split, examples in splits.items()
    }
    names = sorted(set().union(*counts.values()), key=lambda name: -counts["train"][name])
    lacking = [name for name in names if not counts["train"][name]]
    rows: list[tuple[object, ...]] = [
        (name.removeprefix("B-") if kind == "tag" else name, counts["train"][name], counts["dev"][name])
        for name in names[:_SHOWN]
    ]
    note = f"{len(names) - _SHOWN} rarer ones are not shown" if len(names) > _SHOWN else ""
    if lacking:
        note = f"WARNING: dev has labels that train lacks and no model can learn: {', '.join(lacking[:10])}"
    if kind == "score":
        numbers = {split: [e.gold for e in examples] for split, examples in splits.items()}
        rows = [
            (name, *(f(numbers[s]) for s in splits)) for name, f in (("least", min), ("greatest", max), ("mean", _mean))
        ]
    return Table("labels" if kind != "score" else "numbers", (task.label_word, "train", "dev"), rows, note)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _key(example: Any) -> tuple[str, ...]:
    """What makes two inputs the same."""
    if hasattr(example, "words"):
        return tuple(example.words)
    parts = [example.text, getattr(example, "pair", None), getattr(example, "question", None)]
    parts += getattr(example, "choices", ())
    if hasattr(example, "subject"):
        parts += [f"{example.subject.start}", f"{example.object.start}"]
    return tuple(str(part) for part in parts if part is not None)


def _oddities(task: Task, splits: Mapping[str, Sequence[Any]]) -> Table:
    keys = {split: [_key(example) for example in examples] for split, examples in splits.items()}
    train = set(keys["train"])
    golds: dict[tuple[str, ...], set[Any]] = {}
    for example, key in zip(splits["train"], keys["train"], strict=True):
        golds.setdefault(key, set()).add(example.gold)
    conflicts = sum(len(found) > 1 for found in golds.values())
    leaks = sum(key in train for key in keys["dev"])
    texts = {
        split: [_key(e)[0] if not hasattr(e, "words") else " ".join(e.words) for e in x] for split, x in splits.items()
    }
    rows: list[tuple[object, ...]] = [
        ("inputs that occur before", *(len(found) - len(set(found)) for found in keys.values())),
        ("same input, different gold", conflicts, None),
        ("inputs that train has, too", None, leaks),
        *_without_labels(task, splits),
        ("empty texts", *(sum(not text.strip() for text in found) for found in texts.values())),
        (f"texts of more than {LONG:,} characters", *(sum(len(t) > LONG for t in found) for found in texts.values())),
    ]
    share = 100 * leaks / max(1, len(keys["dev"]))
    note = f"WARNING: {share:.0f} % of dev stands in train: scores will be too high" if share >= 1 else ""
    return Table("what to look at", ("what", "train", "dev"), rows, note)


def _without_labels(task: Task, splits: Mapping[str, Sequence[Any]]) -> list[tuple[object, ...]]:
    if task.kind != "labels":
        return []
    return [("texts without any label", *(sum(not e.gold for e in examples) for examples in splits.values()))]


def _examples(splits: Mapping[str, Sequence[Any]]) -> Table:
    rows: list[tuple[object, ...]] = []
    for split, examples in splits.items():
        rows += [
            (split, example.guid, _short(" ⇥ ".join(_key(example)[:2])), _short(_shown(example.gold)))
            for example in examples[:2]
        ]
    return Table("examples", ("split", "guid", "text", "gold"), rows)


def _shown(gold: Any) -> str:
    return ", ".join(map(str, gold)) or "(none)" if isinstance(gold, tuple) else str(gold)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:59]}…"
