"""The page of masked language models: trainings and probed checkpoints, as curves."""

import os
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from danseo.display.plots.figures import Chart
from danseo.display.table import Table, format_interval
from danseo.files import has_own_files, read_json_lines
from danseo.language import _, ngettext
from danseo.mlm.probing.results import (
    PROBE_NAMES,
    SUMMARY,
    find_series,
    group_tied_series,
    make_probe_chart,
    make_series_chart,
    read_record,
)
from danseo.mlm.tables import make_training_charts
from danseo.report.html import Block, FigureBlock, Page, PageSection, TableBlock
from danseo.runs.schemas import has_numbers
from danseo.sweeps.tuning import RESULT_COPY

_MAX_SECTIONS = 20  # trainings and probed folders on the page
TITLE = "Masked LMs"
SETTINGS = ("pretrain.toml", "coref.toml")
_WORK_FILES = (*SETTINGS, SUMMARY, "result.json")
_MAX_DEPTH = 4
_GROUP_NOTE = _(
    "Best checkpoints with the same letter do not differ significantly (McNemar's test, Holm's correction, α = 5 %)."
)


def find_work_files(folder: Path, runs: Collection[str] = (), depth: int = 0) -> Iterator[Path]:
    """Yield the files of sweeps and masked language models; do not follow links or look into runs."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == "config.toml" for entry in entries):
        return
    for entry in entries:
        if entry.is_file(follow_symlinks=False) and (entry.name in _WORK_FILES or entry.name.endswith(RESULT_COPY)):
            yield Path(entry.path)
        elif entry.path in runs or depth >= _MAX_DEPTH or entry.name.startswith("."):
            continue
        elif entry.is_dir(follow_symlinks=False):
            yield from find_work_files(Path(entry.path), runs, depth + 1)


def find_masked_trainings(folders: Sequence[Path], runs: Collection[str] = ()) -> list[tuple[str, Path]]:
    """Return the folders of masked language model trainings by name; known runs are not opened."""
    files = [path for folder in folders for path in find_work_files(folder, runs)]
    return [(_name_folder(path, folders), path) for path in _select_trainings(files)]


def _select_trainings(files: Sequence[Path]) -> list[Path]:
    return [path.parent for path in files if path.name in SETTINGS and has_own_files(path.parent)]


def make_mlm_pages(folders: Sequence[Path], files: Sequence[Path]) -> list[Page]:
    """Return the page about the trainings and probed checkpoints among the files; none if there are none."""
    trainings = _select_trainings(files)
    probed = [path for path in files if path.name == SUMMARY]
    named = [(_name_folder(path, folders), path) for path in trainings[:_MAX_SECTIONS]]
    sections = [
        PageSection(_("Training {name}").format(name=name), blocks)
        for name, path in named
        if (blocks := [_make_figure(chart) for chart in make_training_charts(read_json_lines(path / "log.jsonl"))])
    ]
    if sections:
        sections.insert(0, PageSection("Trainings", [_make_training_table(named)]))
    sections += _make_series_sections(probed)
    sections += [
        PageSection(_("Probes in {folder}").format(folder=_name_folder(path.parent, folders)), blocks)
        for path in probed[:_MAX_SECTIONS]
        if (blocks := _make_probe_blocks(path))
    ]
    if not sections:
        return []
    text = _(
        "Masked language models: {trainings} and {folders} of probed checkpoints. A loss is better when lower; found "
        "words and probes when higher."
    )
    lead = text.format(
        trainings=ngettext("{n} training", "{n} trainings", len(trainings)),
        folders=ngettext("{n} folder", "{n} folders", len(probed)),
    )
    return [Page("masked", TITLE, lead, sections)]


def _name_folder(path: Path, folders: Sequence[Path]) -> str:
    """Return the path of a folder below the searched folders, because two trainings may have the same name."""
    inside = [path.relative_to(folder).as_posix() for folder in folders if path.is_relative_to(folder)]
    return next((name for name in inside if name != "."), path.name)


def _make_training_table(named: Sequence[tuple[str, Path]]) -> Block:
    """Return a table with the steps and the best evaluation of each training."""
    rows: list[tuple[object, ...]] = []
    for name, path in named:
        lines, result = read_json_lines(path / "log.jsonl"), read_record(path / "result.json") or {}
        known = [line for line in lines if has_numbers(line, "step", "held_out_loss")]
        best = min(known, key=itemgetter("held_out_loss"), default={})
        rows.append(
            (
                name,
                _("entity fine-tuning") if (path / "coref.toml").is_file() else _("pre-training"),
                _("finished") if result else _("incomplete"),
                lines[-1].get("step") if lines else None,
                best.get("held_out_loss"),
                best.get("step"),
                _to_percent(best.get("held_out_accuracy")),
                result.get("train_tokens_per_second"),
            )
        )
    columns = ("training", "type", "state", "steps", "least held-out loss", "at step", "words found there, %")
    return TableBlock(Table("trainings", (*columns, "tokens per second"), rows).without_empty())


def _make_figure(chart: Chart) -> Block:
    rows: list[tuple[object, ...]] = [(c.name, x, y) for c in chart.curves for x, y in c.points]
    return FigureBlock(chart.title, chart, Table(chart.title.lower(), ("curve", "step", chart.y_label), rows))


def _make_probe_blocks(path: Path) -> list[Block]:
    """Return the probe scores of a folder over steps, or only as a table for one checkpoint."""
    results = (read_record(path) or {}).get("results")
    records = [record for record in results if isinstance(record, dict)] if isinstance(results, list) else []
    known = [name for name in PROBE_NAMES if any(isinstance(r.get(name), int | float) for r in records)]
    if not known:
        return []
    rows: list[tuple[object, ...]] = [
        (
            Path(str(r.get("checkpoint", "?"))).name,
            r.get("step"),
            *(_to_percent(r.get(name)) for name in known),
            _format_interval(r.get("strict1_interval")),
        )
        for r in records
    ]
    columns = ("checkpoint", "step", *(PROBE_NAMES[name] for name in known), "95 % of repeated nouns, strict@1")
    table = Table("probed checkpoints", columns, rows).without_empty()
    chart = make_probe_chart(records)
    return [FigureBlock("Probes over steps", chart, table)] if chart else [TableBlock(table)]


def _make_series_sections(paths: Sequence[Path]) -> list[PageSection]:
    """Return a figure with the curves of several trainings, and a table of their best checkpoints, per set of items."""
    sections = []
    for series, reference in find_series(paths):
        groups = group_tied_series(series)
        rows: list[tuple[object, ...]] = [
            (
                each.name,
                each.best["step"],
                _to_percent(each.best["strict1"]),
                _format_interval(each.best.get("strict1_interval")),
                groups.get(each.name),
            )
            for each in sorted(series, key=lambda each: -each.best["strict1"])
        ]
        if reference:
            rows.append(("reference", reference.get("step"), _to_percent(reference["strict1"]), None, None))
        columns = ("series", "best at step", PROBE_NAMES["strict1"], "95 %", "group")
        table = Table("best checkpoint of each series", columns, rows).without_empty()
        caption = _GROUP_NOTE if groups else ""
        figure = FigureBlock("Series over steps", make_series_chart(series, groups, reference), table, caption)
        names = ", ".join(each.name for each in series[:4])
        sections.append(PageSection(_("Probe series: {names}").format(names=names), [figure]))
    return sections


def _format_interval(ends: Any) -> str | None:
    """Return an interval of shares in percent; None if the file holds something else."""
    if isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, int | float) for end in ends):
        return format_interval((100 * ends[0], 100 * ends[1]))
    return None


def _to_percent(value: Any) -> float | None:
    return 100 * value if isinstance(value, int | float) else None
