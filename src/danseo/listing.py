"""The tables of `danseo tasks` and `danseo data check`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.data import FileReport, find_file
from danseo.tables import Table
from danseo.tasks import TASKS
from danseo.tasks.task import Task


def task_rows(root: Path) -> list[Table]:
    """All tasks, one row each."""
    rows: list[tuple[object, ...]] = [
        (task.name, task.short, task.title, task.kind, task.headline, len(task.metrics), splits_found(task, root))
        for task in TASKS.values()
    ]
    columns = ("task", "KLUE", "what", "kind", "headline metric", "metrics", "data")
    return [Table("tasks", columns, rows, f"data folder: {root}")]


def splits_found(task: Task, root: Path) -> str:
    """The splits whose file is there."""
    return ", ".join(split for split in ("train", "dev") if find_file(task, split, root)) or "missing"


def describe_task(task: Task, root: Path) -> list[Table]:
    """One task: its files, metrics and labels."""
    facts: list[tuple[object, ...]] = [
        ("name", f"{task.name} ({task.short})"),
        ("kind", task.kind),
        ("files", ", ".join(f"{task.folder}/{task.file(split)}" for split in ("train", "dev"))),
        ("official rows", ", ".join(f"{split} {rows:,}" for split, rows in task.official_rows.items())),
        ("data", splits_found(task, root)),
        ("labels", ", ".join(task.labels) or "none"),
    ]
    metrics: list[tuple[object, ...]] = [(id_, text) for id_, text in task.metrics.items()]
    return [Table(task.title, ("what", "value"), facts), Table("metrics", ("id", "meaning"), metrics, "headline first")]


def task_document(task: Task, root: Path) -> dict[str, Any]:
    """One task for JSON."""
    found = {split: find_file(task, split, root) for split in task.official_rows}
    return {
        "name": task.name,
        "klue": task.short,
        "title": task.title,
        "kind": task.kind,
        "headline": task.headline,
        "metrics": dict(task.metrics),
        "labels": list(task.labels),
        "official_rows": dict(task.official_rows),
        "files": {split: str(path) if path else None for split, path in found.items()},
    }


def _short_path(report: FileReport, root: Path) -> str:
    if report.path is None:
        return report.part
    return str(report.path.relative_to(root) if report.path.is_relative_to(root) else report.path)


def check_table(reports: Sequence[FileReport], root: Path) -> Table:
    """One row per expected file."""
    rows: list[tuple[object, ...]] = [
        (
            report.task,
            _short_path(report, root),
            report.rows,
            report.official_rows,
            report.sha256[:12] if report.sha256 else None,
            report.verdict,
            report.note,
        )
        for report in reports
    ]
    return Table(f"data in {root}", ("task", "file", "rows", "official", "sha256", "verdict", "note"), rows)


def settings_table(config: Any = None) -> Table:
    """Every setting of a run, or of another command's config, with its default."""
    from danseo.config import RunConfig, flat, setting_help, setting_paths

    config = config or RunConfig(task="", model="")
    cls: Any = type(config)
    defaults = flat(config)
    rows: list[tuple[object, ...]] = [
        (name, "none" if defaults[name] is None else str(defaults[name]), setting_help(cls)[attribute])
        for name, (cls, attribute) in setting_paths(cls).items()
    ]
    return Table("settings", ("setting", "default", "meaning"), rows, "recipes may start from other values")
