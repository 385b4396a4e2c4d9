"""The tables of `danseo tasks`, `data check`, `settings` and `configs`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.data.find import FileReport, find_file
from danseo.display.table import Table
from danseo.tasks import TASKS
from danseo.tasks.task import Task

if TYPE_CHECKING:
    from danseo.config import RunConfig


def task_rows(root: Path) -> list[Table]:
    """All tasks, one row each."""
    rows: list[tuple[object, ...]] = [
        (task.name, task.short, task.title, task.kind, task.headline, len(task.metrics), splits_found(task, root))
        for task in TASKS.values()
    ]
    columns = ("task", "KLUE", "what", "kind", "headline metric", "metrics", "data")
    return [Table("tasks", columns, rows, data_note(list(TASKS.values()), root))]


def data_note(tasks: Sequence[Task], root: Path) -> str:
    """Where data is looked for, and how to get what is not there."""
    whole = all(find_file(task, split, root) for task in tasks for split in ("train", "dev"))
    get = "get it with `danseo data get`, from a folder you have with --from, or try --data sample"
    return f"data folder: {root}" + ("" if whole else f"; {get}")


def splits_found(task: Task, root: Path) -> str:
    """The splits whose file is there."""
    return ", ".join(split for split in ("train", "dev") if find_file(task, split, root)) or "missing"


def describe_task(task: Task, root: Path) -> list[Table]:
    """One task: its files, metrics and labels."""
    facts: list[tuple[object, ...]] = [
        ("name", task.name if task.own else f"{task.name} ({task.short})"),
        ("kind", task.kind),
        ("files", files_of(task)),
        *([] if task.own else [("official rows", _official(task))]),
        ("data", splits_found(task, root)),
        ("labels", ", ".join(task.labels) or "none"),
    ]
    metrics: list[tuple[object, ...]] = [(id_, text) for id_, text in task.metrics.items()]
    about = Table(task.title, ("what", "value"), facts, data_note([task], root))
    return [about, Table("metrics", ("id", "meaning"), metrics, "headline first")]


def _official(task: Task) -> str:
    return ", ".join(f"{split} {rows:,}" for split, rows in task.official_rows.items())


def files_of(task: Task) -> str:
    """The names of a task's files; a user's own data may be one file, part of which is held out."""
    if task.own:
        return f"{task.own.train}, {task.own.dev if not task.own.share else f'{task.own.share:.0%} of it held out'}"
    return ", ".join(f"{task.folder}/{task.file(split)}" for split in ("train", "dev"))


def task_document(task: Task, root: Path) -> dict[str, Any]:
    """One task for JSON."""
    found = {split: find_file(task, split, root) for split in ("train", "dev")}
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
    from danseo.config import RunConfig

    config = config or RunConfig(task="", model="")
    rows: list[tuple[object, ...]] = [(name, value, meaning) for name, value, meaning in _settings(config)]
    note = "recipes may start from other values; `danseo settings TASK` shows those of a run"
    return Table("settings", ("setting", "default", "meaning"), rows, note if isinstance(config, RunConfig) else "")


def resolved_table(config: "RunConfig", path: Path) -> Table:
    """Every setting as a run would have it, beside its default; the path is that of the recipe."""
    from danseo.config import RunConfig

    defaults = [value for _, value, _ in _settings(RunConfig(task="", model=""))]
    columns = zip(_settings(config), defaults, strict=True)
    rows: list[tuple[object, ...]] = [(name, value, default, meaning) for (name, value, meaning), default in columns]
    note = f"by {path}"
    if config.recipe == "official" and not config.model:
        note += "; official settings differ by size and family, so name the encoder with -m"
    title = f"settings of {config.task}, recipe {config.recipe}" + (f", {config.model}" if config.model else "")
    return Table(title, ("setting", "value", "default", "meaning"), rows, note)


def _settings(config: Any) -> list[tuple[str, str, str]]:
    """Name, value and meaning of every setting."""
    from danseo.settings.declaring import declared, flat, setting_help, setting_paths

    kind: Any = type(config)
    shown = {name: {None: "none", "": "–"}.get(value, str(value)) for name, value in flat(config).items()}
    declarations = declared(kind)
    return [
        (name, shown[name], setting_help(cls)[attribute])
        for name, (cls, attribute) in setting_paths(kind).items()
        if not declarations[name].metadata.get("by_command")
    ]


_USES = {
    "tasks": "danseo train {}.toml --data DIR",
    "sweeps": "danseo sweep {}",
    "pretrain": "danseo pretrain --config {}",
}


def ready_table() -> Table:
    """The settings files that come with danseo."""
    from danseo.recipes import purpose, ready_files, recipe_folder

    rows: list[tuple[object, ...]] = []
    for name, path in ready_files().items():
        use = _USES.get(path.parent.name, f"danseo train {path.stem.split('-')[0]} --recipe {path.parent.name}")
        rows.append((name, purpose(path), use.format(path.stem)))
    note = f"in {recipe_folder()}; `danseo configs NAME` prints one, and --out copies it to edit"
    return Table("settings files that come with danseo", ("name", "what for", "used by"), rows, note)
