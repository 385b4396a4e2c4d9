"""Check a custom task for `danseo data check`: what its task file says, and what is odd about the data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.data.find import data_hashes, load, require_file
from danseo.data.stats import get_view
from danseo.data.stats.duplicates import CONFLICT, SAME, find_duplicates, find_leaks
from danseo.display.table import Table
from danseo.language import _
from danseo.tasks.custom.annotations import AnnotationStats
from danseo.tasks.custom.tables import read_table
from danseo.tasktypes.base import Task
from danseo.tasktypes.description import TaskDescription

_LONG_TEXT = 2000  # characters: most encoders read no more


def check_custom_task(task: Task, root: Path) -> list[Table]:
    """Return tables about a custom task; corrupted data is an error that names its line."""
    data_hashes(task, root)  # refuses equal train and dev files
    splits = {split: load(task, split, root) for split in ("train", "dev")}
    tables = [
        _list_settings(task, splits, root),
        _count_annotations(task, root),
        task.type.label_counts(task, splits),
        _count_oddities(task, splits),
        _show_examples(task, splits),
    ]
    return [table for table in tables if table.rows]


def _require_description(task: Task) -> TaskDescription:
    if task.custom is None:
        raise ValueError(f"{task.name} is not a custom task")
    return task.custom


def _list_settings(task: Task, splits: Mapping[str, Sequence[Any]], root: Path) -> Table:
    description = _require_description(task)
    rows: list[tuple[object, ...]] = [("type", task.type.name), (_("headline metric"), task.headline)]
    for split, examples in splits.items():
        is_held_out = description.share and split == "dev"
        text = _("{n:,} examples ({share:.0%}) held out of {file}") if is_held_out else _("{n:,} examples of {file}")
        file = require_file(task, split, root)
        rows.append((split, text.format(n=len(examples), share=description.share, file=file)))
    columns = ("text", "pair", "label", "question", "answer", "subject", "object", "spans", "group", "id")
    rows += [(name, _("column {name}").format(name=value)) for name in columns if (value := getattr(description, name))]
    rows += task.type.describe_columns(description)
    if not description.id and task.type.is_numbered:
        rows.append(("id", _("no column: examples are numbered from 1")))
    return Table(_("{task}: what was understood").format(task=task.name), ("what", "value"), rows)


def _count_annotations(task: Task, root: Path) -> Table:
    """Count the merged and skipped annotations of a tool's export."""
    rows: list[tuple[object, ...]] = []
    description = _require_description(task)
    if description.format and description.format != "brat":
        for path in dict.fromkeys(require_file(task, split, root) for split in ("train", "dev")):
            stats = AnnotationStats()
            for _ in read_table(path, description, stats):
                pass
            rows += [(path.name, "texts", stats.texts), (path.name, "with several annotators", stats.several)]
            rows += [(path.name, "whose annotators differ", stats.differing)] if stats.several else []
            rows += [(path.name, f"left out ({reason})", count) for reason, count in sorted(stats.skipped.items())]
    note = "Of several annotators, what more than half marked is kept; if exactly half did, the first decides."
    return Table(f"annotations ({description.format})", ("file", "what", "count"), rows, note)


def _count_oddities(task: Task, splits: Mapping[str, Sequence[Any]]) -> Table:
    view = get_view(task)
    train, dev = splits["train"], splits["dev"]
    duplicates = [find_duplicates(view, examples) for examples in splits.values()]
    leaks = find_leaks(view, train, dev)[SAME].count
    texts = [[view.texts(example)[0] for example in examples] for examples in splits.values()]
    rows: list[tuple[object, ...]] = [
        (_("repeated inputs"), *(findings[SAME].count for findings in duplicates)),
        (_("same input, different gold"), *(findings[CONFLICT].count for findings in duplicates)),
        (_("inputs that are also in train"), None, leaks),
        *task.type.count_oddities(splits),
        (_("empty texts"), *(sum(not text.strip() for text in each) for each in texts)),
        (
            _("texts of more than {n:,} characters").format(n=_LONG_TEXT),
            *(sum(len(text) > _LONG_TEXT for text in each) for each in texts),
        ),
    ]
    share = 100 * leaks / max(1, len(dev))
    warning = _("WARNING: {share:.0f} % of dev is also in train: scores will be too high").format(share=share)
    return Table("what to look at", ("what", "train", "dev"), rows, warning if share >= 1 else "")


def _show_examples(task: Task, splits: Mapping[str, Sequence[Any]]) -> Table:
    view = get_view(task)
    rows: list[tuple[object, ...]] = [
        (split, example.guid, _truncate(" ⇥ ".join(view.texts(example)[:2])), _truncate(_format_gold(example.gold)))
        for split, examples in splits.items()
        for example in examples[:2]
    ]
    return Table("examples", ("split", "guid", "text", "gold"), rows)


def _format_gold(gold: Any) -> str:
    return ", ".join(map(str, gold)) or "(none)" if isinstance(gold, tuple) else str(gold)


def _truncate(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:59]}…"
