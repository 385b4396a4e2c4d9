"""The first page: what was run, what is best, on which data, by which version."""

from collections.abc import Mapping, Sequence

from danseo.display.formats import compact
from danseo.display.table import Best, Table, shown_interval
from danseo.plots.figures import Forest
from danseo.report.blocks import Block, FigureBlock, Page, Section, TableBlock
from danseo.report.collect import Collection
from danseo.report.comparing import Compared
from danseo.report.task_page import floor_of, ranked, title_of, value_of
from danseo.runs.index import Record, protocol
from danseo.runs.layouts.klue import COLUMNS, PUBLISHED, klue_spreads, klue_tables, published
from danseo.runs.origin import is_of_sample
from danseo.tasks.task import Task

_TIED = 3  # runs that are named


def overview_page(collection: Collection, compared: Mapping[str, Compared], *, with_runs: bool = True) -> Page:
    """The overview of all runs; compared has the paired tests by task."""
    sections = [
        Section("Best per task", [*_drawn(collection), _best(collection, compared)]),
        Section("The KLUE table", _klue(collection)),
        Section("Runs", [_runs(collection, compared)] if with_runs else []),
        Section("Data and versions", [_data(collection), _versions(collection)]),
    ]
    return Page("overview", "Overview", _lead(collection, bool(compared)), [each for each in sections if each.blocks])


def _lead(collection: Collection, is_compared: bool) -> str:
    """What a stranger should know: how much was run, what is best where, how to read the numbers."""
    done = [record for record in collection.records if record.status == "done"]
    if not collection.records:
        return "There are no runs here yet; `danseo train` makes them."
    models = len({record.identity for record in done})
    tasks = _count(len(collection.tasks()), "task")
    told = [f"How well models do on Korean text: {_count(len(done), 'finished run')} of {_count(models, 'model')} "]
    told[0] += f"on {tasks}."
    best = _leaders(collection)
    names: dict[str, list[str]] = {}
    for task, record in best:
        if record.settings.get("model") != "majority":  # nobody's model, but what models have to beat
            names.setdefault(collection.name(record), []).append(task.short)
    if names:
        told.append(f"Best so far: {'; '.join(f'{name} in {_listed(shorts)}' for name, shorts in names.items())}.")
    if low := [task.short for task, record in best if not _beats_floor(record)]:
        told.append(f"In {_listed(low)} nothing is shown to beat the most frequent answer.")
    if made_up := [task.short for task, record in best if is_of_sample(record)]:
        where = "All of them" if len(made_up) == len(best) else f"Those in {_listed(made_up)}"
        told.append(f"{where} answered the built-in sample, made-up text: these are no scores on KLUE.")
    told.append("Scores go from 0 to 100, higher is better, with 95 % intervals.")
    told += ["Runs that share a letter are not told apart at 5 %."] if is_compared else []
    open_ = len(collection.records) - len(done)
    told += [f"{open_} more {'is' if open_ == 1 else 'are'} not finished."] if open_ else []
    return " ".join(told)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _leaders(collection: Collection) -> list[tuple[Task, Record]]:
    """The best run of each task that has one with a score."""
    scored = ((task, ranked(collection.done(task))) for task in collection.tasks())
    return [(task, records[0]) for task, records in scored if records and value_of(records[0]) > float("-inf")]


def _beats_floor(record: Record) -> bool:
    """Whether the interval lies above what the most frequent answer scores."""
    floor, score = floor_of(record), record.score() or {}
    return floor is None or not score.get("interval") or bool(score["interval"][0] > floor)


def _drawn(collection: Collection) -> list[Block]:
    """The best run of each task along one axis, with what it has to beat."""
    leaders = _leaders(collection)
    if len(leaders) < 2:
        return []
    scores = [record.score() or {} for _, record in leaders]
    values = [(*(score.get("interval") or (None, None)), score["value"]) for score in scores]
    floors = [floor_of(record) for _, record in leaders]
    known = [None if is_of_sample(record) else _published(task) for task, record in leaders]
    names = [f"{task.short}: {collection.name(record)}" for task, record in leaders]
    references = [("most frequent answer", floors), ("best published model, on the test set", known)]
    figure = Forest(
        names,
        [(low, value, high) for low, high, value in values],
        "headline metric of each task",
        references=[each for each in references if any(value is not None for value in each[1])],
    )
    rows: list[tuple[object, ...]] = [
        (name, task.headline, value, low, high, floor, best)
        for (task, _), name, (low, high, value), floor, best in zip(leaders, names, values, floors, known, strict=True)
    ]
    columns = ("task and run", "metric", "score", "low", "high", "most frequent answer", "best published, test set")
    caption = "dots are the best run of each task with its 95 % interval"
    caption += "; published scores are on other examples" if any(score is not None for score in known) else ""
    return [FigureBlock("How far the best runs are", figure, Table("best runs", columns, rows), caption)]


