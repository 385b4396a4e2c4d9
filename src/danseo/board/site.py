"""The pages of the board, made when they are asked for and kept until the runs change."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from danseo.board.index import RunIndex, Snapshot
from danseo.board.live import progress_table, training
from danseo.display.table import Table, shown_interval
from danseo.report.blocks import Block, ExamplesBlock, NoteBlock, Page, Section, TableBlock
from danseo.report.comparing import Compared, compare_task
from danseo.report.disagreeing import disagreements
from danseo.report.html import environment
from danseo.report.others import OTHERS, other_links, other_pages
from danseo.report.overview import overview_page
from danseo.report.run_page import run_page
from danseo.report.task_page import ranked, task_page
from danseo.runs.index import Record, protocol
from danseo.tasks.task import Task

PER_PAGE = 200
_EXAMPLES = 20
_KEPT = 64  # pages
_COMPARED = 6  # runs on the compare page
_FRESH = 20.0  # seconds that pages of sweeps and pre-trainings are kept

Query = Mapping[str, Sequence[str]]


@dataclass
class Site:
    """Pages of one folder of runs."""

    index: RunIndex
    token: str | None = None
    model_address: str | None = None
    """Where a model can be tried, if one is served beside the board."""
    _pages: "OrderedDict[tuple[object, ...], Any]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def href(self, key: str) -> str:
        """The address of a page; what follows a question mark is asked for already."""
        path, _, asked = key.partition("?")
        tokens = [*([asked] if asked else []), *([urlencode({"token": self.token})] if self.token else [])]
        return ("/" if path == "overview" else f"/{quote(path)}") + (f"?{'&'.join(tokens)}" if tokens else "")

    def page(self, key: str, query: Query) -> Page | None:
        """The page of a key; None where there is none."""
        snapshot = self.index.snapshot()
        record = snapshot.by_key.get(key)
        if record and record.status == "unfinished":
            return self._running(snapshot, record)  # it changes all the time
        asked = (*_recently(), *_asked(snapshot, key, query)) if key in OTHERS else _asked(snapshot, key, query)
        page: Page | None = self._remembered(asked, lambda: self._make(snapshot, key, query))
        return page

    def html(self, key: str, query: Query) -> str | None:
        """The page as HTML."""
        snapshot = self.index.snapshot()
        page = self.page(key, query)
        if page is None:
            return None
        if key in OTHERS or (key in snapshot.by_key and snapshot.by_key[key].status == "unfinished"):
            return self._rendered(snapshot, page, query)
        key_of_page = ("html", *_asked(snapshot, key, query))
        text: str = self._remembered(key_of_page, lambda: self._rendered(snapshot, page, query))
        return text

    def _rendered(self, snapshot: Snapshot, page: Page, query: Query) -> str:
        collection = snapshot.collection
        tasks = [(f"task/{task.name}", task.short) for task in collection.tasks()]
        others = self._remembered(_recently("links"), lambda: other_links(collection.folders, collection.keys))
        nav = [("overview", "Overview"), ("runs", "Runs"), *tasks, *others, ("compare", "Compare")]
        text: str = (
            environment()
            .get_template("board.html")
            .render(
                page=page,
                seen=snapshot.version,
                href=self.href,
                nav=nav,
                form=self._form(snapshot, page, query),
                token=self.token,
                model=self.model_address,
            )
        )
        return text

    def _remembered(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
        made = make()
        with self._lock:
            self._pages[key] = made
            while len(self._pages) > _KEPT:
                self._pages.popitem(last=False)
        return made

    def _make(self, snapshot: Snapshot, key: str, query: Query) -> Page | None:
        collection = snapshot.collection
        kind, _, name = key.partition("/")
        if key == "overview":
            return overview_page(collection, {}, with_runs=False)
        if key == "runs":
            return runs_page(snapshot, query)
        if key == "compare":
            return compare_page(snapshot, query)
        if key in OTHERS:
            pages = other_pages(collection.folders, collection.data_dir, collection)
            return next((page for page in pages if page.key == key), None)
        if kind == "task" and (task := next((each for each in collection.tasks() if each.name == name), None)):
            return task_page(collection, task, self._compared(snapshot, task), _EXAMPLES)
        record = snapshot.by_key.get(key)
        return run_page(collection, record, _EXAMPLES) if record else None

    def _compared(self, snapshot: Snapshot, task: Task) -> Compared:
        """The paired tests of a task; runs of other tasks that come meanwhile do not change them."""
        done = snapshot.collection.done(task)
        names = tuple((snapshot.collection.name(r), str(r.run.path), r.surroundings.get("seconds")) for r in done)
        compared: Compared = self._remembered(
            ("compared", task.name, names), lambda: compare_task(snapshot.collection, task, done)
        )
        return compared

    def _running(self, snapshot: Snapshot, record: Record) -> Page:
        page = run_page(snapshot.collection, record, _EXAMPLES)
        facts = training(snapshot, record, time.time())
        if not facts:
            return page
        table = progress_table(facts)
        rest = [each for each in page.sections if each.title != "Scores"]  # there are none yet
        return Page(page.key, page.title, page.lead, [Section("Progress", [TableBlock(table)]), *rest])

    def _form(self, snapshot: Snapshot, page: Page, query: Query) -> dict[str, Any] | None:
        """What a page can be asked for."""
        if page.key == "runs":
            tasks = [task.name for task in snapshot.collection.tasks()]
            return {"kind": "runs", "q": first(query, "q"), "task": first(query, "task"), "tasks": tasks}
        if page.key != "compare":
            return None
        chosen = set(query.get("run", ()))
        task = first(query, "task") or next((r.task for k, r in snapshot.by_key.items() if k in chosen), "")
        listed = [
            (
                snapshot.collection.key(record),
                snapshot.collection.name(record),
                snapshot.collection.key(record) in chosen,
            )
            for record in ranked([r for r in snapshot.collection.records if r.task == task and r.status == "done"])[
                :PER_PAGE
            ]
        ]
        tasks = [task.name for task in snapshot.collection.tasks()]
        return {"kind": "compare", "task": task, "tasks": tasks, "runs": listed}


def _recently(*what: str) -> tuple[object, ...]:
    """A key that changes every few seconds, for what changes without a run."""
    return (*what, int(time.monotonic() / _FRESH))


def _asked(snapshot: Snapshot, key: str, query: Query) -> tuple[object, ...]:
    """What was asked for, as a key of what is remembered."""
    return snapshot.version, key, *((name, *values) for name, values in sorted(query.items()) if name != "token")


def first(query: Query, name: str) -> str:
    """The first value of a parameter, or nothing."""
    return next(iter(query.get(name, ())), "")


def runs_page(snapshot: Snapshot, query: Query) -> Page:
    """The list of runs, two hundred at a time; q and task choose among them."""
    collection, words, task = snapshot.collection, first(query, "q").casefold().split(), first(query, "task")
    chosen = [
        record
        for record in collection.records
        if (not task or record.task == task)
        and all(
            word in f"{collection.name(record)} {record.run.path.name} {record.status}".casefold() for word in words
        )
    ]
    pages = max(1, -(-len(chosen) // PER_PAGE))
    number = min(pages, max(1, int(first(query, "page")) if first(query, "page").isdecimal() else 1))
    shown = chosen[(number - 1) * PER_PAGE : number * PER_PAGE]
    rows = [_row(collection.name(record), record) for record in shown]
    columns = ("run", "task", "score", "95 % interval", "scored on", "seconds", "status")
    links = [{collection.name(record): collection.key(record)} for record in shown]
    lead = f"{len(chosen):,} of {len(collection.records):,} runs"
    lead += f", page {number} of {pages}." if pages > 1 else "."
    blocks: list[Block] = [TableBlock(Table("runs", columns, rows), row_links=links)]
    turning = [
        (f"page {k}", {**{n: v for n, v in query.items() if n != "page"}, "page": [str(k)]})
        for k in (number - 1, number + 1)
        if 1 <= k <= pages
    ]
    if turning:
        table = Table("more", ("more",), [(name,) for name, _ in turning])
        blocks.append(TableBlock(table, {name: f"runs?{urlencode(asked, doseq=True)}" for name, asked in turning}))
    return Page("runs", "Runs", lead, [Section("All runs", blocks)])


def _row(name: str, record: Record) -> tuple[object, ...]:
    score = record.score()
    interval = shown_interval(*score["interval"]) if score and score["interval"] else None
    value, seconds = (score["value"] if score else None), record.surroundings.get("seconds")
    return name, record.task, value, interval, protocol(record), seconds, record.standing


def compare_page(snapshot: Snapshot, query: Query) -> Page:
    """Chosen runs against each other, and where the first two disagree."""
    collection = snapshot.collection
    keys = list(dict.fromkeys(query.get("run", ())))
    records = [snapshot.by_key[key] for key in keys if key in snapshot.by_key and snapshot.by_key[key].status == "done"]
    lead = (
        f"Choose a task, then two to {_COMPARED} of its finished runs: paired tests on the examples that both report."
    )
    if len(records) < 2:
        return Page("compare", "Compare", lead, [])
    if len(records) > _COMPARED or len({record.task for record in records}) > 1:
        note = NoteBlock(f"Choose two to {_COMPARED} runs of one task.", "warning")
        return Page("compare", "Compare", lead, [Section("Paired tests", [note])])
    task = records[0].run.task
    compared = compare_task(collection, task, records)
    best = ranked(records)
    found = disagreements(collection, task, best[0], best[1], _EXAMPLES)
    examples: Block = found if isinstance(found, ExamplesBlock) else NoteBlock(found)
    scores = TableBlock(
        Table(
            "scores",
            ("run", "task", "score", "95 % interval", "scored on", "seconds", "status"),
            [_row(collection.name(r), r) for r in best],
        ),
        collection.links(best),
    )
    sections = [
        Section("Scores", [scores]),
        Section("Paired tests", compared.blocks()),
        Section("Where the best two disagree", [examples]),
    ]
    return Page("compare", "Compare", lead, sections)
