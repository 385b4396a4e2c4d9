"""The first page: what was run, what is best, on which data, by which version."""

from collections.abc import Mapping

from danseo.display.table import Best, Table, shown_interval
from danseo.report.blocks import Block, Page, Section, TableBlock
from danseo.report.collect import Collection
from danseo.report.comparing import Compared
from danseo.report.task_page import ranked, value_of
from danseo.runs.index import Record, protocol
from danseo.runs.layouts.klue import PUBLISHED, klue_tables
from danseo.tasks.task import Task


def overview_page(collection: Collection, compared: Mapping[str, Compared], *, with_runs: bool = True) -> Page:
    """The overview of all runs; compared has the paired tests by task."""
    done = [record for record in collection.records if record.status == "done"]
    sections = [
        Section("Best per task", [_best(collection, compared)]),
        Section("The KLUE table", _klue(collection)),
        Section("Runs", [_runs(collection, compared)] if with_runs else []),
        Section("Data and versions", [_data(collection), _versions(collection)]),
    ]
    models = len({record.identity for record in done})
    lead = (
        f"{len(done)} finished run{'s' * (len(done) != 1)} of {models} model{'s' * (models != 1)} on "
        f"{len(collection.tasks())} task{'s' * (len(collection.tasks()) != 1)}. "
        "Scores are from 0 to 100 with 95 % intervals."
    )
    lead += " Runs that share a letter are not told apart at 5 %." if compared else ""
    open_ = len(collection.records) - len(done)
    lead += f" {open_} more {'is' if open_ == 1 else 'are'} not finished." if open_ else ""
    return Page("overview", "Overview", lead, [section for section in sections if section.blocks])


def _best(collection: Collection, compared: Mapping[str, Compared]) -> Block:
    rows: list[tuple[object, ...]] = []
    links: list[dict[str, str]] = []
    for task in collection.tasks():
        scored = [record for record in ranked(collection.done(task)) if value_of(record) > float("-inf")]
        if scored:
            best = scored[0]
            links.append(
                {f"{task.short} ({task.name})": f"task/{task.name}", collection.name(best): collection.key(best)}
            )
            rows.append((f"{task.short} ({task.name})", task.headline, *_row(collection, task, best, compared)))
    columns = (
        "task",
        "metric",
        "best run",
        "score",
        "95 % interval",
        "tied with",
        "most frequent answer",
        "n",
        "scored on",
    )
    return TableBlock(Table("best run per task", columns, rows, keys=2).without_empty(), row_links=links)


def _row(collection: Collection, task: Task, best: Record, compared: Mapping[str, Compared]) -> tuple[object, ...]:
    score, name = best.score() or {}, collection.name(best)
    letters = compared[task.name].letters() if task.name in compared else {}
    tied = [n for n, own in letters.items() if n != name and set(own) & set(letters.get(name, ""))]
    floor = best.scores.get("floors", {}).get(best.scores["reported_on"], {}).get("majority", {}).get(task.headline)
    interval = shown_interval(*score["interval"]) if score.get("interval") else None
    return name, Best(score["value"]), interval, ", ".join(tied) or None, floor, score["n"], protocol(best)


def _klue(collection: Collection) -> list[Block]:
    tables = klue_tables(collection.records)
    note = f"{tables[0].note}; rows marked “{PUBLISHED}” come from the KLUE benchmark and are not comparable row by row"
    first = tables[0]
    return [TableBlock(Table(first.title, first.columns, first.rows, note, first.keys, first.section, first.once))]


def _runs(collection: Collection, compared: Mapping[str, Compared]) -> Block:
    rows: list[tuple[object, ...]] = []
    chosen: list[Record] = []
    for task in collection.tasks():
        letters = compared[task.name].letters() if task.name in compared else {}
        for record in ranked([r for r in collection.records if r.task == task.name]):
            rows.append((collection.name(record), task.name, *_scored(record, letters.get(collection.name(record)))))
            chosen.append(record)
    for record in (record for record in collection.records if not record.settings):
        rows.append((collection.name(record), None, *_scored(record, None)))
        chosen.append(record)
    columns = ("run", "task", "score", "95 % interval", "group", "scored on", "seconds", "status")
    table = Table("all runs", columns, rows, "score: the headline metric of each task")
    return TableBlock(table, row_links=[{collection.name(record): collection.key(record)} for record in chosen])


def _scored(record: Record, group: str | None) -> tuple[object, ...]:
    score = record.score()
    interval = shown_interval(*score["interval"]) if score and score["interval"] else None
    status = f"{record.status}: {record.note}" if record.note else record.status
    value, seconds = (score["value"] if score else None), record.surroundings.get("seconds")
    return value, interval, group, protocol(record), seconds, status


def _data(collection: Collection) -> Block:
    files: dict[tuple[str, str, str], int] = {}
    for record in collection.records:
        for name, sha in (record.surroundings.get("data") or {}).items():
            key = record.task, str(name), str(sha)
            files[key] = files.get(key, 0) + 1
    rows: list[tuple[object, ...]] = [(*key, count) for key, count in sorted(files.items())]
    return TableBlock(Table("data", ("task", "file", "sha256", "runs"), rows), folded=True)


def _versions(collection: Collection) -> Block:
    found: dict[tuple[str, ...], int] = {}
    for record in collection.records:
        facts = record.surroundings
        if facts:
            versions = facts.get("versions") or {}
            key = tuple(
                str(value or "–")
                for value in (
                    facts.get("danseo"),
                    facts.get("commit"),
                    facts.get("python"),
                    versions.get("torch"),
                    versions.get("transformers"),
                    facts.get("device"),
                )
            )
            found[key] = found.get(key, 0) + 1
    rows: list[tuple[object, ...]] = [(*key, count) for key, count in sorted(found.items())]
    columns = ("danseo", "commit", "python", "torch", "transformers", "device", "runs")
    return TableBlock(Table("versions", columns, rows), folded=True)