def _published(task: Task) -> float | None:
    """The best of KLUE's own table for the headline of a task."""
    position = next((k for k, id_ in enumerate(COLUMNS.values()) if id_ == task.headline), None)
    cells = [line.cells[position] for line in published()] if position is not None else []
    return max((float(cell) for cell in cells if isinstance(cell, int | float)), default=None)


def _best(collection: Collection, compared: Mapping[str, Compared]) -> Block:
    rows: list[tuple[object, ...]] = []
    links: list[dict[str, str]] = []
    for task, best in _leaders(collection):
        links.append({_in_words(task): f"task/{task.name}", collection.name(best): collection.key(best)})
        rows.append((_in_words(task), *_row(collection, task, best, compared), task.headline))
    columns = ("task", "best run", "score", "95 % interval", "most frequent answer", "tied with", "n", "scored on")
    table = Table("best run per task", (*columns, "metric"), rows, keys=2, once=("scored on",))
    return TableBlock(compact(table).without_empty(), row_links=links)


def _in_words(task: Task) -> str:
    """TC, topic classification; a user's own task has one name."""
    return title_of(task) if task.short == task.name else f"{task.short}, {task.title}"


def _row(collection: Collection, task: Task, best: Record, compared: Mapping[str, Compared]) -> tuple[object, ...]:
    score, name = best.score() or {}, collection.name(best)
    tested = compared.get(task.name, Compared())
    letters, system = tested.letters(), tested.system(name)
    without = {collection.name(record) for record in collection.done(task) if value_of(record) == float("-inf")}
    tied = [
        n for n, own in letters.items() if n != system and n not in without and set(own) & set(letters.get(system, ""))
    ]
    floor = floor_of(best)
    interval = shown_interval(*score["interval"]) if score.get("interval") else None
    more = f" and {len(tied) - _TIED} more" if len(tied) > _TIED else ""
    ties = ", ".join(tied[:_TIED]) + more
    return name, Best(score["value"]), interval, floor, ties or None, score["n"], protocol(best)


def _klue(collection: Collection) -> list[Block]:
    tables = klue_tables(collection.records)
    note = f"{tables[0].note}; rows marked “{PUBLISHED}” come from the KLUE benchmark and are not comparable row by row"
    first = tables[0]
    note += "; small print: the 95 % interval of one run, or ± the standard deviation over seeds"
    table = Table(first.title, first.columns, first.rows, note, first.keys, first.section, first.once)
    return [TableBlock(table, beneath=klue_spreads(collection.records))]


def _runs(collection: Collection, compared: Mapping[str, Compared]) -> Block:
    rows: list[tuple[object, ...]] = []
    chosen: list[Record] = []
    for task in collection.tasks():
        tested = compared.get(task.name, Compared())
        for record in ranked([r for r in collection.records if r.task == task.name]):
            name = collection.name(record)
            group = tested.letters_of(name) if value_of(record) > float("-inf") else None  # none without a score
            rows.append((name, task.name, *_scored(record, group or None)))
            chosen.append(record)
    for record in (record for record in collection.records if not record.settings):
        rows.append((collection.name(record), None, *_scored(record, None)))
        chosen.append(record)
    columns = ("run", "task", "score", "95 % interval", "group", "scored on", "seconds", "status")
    table = compact(Table("all runs", columns, rows, "score: the headline metric of each task", once=("scored on",)))
    return TableBlock(table, row_links=[{collection.name(record): collection.key(record)} for record in chosen])


def _scored(record: Record, group: str | None) -> tuple[object, ...]:
    score = record.score()
    interval = shown_interval(*score["interval"]) if score and score["interval"] else None
    value, seconds = (score["value"] if score else None), record.surroundings.get("seconds")
    return value, interval, group, protocol(record), seconds, record.standing


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
