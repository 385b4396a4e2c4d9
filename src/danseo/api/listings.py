"""The tables of `danseo tasks`, `data check`, `settings`, `configs` and `docs`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.data.find import FileReport, find_file
from danseo.display.table import Table
from danseo.errors import DanseoError, suggest
from danseo.language import Message, _, join
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task

if TYPE_CHECKING:
    from danseo.config.run import RunConfig


def make_task_tables(root: Path) -> list[Table]:
    """Return a table of all tasks."""
    rows: list[tuple[object, ...]] = [
        (
            task.name,
            task.short,
            Message(task.title),
            task.type.name,
            task.headline,
            len(task.metrics),
            list_splits(task, root),
        )
        for task in TASKS.values()
    ]
    columns = ("task", "KLUE", "description", "type", "headline metric", "metrics", "data")
    return [Table("tasks", columns, rows, describe_data(list(TASKS.values()), root))]


def describe_data(tasks: Sequence[Task], root: Path) -> str:
    """Return a note about the data folder and how to download missing data."""
    whole = all(find_file(task, split, root) for task in tasks for split in ("train", "dev"))
    here = _("data folder: {root}").format(root=root)
    get = _("download it with `danseo data get`, copy it with `danseo data get --from FOLDER`, or try --data sample")
    return here if whole else join((here, get), "; ")


def list_splits(task: Task, root: Path) -> str:
    """Return the splits whose file exists."""
    return ", ".join(split for split in ("train", "dev") if find_file(task, split, root)) or "missing"


def describe_task(task: Task, root: Path) -> list[Table]:
    """Return the tables of one task: its files, metrics and labels."""
    facts: list[tuple[object, ...]] = [
        ("name", task.name if task.custom else f"{task.name} ({task.short})"),
        ("type", task.type.name),
        ("files", list_files(task)),
        *([] if task.custom else [("official rows", _describe_official(task))]),
        ("data", list_splits(task, root)),
        ("labels", ", ".join(task.labels) or "none"),
    ]
    metrics: list[tuple[object, ...]] = [(id_, metric.description) for id_, metric in task.metrics.items()]
    about = Table(task.title, ("what", "value"), facts, describe_data([task], root))
    return [about, Table("metrics", ("id", "meaning"), metrics, "headline first")]


def _describe_official(task: Task) -> str:
    return ", ".join(f"{split} {rows:,}" for split, rows in task.official_rows.items())


def list_files(task: Task) -> str:
    """Return the names of a task's files; a custom task may hold out a part of one file."""
    if task.custom:
        share = task.custom.share
        return f"{task.custom.train}, {f'{share:.0%} of it held out' if share else task.custom.dev}"
    return ", ".join(f"{task.folder}/{task.file(split)}" for split in ("train", "dev"))


def make_task_document(task: Task, root: Path) -> dict[str, Any]:
    """Return one task as a JSON document."""
    found = {split: find_file(task, split, root) for split in ("train", "dev")}
    return {
        "name": task.name,
        "klue": task.short,
        "title": task.title,
        "type": task.type.name,
        "headline": task.headline,
        "metrics": {id_: metric.description for id_, metric in task.metrics.items()},
        "labels": list(task.labels),
        "official_rows": dict(task.official_rows),
        "files": {split: str(path) if path else None for split, path in found.items()},
    }


def _shorten_path(report: FileReport, root: Path) -> str:
    if report.path is None:
        return report.part
    return str(report.path.relative_to(root) if report.path.is_relative_to(root) else report.path)


def make_check_table(reports: Sequence[FileReport], root: Path) -> Table:
    """Return a table with one row per expected file."""
    rows: list[tuple[object, ...]] = [
        (
            report.task,
            _shorten_path(report, root),
            report.rows,
            report.official_rows,
            report.sha256[:12] if report.sha256 else None,
            report.verdict,
            report.note,
        )
        for report in reports
    ]
    return Table(f"data in {root}", ("task", "file", "rows", "official", "sha256", "verdict", "note"), rows)


def make_settings_table(config: Any = None) -> Table:
    """Return a table of the settings of a run, or of another command, with their defaults."""
    from danseo.config.run import RunConfig

    config = config or RunConfig(task="", model="")
    rows: list[tuple[object, ...]] = [(name, value, meaning) for name, value, meaning in _list_settings(config)]
    note = "recipes may start from other values; `danseo settings TASK` shows those of a run"
    return Table("settings", ("setting", "default", "meaning"), rows, note if isinstance(config, RunConfig) else "")


def make_resolved_table(config: "RunConfig", path: Path) -> Table:
    """Return a table of the settings of a recipe beside the defaults."""
    from danseo.config.run import RunConfig

    defaults = [value for _, value, _ in _list_settings(RunConfig(task="", model=""))]
    columns = zip(_list_settings(config), defaults, strict=True)
    rows: list[tuple[object, ...]] = [(name, value, default, meaning) for (name, value, meaning), default in columns]
    note = f"from {path}"
    if config.recipe == "official" and not config.model:
        note += "; official settings differ by size and family, so name the encoder with -m"
    title = f"settings of {config.task}, recipe {config.recipe}" + (f", {config.model}" if config.model else "")
    return Table(title, ("setting", "value", "default", "meaning"), rows, note)


