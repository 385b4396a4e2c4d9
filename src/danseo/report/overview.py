"""The first page: the best run of each task, the KLUE table, all runs, data and versions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from danseo.display.plots.figures import Forest
from danseo.display.table import Best, Table, compact, format_interval
from danseo.language import Message, _, join, ngettext
from danseo.report.collection import Collection
from danseo.report.comparison import TaskComparison
from danseo.report.html import Block, FigureBlock, Page, PageSection, TableBlock
from danseo.report.task_page import find_best_runs, get_estimate, get_majority_score, make_task_title, rank_runs
from danseo.runs.index import Record
from danseo.runs.provenance import describe_split, is_of_sample, list_run_labels
from danseo.tables.klue import list_klue_spreads, make_klue_tables
from danseo.tables.published import find_comparable_scores
from danseo.tables.runs import format_score
from danseo.tasktypes.base import Task

_TIED = 3  # runs that are named
_VERSIONS = ("danseo", "commit", "python", "torch", "transformers", "device")


def make_overview_page(
    collection: Collection, compared: Mapping[str, TaskComparison], *, with_runs: bool = True
) -> Page:
    """Return the overview of all runs; `compared` has the paired tests by task."""
    sections = [
        PageSection("Best per task", [*_draw_leaders(collection), _make_leader_table(collection, compared)]),
        PageSection("The KLUE table", _make_klue_table(collection)),
        PageSection("Runs", [_make_run_table(collection, compared)] if with_runs else []),
        PageSection("Data and versions", [_make_data_table(collection), _make_version_table(collection)]),
    ]
    shown = [section for section in sections if section.blocks]
    return Page("overview", "Overview", _write_lead(collection, bool(compared)), shown)


def _write_lead(collection: Collection, is_compared: bool) -> str:
    """Return the summary: how much was run, the best runs, and how to read the numbers."""
    done = [record for record in collection.records if record.status == "done"]
    if not collection.records:
        return _("There are no runs here yet; `danseo train` makes them.")
    models = len({record.identity for record in done})
    counts = {
        "runs": ngettext("{n} finished run", "{n:,} finished runs", len(done)),
        "models": ngettext("{n} model", "{n:,} models", models),
        "tasks": ngettext("{n} task", "{n:,} tasks", len(collection.tasks())),
    }
    sentences = [_("How well models do on Korean text: {runs} of {models} on {tasks}.").format(**counts)]
    leaders = _find_leaders(collection)
    names: dict[str, list[str]] = {}
    for task, record in leaders:
        if record.settings.get("model") != "majority":  # the baseline that models have to beat
            names.setdefault(_name_with_labels(collection, record), []).append(task.short)
    if names:
        best = [_("{name} in {tasks}").format(name=name, tasks=_join_words(shorts)) for name, shorts in names.items()]
        sentences.append(_("Best so far: {runs}.").format(runs=join(best, "; ")))
    if low := list(dict.fromkeys(task.short for task, record in leaders if not _beats_baseline(record))):
        text = _("In {tasks} no run is significantly better than the most frequent answer.")
        sentences.append(text.format(tasks=_join_words(low)))
    if invented := [task.short for task, record in leaders if is_of_sample(record)]:
        where = _("All of them") if len(invented) == len(leaders) else _("Those in {tasks}")
        text = _("{runs} used the bundled sample, which is invented text: these are not KLUE scores.")
        sentences.append(text.format(runs=where.format(tasks=_join_words(invented))))
    sentences.append(_("Scores go from 0 to 100, higher is better, with 95 % intervals."))
    sentences += [_("Runs with the same letter do not differ significantly (α = 5 %).")] if is_compared else []
    unfinished = len(collection.records) - len(done)
    more = ngettext("{n} more is not finished.", "{n:,} more are not finished.", unfinished)
    return join([*sentences, *([more] if unfinished else [])])


def _join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else _("{first} and {last}").format(first=", ".join(words[:-1]), last=words[-1])


def _find_leaders(collection: Collection) -> list[tuple[Task, Record]]:
    """Return the best run of each task, one for each dev set that its runs answered."""
    leaders = ((task, record) for task in collection.tasks() for record in find_best_runs(collection.done(task)))
    return [(task, record) for task, record in leaders if record.value() is not None]


def _beats_baseline(record: Record) -> bool:
    """Return whether the interval is above the score of the most frequent answer."""
    baseline, score = get_majority_score(record), record.score() or {}
    return baseline is None or not score.get("interval") or bool(score["interval"][0] > baseline)


def _draw_leaders(collection: Collection) -> list[Block]:
    """Return a figure of the best run of each task, with baseline and published score."""
    leaders = _find_leaders(collection)
    if len(leaders) < 2:
        return []
    rows: list[tuple[object, ...]] = []
    values = []
    for task, record in leaders:
        low, value, high = get_estimate(record)
        values.append((low, value, high))
        comparable = [] if is_of_sample(record) else find_comparable_scores(task.headline)
        published = comparable[0].value if comparable else None
        name = f"{task.short}: {_name_with_labels(collection, record)}"
        rows.append((name, task.headline, value, low, high, get_majority_score(record), published))
    columns = ("task and run", "metric", "score", "low", "high", "most frequent answer", "best published, dev")
    table = Table("best runs", columns, rows)
    names, *_others, baselines, published_scores = table.by_column()
    references: list[tuple[str, list[Any]]] = [
        (_("most frequent answer"), baselines),
        (_("best published model, on dev"), published_scores),
    ]
    drawn = [each for each in references if any(value is not None for value in each[1])]
    figure = Forest(cast("list[str]", names), values, "headline metric of each task", references=drawn)
    caption = _("dots are the best run of each task with its 95 % interval")
    if references[1] in drawn:
        caption += _("; published scores are on the whole dev set, and usually selected on it")
    return [FigureBlock("The best run of each task", figure, table, caption)]


def _name_with_labels(collection: Collection, record: Record) -> str:
    """Return the name of a run with the labels that it does not have yet: those that all runs share."""
    name = collection.name(record)
    labels = [label for label in map(str, list_run_labels(record)) if label not in name]
    return f"{name} ({', '.join(labels)})" if labels else name


def _make_leader_table(collection: Collection, compared: Mapping[str, TaskComparison]) -> Block:
    rows: list[tuple[object, ...]] = []
    links: list[dict[str, str]] = []
    metrics: list[dict[str, str]] = []
    for task, best in _find_leaders(collection):
        links.append({_make_task_title(task): f"task/{task.name}", collection.name(best): collection.key(best)})
        rows.append((_make_task_title(task), *_make_leader_row(collection, task, best, compared)))
        metrics.append({"task": task.headline})
    columns = ("task", "best run", "score", "95 % interval", "most frequent answer", "tied with", "n", "scored on")
    table = Table(
        "best run per task", columns, rows, _("small print: the metric of the score"), keys=2, once=("scored on",)
    )
    return TableBlock(compact(table).without_empty(), row_links=links, beneath=metrics)


def _make_task_title(task: Task) -> str:
    """Return a title such as "TC, topic classification"; a custom task has one name."""
    return make_task_title(task) if task.short == task.name else join([f"{task.short}, ", Message(task.title)], "")


def _make_leader_row(
    collection: Collection, task: Task, best: Record, compared: Mapping[str, TaskComparison]
) -> tuple[object, ...]:
    score, name = best.score() or {}, collection.name(best)
    tested = compared.get(task.name, TaskComparison())
    letters, system = tested.letters(), tested.system(name)
    without = {collection.name(record) for record in collection.done(task) if record.value() is None}
    tied = [
        n for n, own in letters.items() if n != system and n not in without and set(own) & set(letters.get(system, ""))
    ]
    baseline = get_majority_score(best)
    interval = format_interval(score["interval"])
    ties = ", ".join(tied[:_TIED])
    if len(tied) > _TIED:
        ties = _("{first} and {n} more").format(first=ties, n=len(tied) - _TIED)
    return name, Best(score["value"]), interval, baseline, ties or None, score["n"], describe_split(best)


def _make_klue_table(collection: Collection) -> list[Block]:
    table = make_klue_tables(collection.records)[0]
    spread = _("small print: the 95 % interval of one run, or ± the standard deviation over seeds")
    note = join([table.note, spread], "; ")
    return [TableBlock(replace(table, note=note), beneath=list_klue_spreads(collection.records))]


def _make_run_table(collection: Collection, compared: Mapping[str, TaskComparison]) -> Block:
    records = [
        r for task in collection.tasks() for r in rank_runs([r for r in collection.records if r.task == task.name])
    ]
    records += [record for record in collection.records if not record.settings]
    rows = []
    for record in records:
        letters = compared.get(record.task, TaskComparison()).letters_of(collection.name(record))
        group = letters if record.value() is not None else None
        task = record.task if record.settings else None
        facts = describe_split(record), record.surroundings.get("seconds"), record.status_line
        rows.append((collection.name(record), task, *format_score(record), group or None, *facts))
    columns = ("run", "task", "score", "95 % interval", "group", "scored on", "seconds", "status")
    table = compact(Table("all runs", columns, rows, _("score: the headline metric of each task"), once=("scored on",)))
    return TableBlock(table, row_links=[{collection.name(record): collection.key(record)} for record in records])


def _make_data_table(collection: Collection) -> Block:
    counts: Counter[tuple[str, ...]] = Counter(
        (record.task, str(name), str(sha))
        for record in collection.records
        for name, sha in (record.surroundings.get("data") or {}).items()
    )
    return _make_count_table("data", ("task", "file", "sha256"), counts)


def _make_version_table(collection: Collection) -> Block:
    counts: Counter[tuple[str, ...]] = Counter()
    for record in collection.records:
        if facts := record.surroundings:
            values = {**facts, **(facts.get("versions") or {})}
            counts[tuple(str(values.get(name) or "–") for name in _VERSIONS)] += 1
    return _make_count_table("versions", _VERSIONS, counts)


def _make_count_table(title: str, columns: tuple[str, ...], counts: Counter[tuple[str, ...]]) -> Block:
    rows = [(*key, count) for key, count in sorted(counts.items())]
    return TableBlock(Table(title, (*columns, "runs"), rows), folded=True)
