"""The page of a task: its runs side by side, tested against each other, with what they cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.display.formats import compact
from danseo.display.table import Table
from danseo.plots.figures import Chart, Curve, Forest
from danseo.report.blocks import Block, ExamplesBlock, FigureBlock, NoteBlock, Page, Section, TableBlock
from danseo.report.collect import Collection
from danseo.report.comparing import Compared
from danseo.report.disagreeing import disagreements
from danseo.report.effects import effects
from danseo.runs.index import Record, protocol
from danseo.runs.layouts.listing import group_table
from danseo.runs.layouts.sweep import sweep_table
from danseo.tasks.task import Task

_DRAWN = 40  # rows of a forest plot
_CURVES = 12


def task_page(collection: Collection, task: Task, compared: Compared, most: int) -> Page:
    """Everything about the runs of one task; most is how many examples to show."""
    done = collection.done(task)
    others = [r for r in collection.records if r.task == task.name and r.status != "done"]
    sections = [
        Section("Scores", [*_forest(collection, task, done, compared), *_table(collection, task, done)]),
        Section("Paired tests", compared.blocks()),
        Section("Learning curves", learning_curves(collection, done)),
        Section("What settings do", effects(collection, task, done)),
        Section("Spread over seeds", _seeds(done)),
        Section("Cost", _cost(collection, done)),
        Section("Replies of language models", _replies(collection, done)),
        Section("Ensembles", _ensembles(collection, done)),
        Section("Where the best two disagree", _disagreements(collection, task, done, most)),
        Section("Not finished", _unfinished(collection, others)),
    ]
    lead = (
        f"{task.title.capitalize()}: {len(done)} finished run{'s' * (len(done) != 1)}. {_best(collection, task, done)}"
    )
    shown = [section for section in sections if section.blocks]
    return Page(f"task/{task.name}", title_of(task), lead, shown)


def title_of(task: Task) -> str:
    """TC (ynat); a user's own task has one name."""
    return task.name if task.short == task.name else f"{task.short} ({task.name})"


def value_of(record: Record) -> float:
    """The headline, or less than anything where it is undefined."""
    found = record.score()
    return found["value"] if found and found["value"] is not None else float("-inf")


def ranked(records: Sequence[Record]) -> list[Record]:
    """Best first; runs without a score last."""
    return sorted(records, key=lambda record: -value_of(record))


def _best(collection: Collection, task: Task, done: Sequence[Record]) -> str:
    scored = [record for record in ranked(done) if record.score() and value_of(record) > float("-inf")]
    if not scored:
        return "None has a score yet."
    best = scored[0]
    return f"The best is {collection.name(best)} with {value_of(best):.2f} ({task.headline}, {protocol(best)})."


def _forest(collection: Collection, task: Task, done: Sequence[Record], compared: Compared) -> list[Block]:
    known = [record for record in ranked(done) if value_of(record) > float("-inf")]
    shown = known[:_DRAWN]
    if not shown:
        return []
    scores = [record.score() or {} for record in shown]
    values = [(*_ends(s), s["value"]) for s in scores]
    names = [collection.name(record) for record in shown]
    marks = [compared.letters_of(name) for name in names]
    rows: list[tuple[object, ...]] = [
        (name, value, low, high, mark or None, protocol(record))
        for record, name, mark, (low, high, value) in zip(shown, names, marks, values, strict=True)
    ]
    table = Table(task.headline, ("run", "score", "low", "high", "group", "scored on"), rows)
    floor = scores[0]["id"] and floor_of(shown[0])
    levels = [("most frequent answer", floor)] if floor is not None else []
    figure = Forest(names, [(low, value, high) for low, high, value in values], task.headline, marks, levels)
    caption = "bars are 95 % intervals over examples" + (
        "; runs that share a letter are not told apart at 5 %" if any(marks) else ""
    )
    caption += f"; the best {len(shown)} of {len(known)}" if len(shown) < len(known) else ""
    return [FigureBlock(f"{task.metrics[task.headline]}", figure, table, caption)]


def _ends(score: dict[str, Any]) -> tuple[float | None, float | None]:
    low, high = score.get("interval") or (None, None)
    return low, high


def floor_of(record: Record) -> float | None:
    """What the most frequent answer scores on the same examples."""
    floors = record.scores.get("floors", {}).get(record.scores["reported_on"], {})
    value = floors.get("majority", {}).get(record.scores["headline"])
    return float(value) if value is not None else None


def _table(collection: Collection, task: Task, done: Sequence[Record]) -> list[Block]:
    if not done:
        return []
    table = sweep_table(done, task.name, with_paths=True)
    at = table.columns.index("run")
    names = {str(record.run.path): collection.name(record) for record in done}
    kept = [k for k, column in enumerate(table.columns) if column not in ("run", "model")]  # a name says its model
    rows = [(names[str(row[at])], *(row[k] for k in kept)) for row in table.rows]
    named = Table(table.title, ("run", *(table.columns[k] for k in kept)), rows, table.note, once=table.once)
    return [TableBlock(compact(named).without_empty(), collection.links(done))]