def _list_settings(config: Any) -> list[tuple[str, str, str]]:
    """Return the name, value and meaning of every setting."""
    from danseo.config.base import BY_COMMAND, Config, flatten_config, list_settings, setting_help

    cls: type[Config] = type(config)
    shown = {name: {None: "none", "": "–"}.get(value, str(value)) for name, value in flatten_config(config).items()}
    fields = list_settings(cls).items()
    return [(name, shown[name], setting_help(name, cls)) for name, field in fields if BY_COMMAND not in field.metadata]


def make_settings_page() -> str:
    """Return the reference page of all settings, in Markdown."""
    from danseo.config.base import setting_bounds, value_names
    from danseo.config.mlm import CorefConfig, PretrainConfig
    from danseo.config.run import RunConfig

    lines = [
        "# Settings",
        "",
        "All settings with their values, defaults and meanings. `tools/reference_pages.py` writes this page from their",
        "declarations. `--set KEY=VALUE` changes a setting. The section may be left out",
        "if only one section has a setting of this name.",
    ]
    parts: list[tuple[str, Any]] = [
        ("`danseo train`, `prompt`, `sweep`, `tune train`", RunConfig(task="", model="")),
        ("`danseo pretrain`", PretrainConfig()),
        ("`danseo coref`", CorefConfig(checkpoint="")),
    ]
    for title, config in parts:
        lines += ["", f"## {title}", "", "| setting | values | default | meaning |", "|---|---|---|---|"]
        for name, default, meaning in _list_settings(config):
            values = f"{value_names(name, type(config))} {setting_bounds(name, type(config))}".strip()
            cells = (f"`{name}`", values.strip("[]").replace("|", ", "), default, meaning.replace("|", "\\|"))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_USES = {
    "tasks": "danseo train {}.toml --data DIR",
    "sweeps": "danseo sweep {}",
    "pretrain": "danseo pretrain --config {}",
    "prompts": "danseo prompt TASK -m MODEL --prompt {}.txt",
}


def make_config_table() -> Table:
    """Return a table of the bundled settings files and prompts."""
    from danseo.config.recipes import find_configs_folder, list_bundled_files, read_purpose

    rows: list[tuple[object, ...]] = []
    for name, path in list_bundled_files().items():
        use = _USES.get(name.split("/")[0], f"danseo train {path.stem.split('-')[0]} --recipe {path.parent.name}")
        rows.append((name, read_purpose(path), use.format(path.stem)))
    note = f"in {find_configs_folder()}; `danseo configs NAME` prints one, and --out copies it to edit"
    return Table("settings files and prompts that come with danseo", ("name", "description", "used by"), rows, note)


def find_docs_folder() -> Path:
    """Return docs/ of the installed package, or of the checkout."""
    package = Path(__file__).parents[1]
    return package / "docs" if (package / "docs").is_dir() else package.parents[1] / "docs"


_PAGE_FOLDERS = ("guides", "tutorials", "reference", "explanation")
"""Folders of pages, in the order in which a short name is looked up."""


def list_pages(language: str = "en") -> dict[str, Path]:
    """Return the pages by name: index, guides/train, …; English where a language does not have the page."""
    root = find_docs_folder()
    english = [path for path in sorted(root.rglob("*.md")) if not path.stem.endswith(".ko")]
    translated = {path: path.with_suffix(f".{language}.md") for path in english}
    return {
        path.relative_to(root).with_suffix("").as_posix(): translated[path] if translated[path].is_file() else path
        for path in english
    }


def find_page(name: str, language: str = "en") -> Path:
    """Return the page of a name: guides/train, docs/guides/train.md, or train."""
    pages = list_pages(language)
    wanted = name.removeprefix("docs/").removesuffix(".md").removesuffix(".ko").lower()
    for full_name in (wanted, *(f"{folder}/{wanted}" for folder in _PAGE_FOLDERS)):
        if full_name in pages:
            return pages[full_name]
    by_last_part = {full_name.rpartition("/")[2]: full_name for full_name in pages}
    hint = suggest(wanted, [*pages, *by_last_part], 0.5)
    raise DanseoError(_("no such page: {name}; {hint}`danseo docs` lists the pages").format(name=name, hint=hint))


def make_docs_table(language: str = "en") -> Table:
    """List the pages with their titles."""
    rows: list[tuple[object, ...]] = [(name, _read_title(path)) for name, path in list_pages(language).items()]
    note = f"in {find_docs_folder()}; `danseo docs NAME` prints a page"
    return Table("documentation", ("page", "description"), rows, note)


def _read_title(path: Path) -> str:
    return next((line.removeprefix("# ") for line in path.read_text("utf-8").splitlines() if line.startswith("# ")), "")
