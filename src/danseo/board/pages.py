"""The pages of the board, built on request and cached until the runs change; the status of running trainings."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from danseo.board.run_cache import RunCache, Snapshot
from danseo.display.progress import format_duration
from danseo.display.table import Table
from danseo.errors import DanseoError, get_message
from danseo.files import find_own_files, read_json_lines
from danseo.language import _
from danseo.report.build import OTHER_PAGES, list_other_links, make_other_pages
from danseo.report.collection import Collection
from danseo.report.comparison import TaskComparison, compare_task
from danseo.report.error_examples import find_disagreements
from danseo.report.html import NoteBlock, Page, PageSection, TableBlock, make_jinja_environment
from danseo.report.mlm_page import find_masked_trainings
from danseo.report.overview import make_overview_page
from danseo.report.run_page import make_run_page
from danseo.report.sweeps_page import UNFINISHED, count_sweep_states, get_sweep_name, is_running
from danseo.report.task_page import make_task_page, rank_runs, read_log
from danseo.runs.index import Record
from danseo.runs.progress_file import ProgressFile, ProgressRecord
from danseo.runs.provenance import describe_split
from danseo.sweeps.plan import SWEEP_LOG
from danseo.tables.runs import format_score
from danseo.tasktypes.base import Task

_ALIVE_SECONDS = 120.0  # seconds since the last progress of a running training
_RECENT_SECONDS = 7 * 86400.0  # seconds since the last progress of a listed training or sweep
_MAX_LISTED = 50


def make_live_status(snapshot: Snapshot) -> dict[str, Any]:
    """Return the unfinished trainings and sweeps of a folder, for the page that polls them."""
    now = time.time()
    unfinished = [record for record in snapshot.collection.records if record.status == "unfinished"]
    trainings = [fact for record in unfinished if (fact := describe_training(snapshot, record, now))]
    collection = snapshot.collection
    masked = find_masked_trainings(collection.folders, collection.keys)
    trainings += [fact for name, path in masked if (fact := describe_mlm_training(name, path, now))]
    sweeps = [
        describe_sweep(path, now)
        for path in find_own_files(snapshot.collection.folders[0], f"*{SWEEP_LOG}")[:_MAX_LISTED]
    ]
    recent = [each for each in trainings if each["alive"] or each["seconds_since"] < _RECENT_SECONDS]
    return {
        "version": snapshot.version,
        "running": recent[:_MAX_LISTED],
        "sweeps": [each for each in sweeps if each],
        "runs": len(snapshot.collection.records),
    }


def describe_training(snapshot: Snapshot, record: Record, now: float) -> dict[str, Any] | None:
    """Return the progress of a training, or None if it has no progress file."""
    progress = ProgressFile(record.run.path).read()
    if progress is None:
        return None
    log = read_log(record)
    last = log[-1] if log else {}
    facts = {"run": snapshot.collection.name(record), "page": snapshot.collection.key(record), "task": record.task}
    return (
        facts
        | _describe_progress(record.run.path, progress, now)
        | {name: last.get(name) for name in ("score", "best", "loss")}
    )


def describe_mlm_training(name: str, path: Path, now: float) -> dict[str, Any] | None:
    """Return the progress of a masked language model with its loss, or None."""
    progress = ProgressFile(path).read()
    if progress is None:
        return None
    losses = [line["loss"] for line in read_json_lines(path / "log.jsonl") if isinstance(line.get("loss"), int | float)]
    facts = {"run": name, "page": "masked", "task": "masked LM"}
    return (
        facts
        | _describe_progress(path, progress, now)
        | {"score": None, "best": None, "loss": losses[-1] if losses else None}
    )


def _describe_progress(path: Path, progress: ProgressRecord, now: float) -> dict[str, Any]:
    return {
        "step": progress.step,
        "total": progress.total,
        "percent": round(100 * progress.share, 1),
        "left_seconds": round(progress.left()),
        "alive": now - progress.time < _ALIVE_SECONDS and is_running(path) is not False,
        "seconds_since": max(0, round((now - progress.time) / 10) * 10),
    }


def describe_sweep(path: Path, now: float) -> dict[str, Any] | None:
    """Return the number of runs per state of an unfinished recent sweep, else None."""
    try:
        is_news = now - path.stat().st_mtime < _RECENT_SECONDS
    except OSError:
        return None
    states = count_sweep_states(path, now) if is_news else {}
    if not any(state in UNFINISHED for state in states):
        return None
    return {"sweep": get_sweep_name(path), "states": states, "alive": "running" in states}


PER_PAGE = 200
_EXAMPLES = 20
_MAX_CACHED = 64  # pages
_DIGITS = 9  # of a page number
_MAX_COMPARED = 6  # runs on the compare page
_CACHE_SECONDS = 20.0  # seconds that pages of sweeps and pre-trainings are kept

Query = Mapping[str, Sequence[str]]


@dataclass
class PageBuilder:
    """Builds and caches the pages of one folder of runs."""

    index: RunCache
    token: str | None = None
    model_address: str | None = None
    """The address of a model that is served beside the board."""
    _pages: "OrderedDict[tuple[object, ...], Any]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def href(self, key: str, language: str = "") -> str:
        """Return the address of a page; the key may have a query, and the visitor may have chosen a language."""
        path, _mark, requested = key.partition("?")
        queries = [requested, urlencode(self._list_hidden(language))]
        query = "&".join(filter(None, queries))
        return ("/" if path == "overview" else f"/{quote(path)}") + (f"?{query}" if query else "")

    def _list_hidden(self, language: str) -> dict[str, str]:
        """Return the parameters that all addresses and forms of a visitor have."""
        return {**({"token": self.token} if self.token else {}), **({"lang": language} if language else {})}

    def page(self, key: str, query: Query) -> Page | None:
        """Return the page of a key, or None."""
        snapshot = self.index.snapshot()
        record = snapshot.by_key.get(key)
        if record and record.status == "unfinished":
            return self._make_or_explain(key, lambda: self._make_running_page(snapshot, record))  # never cached
        time_key = _make_time_key() if key in OTHER_PAGES else ()
        page: Page | None = self._get_cached(
            (*time_key, *_make_query_key(snapshot, key, query)),
            lambda: self._make_or_explain(key, lambda: self._make(snapshot, key, query)),
        )
        return page

    def _make_or_explain(self, key: str, make: Callable[[], Page | None]) -> Page | None:
        """Return the page, or one with the error: a run may change while it is read."""
        try:
            return make()
        except DanseoError as error:
            return Page(
                key,
                key,
                _("This page cannot be made."),
                [PageSection("Why", [NoteBlock(get_message(error), "warning")])],
            )

    def html(self, key: str, query: Query, language: str = "en", chosen: str = "") -> str | None:
        """Return the page as HTML in a language, or None; `chosen` is the language that the visitor chose."""
        snapshot = self.index.snapshot()
        page = self.page(key, query)
        if page is None:
            return None
        if key in OTHER_PAGES or (key in snapshot.by_key and snapshot.by_key[key].status == "unfinished"):
            return self._render(snapshot, page, query, language, chosen)
        key_of_page = ("html", language, chosen, *_make_query_key(snapshot, key, query))
        text: str = self._get_cached(key_of_page, lambda: self._render(snapshot, page, query, language, chosen))
        return text

    def _render(self, snapshot: Snapshot, page: Page, query: Query, language: str, chosen: str) -> str:
        collection = snapshot.collection
        tasks = [(f"task/{task.name}", task.short) for task in collection.tasks()]
        others = self._get_cached(
            _make_time_key("links"), lambda: list_other_links(collection.folders, collection.keys)
        )
        nav = [("overview", "Overview"), ("runs", "Runs"), *tasks, *others, ("compare", "Compare")]
        text: str = (
            make_jinja_environment(language)
            .get_template("board.html")
            .render(
                page=page,
                seen=snapshot.version,
                href=lambda key: self.href(key, chosen),
                switch=lambda code: self.href(f"{page.key}?{urlencode(query, doseq=True)}", code),
                nav=nav,
                form=self._make_form(snapshot, page, query),
                hidden=self._list_hidden(chosen),
                model=self.model_address,
            )
        )
        return text

    def _get_cached(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
        value = make()
        with self._lock:
            self._pages[key] = value
            while len(self._pages) > _MAX_CACHED:
                self._pages.popitem(last=False)
        return value

    def _make(self, snapshot: Snapshot, key: str, query: Query) -> Page | None:
        collection = snapshot.collection
        kind, _slash, name = key.partition("/")
        if key == "overview":
            return make_overview_page(collection, {}, with_runs=False)
        if key == "runs":
            return make_runs_page(snapshot, query)
        if key == "compare":
            return make_compare_page(snapshot, query)
        if key in OTHER_PAGES:
            pages = make_other_pages(collection.folders, collection.data_dir, collection)
            return next((page for page in pages if page.key == key), None)
        if kind == "task" and (task := next((each for each in collection.tasks() if each.name == name), None)):
            return make_task_page(collection, task, self._compare_task(snapshot, task), _EXAMPLES)
        record = snapshot.by_key.get(key)
        return make_run_page(collection, record, _EXAMPLES) if record else None

    def _compare_task(self, snapshot: Snapshot, task: Task) -> TaskComparison:
        """Return the paired tests of a task; new runs of other tasks do not change them."""
        done = snapshot.collection.done(task)
        names = tuple((snapshot.collection.name(r), str(r.run.path), r.surroundings.get("seconds")) for r in done)
        compared: TaskComparison = self._get_cached(
            ("compared", task.name, names), lambda: compare_task(snapshot.collection, task, done)
        )
        return compared

    def _make_running_page(self, snapshot: Snapshot, record: Record) -> Page:
        page = make_run_page(snapshot.collection, record, _EXAMPLES)
        facts = describe_training(snapshot, record, time.time())
        if not facts:
            return page
        steps = _("{step:,} of {total:,} ({percent:g} %)").format(**{k: facts[k] for k in ("step", "total", "percent")})
        left = format_duration(facts["left_seconds"] if facts["alive"] else facts["seconds_since"])
        columns = ("steps", _("time left") if facts["alive"] else _("stopped since"), "score", "best", "loss")
        scores = (facts[name] for name in ("score", "best", "loss"))
        table = Table("progress", columns, [(steps, left, *scores)]).without_empty()
        rest = [each for each in page.sections if each.title != "Scores"]  # there are none yet
        return Page(page.key, page.title, page.lead, [PageSection("Progress", [TableBlock(table)]), *rest])

    def _make_form(self, snapshot: Snapshot, page: Page, query: Query) -> dict[str, Any] | None:
        """Return the values of a page's form, or None."""
        if page.key == "runs":
            tasks = [task.name for task in snapshot.collection.tasks()]
            return {
                "kind": "runs",
                "q": get_first_value(query, "q"),
                "task": get_first_value(query, "task"),
                "tasks": tasks,
            }
        if page.key != "compare":
            return None
        chosen = set(query.get("run", ()))
        task = get_first_value(query, "task") or next((r.task for k, r in snapshot.by_key.items() if k in chosen), "")
        collection = snapshot.collection
        done = rank_runs([r for r in collection.records if r.task == task and r.status == "done"])[:PER_PAGE]
        listed = [(collection.key(r), collection.name(r), collection.key(r) in chosen) for r in done]
        tasks = [task.name for task in collection.tasks()]
        return {"kind": "compare", "task": task, "tasks": tasks, "runs": listed}