def learning_curves(collection: Collection, records: Sequence[Record]) -> list[Block]:
    """Score and loss over steps of the best runs that were trained step by step."""
    logs = [(record, log) for record in ranked(records) if (log := read_log(record))]
    blocks: list[Block] = []
    for key, label in (("score", f"score on {_picking(logs)}"), ("loss", "training loss")):
        found = [(record, points) for record, log in logs if (points := _points(log, key))]
        drawn = [each for each in found if len(each[1]) > 1 or len(records) == 1]  # of one point there is no curve
        curves = [Curve(collection.name(r), points, r.scores.get("best_step")) for r, points in drawn[:_CURVES]]
        if curves:
            rows: list[tuple[object, ...]] = [(c.name, x, y, x == c.best) for c in curves for x, y in c.points]
            table = Table(label, ("run", "step", label, "best"), rows)
            has_ring = key == "score" and any(curve.best for curve in curves)
            caption = "the ringed point is the checkpoint that was kept" if has_ring else ""
            caption += f"; the best {_CURVES} of {len(drawn)} runs" if len(drawn) > _CURVES else ""
            blocks.append(FigureBlock(label.capitalize(), Chart(curves, "step", label), table, caption.strip("; ")))
    return blocks


def _picking(logs: Sequence[tuple[Record, Any]]) -> str:
    """The examples that pick checkpoints, in words: a run of a fold has its own."""
    folds = {bool(record.settings.get("folds")) for record, _ in logs}
    return (
        "what picks the checkpoint" if len(folds) > 1 else "the left-out fold" if True in folds else "the select half"
    )


def read_log(record: Record) -> list[dict[str, Any]]:
    """The log of a run; a damaged one is none."""
    try:
        return [line for line in record.run.read_log() if isinstance(line, dict)]
    except (ValueError, OSError):
        return []


def _points(log: Sequence[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(float(line["step"]), float(line[key])) for line in log if line.get("step") and line.get(key) is not None]


def _seeds(done: Sequence[Record]) -> list[Block]:
    table = group_table(done, ["model"])
    at = table.columns.index("n")
    return [TableBlock(compact(table))] if any(isinstance(n := row[at], int) and n > 1 for row in table.rows) else []


def _cost(collection: Collection, done: Sequence[Record]) -> list[Block]:
    rows: list[tuple[object, ...]] = []
    for record in ranked(done):
        facts, cost = record.surroundings, record.scores.get("preflight") or {}
        rows.append(
            (
                collection.name(record),
                facts.get("seconds"),
                facts.get("peak_memory_gib"),
                facts.get("device"),
                facts.get("parameters"),
                cost.get("pieces_per_character"),
                cost.get("unknown_percent"),
                cost.get("truncated_percent"),
                cost.get("ceiling"),
            )
        )
    columns = ("run", "seconds", "peak memory GiB", "device", "parameters", "pieces per character")
    table = Table("cost", (*columns, "unknown %", "cut %", "ceiling"), rows)
    note = (
        "ceiling: what a perfect model with this tokenizer could score"
        if any(row[-1] is not None for row in rows)
        else ""
    )
    shown = Table("time, memory and tokenizer", table.columns, table.rows, note).without_empty()
    return [TableBlock(shown, collection.links(done))] if rows else []


def _replies(collection: Collection, done: Sequence[Record]) -> list[Block]:
    """How many replies could not be read, which count as wrong, and what was the matter with them."""
    asked = [(record, replies) for record in ranked(done) if isinstance(replies := record.scores.get("replies"), dict)]
    kinds = list(dict.fromkeys(kind for _, replies in asked for kind in replies.get("classes", {})))
    rows: list[tuple[object, ...]] = [
        (
            collection.name(record),
            *(replies.get(key) for key in ("asked", "failed", "failed_percent", "failed_at_first_percent")),
            *(replies.get("classes", {}).get(kind) for kind in kinds),
        )
        for record, replies in asked
    ]
    columns = ("run", "asked", "failed", "failed %", "failed at first %", *(kind.replace("_", " ") for kind in kinds))
    table = Table("replies", columns, rows, "failed replies count as wrong; at first: before they were asked again")
    return [TableBlock(table, collection.links(done))] if rows else []


def _ensembles(collection: Collection, done: Sequence[Record]) -> list[Block]:
    """The members of each ensemble or soup, under their names on these pages where they are there."""
    names = {record.run.path.name: collection.name(record) for record in done}
    rows: list[tuple[object, ...]] = []
    for record in done:
        for part in record.parts:
            member = str(part.get("name") or part.get("run"))
            known = names.get(Path(member).name, member)
            rows.append((collection.name(record), known, part.get("weight"), part.get("select_score")))
    table = Table("members", ("ensemble", "member", "weight", "select score"), rows).without_empty()
    return [TableBlock(table, collection.links(done))] if rows else []


def _disagreements(collection: Collection, task: Task, done: Sequence[Record], most: int) -> list[Block]:
    scored = [record for record in ranked(done) if value_of(record) > float("-inf")]
    if len(scored) < 2:
        return []
    found = disagreements(collection, task, scored[0], scored[1], most)
    return [found] if isinstance(found, ExamplesBlock) else [NoteBlock(found)]


def _unfinished(collection: Collection, records: Sequence[Record]) -> list[Block]:
    rows: list[tuple[object, ...]] = [(collection.name(r), r.status, r.note or None) for r in records]
    table = Table("not finished", ("run", "status", "why"), rows).without_empty()
    return [TableBlock(table, collection.links(records))] if rows else []
