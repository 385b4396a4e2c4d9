"""The pages of a leaderboard: systems × tasks, one page per task and per system, and the refused bundles."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.display.escaping import visible
from danseo.display.plots.figures import Forest
from danseo.display.table import Best, Table, as_typed, compact, format_interval
from danseo.language import Message, _, join, ngettext
from danseo.report.comparison import TaskComparison
from danseo.report.html import Block, FigureBlock, NoteBlock, Page, PageSection, TableBlock
from danseo.report.task_page import make_task_title
from danseo.tables.published import find_comparable_scores
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task

_STATED = _("stated by the maker of the bundle, not verified: system, seed, and the split that selected the checkpoint")
_SPLITS = {"report": _("report split"), "dev": _("whole dev set"), "select": _("select split"), "fold": _("fold")}


@dataclass(frozen=True)
class LeaderboardEntry:
    """A verified run under its name on the leaderboard."""

    system: str
    bundle: str
    """The name of the bundle's file."""
    task: Task
    manifest: Mapping[str, Any]
    scores: Mapping[str, Sequence[Mapping[str, Any]]]
    """Scores by split, computed again."""

    @property
    def split(self) -> str:
        """The split that systems are compared on; a dev set of few examples has no report split."""
        return "report" if "report" in self.scores else "dev"

    def score(self, split: str = "") -> Mapping[str, Any]:
        """Return the headline score on a split; empty if it is undefined."""
        listed = self.scores.get(split or self.split, ())
        return next((s for s in listed if s["id"] == self.task.headline and s["value"] is not None), {})

    def rank_value(self, split: str = "") -> float:
        """Return the headline score, or a number below all scores."""
        return float(self.score(split).get("value", -1e9))


@dataclass(frozen=True)
class TaskResult:
    """The verified runs of a task with their paired tests."""

    task: Task
    entries: Sequence[LeaderboardEntry]
    """Best first."""
    compared: TaskComparison
    is_klue: bool
    """Whether the dev set is all of KLUE's, so that published scores are comparable."""

    def is_tied_with_best(self, system: str) -> bool:
        """Return whether a system is the best, or does not differ significantly from it."""
        best = self.entries[0].system
        return system == best or bool(set(self.compared.letters_of(system)) & set(self.compared.letters_of(best)))