def _make_time_key(*what: str) -> tuple[object, ...]:
    """Return a cache key that changes every few seconds, for pages that change without a run."""
    return (*what, int(time.monotonic() / _CACHE_SECONDS))


def _make_query_key(snapshot: Snapshot, key: str, query: Query) -> tuple[object, ...]:
    return snapshot.version, key, *((name, *values) for name, values in sorted(query.items()))


def get_first_value(query: Query, name: str) -> str:
    """Return the first value of a parameter, or nothing."""
    return next(iter(query.get(name, ())), "")


def make_runs_page(snapshot: Snapshot, query: Query) -> Page:
    """Return the list of runs in pages of 200, filtered by q and task."""
    collection, task = snapshot.collection, get_first_value(query, "task")
    terms = get_first_value(query, "q").casefold().split()
    chosen = [
        record
        for record in collection.records
        if (not task or record.task == task)
        and all(
            word in f"{collection.name(record)} {record.run.path.name} {record.status}".casefold() for word in terms
        )
    ]
    pages = max(1, -(-len(chosen) // PER_PAGE))
    requested = get_first_value(query, "page")
    number = min(pages, max(1, int(requested) if requested.isdecimal() and len(requested) < _DIGITS else 1))
    listed = chosen[(number - 1) * PER_PAGE : number * PER_PAGE]
    counts = {"n": len(chosen), "all": len(collection.records)}
    lead = _("{n:,} of {all:,} runs.").format(**counts)
    if pages > 1:
        lead = _("{n:,} of {all:,} runs, page {page} of {pages}.").format(**counts, page=number, pages=pages)
    blocks = [_make_run_table(collection, listed)]
    neighbours = [
        (f"page {k}", {**{n: v for n, v in query.items() if n != "page"}, "page": [str(k)]})
        for k in (number - 1, number + 1)
        if 1 <= k <= pages
    ]
    if neighbours:
        table = Table("more", ("more",), [(name,) for name, _ in neighbours])
        blocks.append(
            TableBlock(table, {name: f"runs?{urlencode(requested, doseq=True)}" for name, requested in neighbours})
        )
    return Page("runs", "Runs", lead, [PageSection("All runs", blocks)])


def _make_run_table(collection: Collection, records: Sequence[Record]) -> TableBlock:
    rows = []
    for record in records:
        facts = describe_split(record), record.surroundings.get("seconds"), record.status_line
        rows.append((collection.name(record), record.task, *format_score(record), *facts))
    columns = ("run", "task", "score", "95 % interval", "scored on", "seconds", "status")
    links = [{collection.name(record): collection.key(record)} for record in records]
    return TableBlock(Table("runs", columns, rows), row_links=links)


def make_compare_page(snapshot: Snapshot, query: Query) -> Page:
    """Return the comparison of chosen runs and the examples on which the best two disagree."""
    collection = snapshot.collection
    keys = list(dict.fromkeys(query.get("run", ())))
    records = [snapshot.by_key[key] for key in keys if key in snapshot.by_key and snapshot.by_key[key].status == "done"]
    lead = _("Choose a task, then two to {n} of its finished runs for paired tests on common examples.")
    lead = lead.format(n=_MAX_COMPARED)
    if len(records) < 2:
        return Page("compare", "Compare", lead, [])
    if len(records) > _MAX_COMPARED or len({record.task for record in records}) > 1:
        note = NoteBlock(_("Choose two to {n} runs of one task.").format(n=_MAX_COMPARED), "warning")
        return Page("compare", "Compare", lead, [PageSection("Paired tests", [note])])
    task = records[0].run.task
    compared = compare_task(collection, task, records)
    best = rank_runs(records)
    examples = find_disagreements(collection, task, best[0], best[1], _EXAMPLES)
    sections = [
        PageSection("Scores", [_make_run_table(collection, best)]),
        PageSection("Paired tests", compared.blocks()),
        PageSection("Where the best two disagree", [examples]),
    ]
    return Page("compare", "Compare", lead, sections)