def make_key(kind: str, name: str) -> str:
    """Return the key of a page, which is a safe file name: two names never share one."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{kind}-{name}" if name in TASKS else f"{kind}-{slug}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def make_leaderboard_pages(results: Sequence[TaskResult], failed: Mapping[str, str]) -> tuple[list[Page], list[Page]]:
    """Return all pages, and those that every page links to; failed has the reason why a bundle is refused."""
    systems: dict[str, list[tuple[TaskResult, LeaderboardEntry]]] = {}
    for result in results:
        for entry in result.entries:
            systems.setdefault(entry.system, []).append((result, entry))
    nav = [_make_index_page(results, systems, failed), *map(_make_task_page, results)]
    return [*nav, *(_make_system_page(system, systems[system]) for system in sorted(systems))], nav


def _make_index_page(
    results: Sequence[TaskResult],
    systems: Mapping[str, Sequence[tuple[TaskResult, LeaderboardEntry]]],
    failed: Mapping[str, str],
) -> Page:
    counts = {
        "systems": ngettext("{n} system", "{n:,} systems", len(systems)),
        "tasks": ngettext("{n} task", "{n:,} tasks", len(results)),
    }
    parts = [
        _("{systems} on {tasks}.").format(**counts),
        _("danseo verified every bundle and computed every score again from its predictions."),
        _("Scores go from 0 to 100, higher is better, with 95 % intervals."),
    ]
    if any(not result.is_klue and not result.task.custom for result in results):
        parts.append(_("The dev set is not all of KLUE's: these are not KLUE scores."))
    reasons = Table(
        "refused bundles", ("bundle", "reason"), sorted(failed.items()), _("their scores are not on this site")
    )
    published = [result for result in results if result.is_klue and find_comparable_scores(result.task.headline)]
    sections = [
        PageSection("Systems and tasks", _make_matrix(results, systems) if systems else []),
        PageSection("Published scores", _make_published_matrix(published) if published else []),
        PageSection("Refused bundles", [TableBlock(reasons)] if failed else []),
    ]
    return Page("index", "Leaderboard", join(parts), [section for section in sections if section.blocks])


def _make_matrix(
    results: Sequence[TaskResult], systems: Mapping[str, Sequence[tuple[TaskResult, LeaderboardEntry]]]
) -> list[Block]:
    """Return the table of systems × tasks; systems with most tasks first, then by their mean score."""
    rows: list[tuple[object, ...]] = []
    beneath, links = [], []
    values = {name: [entry.rank_value() for _result, entry in runs] for name, runs in systems.items()}
    for name in sorted(systems, key=lambda n: (-len(values[n]), -sum(values[n]) / len(values[n]), n)):
        by_task = {result.task.name: (result, entry) for result, entry in systems[name]}
        cells: list[object] = []
        small: dict[str, str] = {}
        for result in results:
            entry = by_task[result.task.name][1] if result.task.name in by_task else None
            score = entry.score() if entry else {}
            value = score.get("value")
            cells.append(Best(value) if value is not None and result.is_tied_with_best(name) else value)
            if score:
                parts = (format_interval(score["interval"]), result.compared.letters_of(name))
                small[result.task.short] = " · ".join(filter(None, parts))
        rows.append((name, *cells, len(by_task)))
        beneath.append(small)
        links.append({visible(name): make_key("system", name)})
    note = join(
        [
            _("small print: 95 % interval, and letters of the paired tests"),
            _("systems with the same letter do not differ significantly (α = 5 %, Holm's correction)"),
            _("bold: the best, and all that do not differ significantly from it"),
            join([_("metrics: "), ", ".join(f"{each.task.short} {each.task.headline}" for each in results)], ""),
            *([_("scored on the report split of dev")] if all(r.entries[0].split == "report" for r in results) else []),
        ],
        "; ",
    )
    columns = ("system", *(result.task.short for result in results), "tasks")
    table = Table("systems and tasks", columns, rows, note, keys=1)
    return [TableBlock(table, row_links=links, beneath=beneath), *_warn_selected(systems)]


def _warn_selected(systems: Mapping[str, Sequence[tuple[TaskResult, LeaderboardEntry]]]) -> list[Block]:
    """Return a warning that names the systems whose checkpoint was selected on the examples that are scored."""
    names = [n for n, runs in systems.items() if any(e.manifest["selected_on"] == "dev" for _result, e in runs)]
    text = _("selected on the examples that are scored, so their scores are too high: {systems}")
    return [NoteBlock(text.format(systems=", ".join(sorted(names))), "warning")] if names else []


def _make_published_matrix(results: Sequence[TaskResult]) -> list[Block]:
    """Return published models × tasks on the whole dev set, and the systems of the leaderboard on the same set."""
    published: dict[str, dict[str, float]] = {}
    own: dict[str, dict[str, float]] = {}
    for result in results:
        for score in reversed(find_comparable_scores(result.task.headline)):  # the highest is last
            published.setdefault(score.model, {})[result.task.name] = score.value
        for entry in result.entries:
            if entry.score("dev"):
                own.setdefault(entry.system, {})[result.task.name] = entry.rank_value("dev")
    note = _("same metric and split; not verified, usually selected on this set; the highest if there are several")
    ours = _make_value_table(_("this leaderboard, whole dev set"), own, results)
    apart = _make_value_table(_("published, whole dev set"), published, results, note)
    links = {visible(name): make_key("system", name) for name in own}
    return [TableBlock(ours, links), TableBlock(apart, folded=True)]


def _make_value_table(
    title: str, scores: Mapping[str, Mapping[str, float]], results: Sequence[TaskResult], note: str = ""
) -> Table:
    """Return names × tasks; names with most tasks first, then by their mean score."""
    order = sorted(scores, key=lambda n: (-len(scores[n]), -sum(scores[n].values()) / len(scores[n]), n))
    rows = [(name, *(scores[name].get(result.task.name) for result in results)) for name in order]
    return Table(title, ("system", *(result.task.short for result in results)), rows, note, keys=1)


def _make_task_page(result: TaskResult) -> Page:
    task, entries = result.task, result.entries
    title = Message(task.title[:1].upper() + task.title[1:], task.title)
    scored = _SPLITS[entries[0].split]
    lead = _("{title}: {systems}, scored on the {n:,} examples of the {split}.").format(
        title=title,
        systems=ngettext("{n} system", "{n:,} systems", len(entries)),
        n=entries[0].scores[entries[0].split][0]["n"],
        split=scored,
    )
    sections = [
        PageSection("Scores", [*_draw_scores(result), _make_score_table(result)]),
        PageSection("Paired tests", result.compared.blocks()),
        PageSection("Published scores", _make_published_tables(result)),
        PageSection("All metrics", [_make_metric_table([(entry.system, entry) for entry in entries], "system")]),
    ]
    return Page(
        make_key("task", task.name), make_task_title(task), lead, [section for section in sections if section.blocks]
    )


def _link_systems(entries: Sequence[LeaderboardEntry]) -> list[dict[str, str]]:
    return [{visible(entry.system): make_key("system", entry.system)} for entry in entries]


def _draw_scores(result: TaskResult) -> list[Block]:
    task, known = result.task, [entry for entry in result.entries if entry.score()]
    if not known:
        return []
    names = [entry.system for entry in known]
    marks = [result.compared.letters_of(name) for name in names]
    values = [(*_get_ends(entry)[:1], entry.rank_value(), *_get_ends(entry)[1:]) for entry in known]
    rows = [(name, value, low, high) for name, (low, value, high) in zip(names, values, strict=True)]
    table = Table(task.headline, ("system", "score", "low", "high"), rows)
    caption = _("bars are 95 % intervals over examples")
    caption += _("; systems with the same letter do not differ significantly (α = 5 %)") if any(marks) else ""
    figure = Forest(names, values, task.headline, marks)
    return [FigureBlock(task.metrics[task.headline].description, figure, table, caption)]


def _get_ends(entry: LeaderboardEntry) -> tuple[float | None, float | None]:
    low, high = entry.score()["interval"] or (None, None)
    return low, high


def _make_score_table(result: TaskResult) -> Block:
    rows = [
        (e.system, *_make_score_cells(e), result.compared.letters_of(e.system) or None, *_make_stated_cells(e))
        for e in result.entries
    ]
    columns = ("system", "score", "95 % interval", "group", "selected on", "seed", "bundle")
    table = Table(result.task.headline, columns, rows, _STATED, keys=1)
    return TableBlock(table, row_links=_link_systems(result.entries))


def _make_score_cells(entry: LeaderboardEntry, split: str = "") -> tuple[object, object]:
    score = entry.score(split)
    return score.get("value"), format_interval(score.get("interval"))


def _make_stated_cells(entry: LeaderboardEntry) -> tuple[object, object, object]:
    selected = str(entry.manifest["selected_on"])
    return _SPLITS.get(selected, selected), as_typed(entry.manifest["seed"]), entry.bundle


def _make_published_tables(result: TaskResult) -> list[Block]:
    """Return the systems on the whole dev set, and apart from them the published scores of the same metric."""
    published = find_comparable_scores(result.task.headline) if result.is_klue else []
    if not published:
        return []
    entries = sorted(result.entries, key=lambda entry: (-entry.rank_value("dev"), entry.system))
    rows = [(entry.system, *_make_score_cells(entry, "dev")) for entry in entries]
    own = Table(_("this leaderboard, whole dev set"), ("system", "score", "95 % interval"), rows, keys=1)
    others = [(each.model, each.value, each.source, each.note or None) for each in published]
    note = _("same metric and split; not verified, and usually selected on this set")
    apart = Table(_("published, whole dev set"), ("model", "score", "source", "note"), others, note, keys=1)
    return [TableBlock(own, row_links=_link_systems(entries)), TableBlock(apart.without_empty())]


def _make_metric_table(named: Sequence[tuple[str, LeaderboardEntry]], column: str) -> Block:
    """Return every score of these entries under a heading per split and metric."""
    rows: list[tuple[object, ...]] = [
        (
            join([score["id"], _SPLITS[split]], ", "),
            name,
            score["value"],
            format_interval(score["interval"]),
            score["n"],
        )
        for split in ("report", "dev")
        for name, entry in named
        for score in entry.scores.get(split, ())
    ]
    columns = ("metric and split", column, "score", "95 % interval", "n")
    order = {heading: number for number, heading in enumerate(dict.fromkeys(row[0] for row in rows))}
    rows.sort(key=lambda row: order[row[0]])
    return TableBlock(Table("all metrics", columns, rows, section="metric and split", keys=2), folded=True)


def _make_system_page(system: str, runs: Sequence[tuple[TaskResult, LeaderboardEntry]]) -> Page:
    """Return the page of a system: its score in every task, all metrics, and the hashes of its predictions."""
    rows: list[tuple[object, ...]] = []
    hashes: list[tuple[object, ...]] = []
    for result, entry in runs:
        cells = (*_make_score_cells(entry), result.compared.letters_of(system) or None)
        place = _("{place} of {all}").format(place=result.entries.index(entry) + 1, all=len(result.entries))
        rows.append((make_task_title(entry.task), entry.task.headline, *cells, place, *_make_stated_cells(entry)))
        hashes += [(entry.bundle, make_task_title(entry.task), *file) for file in entry.manifest["files"].items()]
    links = [{visible(make_task_title(result.task)): make_key("task", result.task.name)} for result, _entry in runs]
    columns = ("task", "metric", "score", "95 % interval", "group", "place", "selected on", "seed", "bundle")
    scores = compact(Table("scores", columns, rows, _STATED, keys=2))
    files = Table("verified files", ("bundle", "task", "file", "sha256"), hashes, keys=3)
    metrics = _make_metric_table([(make_task_title(entry.task), entry) for _result, entry in runs], "task")
    sections = [
        PageSection("Scores", [TableBlock(scores, row_links=links)]),
        PageSection("All metrics", [metrics]),
        PageSection("Files", [TableBlock(files, folded=True)]),
    ]
    lead = ngettext("{n} task, verified from predictions.", "{n:,} tasks, verified from predictions.", len(runs))
    return Page(make_key("system", system), system, lead, sections)
