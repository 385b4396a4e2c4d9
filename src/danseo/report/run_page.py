"""The page of a run: scores, settings, environment, where the score comes from, and its mistakes."""

from collections.abc import Sequence

from danseo.config import RunConfig
from danseo.display.table import Table, as_typed
from danseo.errors import DanseoError
from danseo.models.llm.failures import failed_replies
from danseo.plots.figures import Chart, Curve, Grid
from danseo.report.blocks import Block, ExamplesBlock, FigureBlock, NoteBlock, Page, Section, TableBlock, facts_table
from danseo.report.collect import Answers, Collection
from danseo.report.examples import mistakes_block
from danseo.report.forms import show_reply
from danseo.report.task_page import learning_curves
from danseo.runs.index import Record, protocol
from danseo.runs.layouts.single import run_tables, warnings_of
from danseo.runs.layouts.variants import traits
from danseo.scoring.breakdown import details
from danseo.scoring.calibration import Calibration, calibration
from danseo.scoring.slices import by_length, by_seen
from danseo.settings.declaring import flat
from danseo.tasks.task import Task

NO_DATA = (
    "The dev file that this run answered is not there (name its folder with --data), or its predictions cannot be read."
)


def run_page(collection: Collection, record: Record, most: int) -> Page:
    """Everything about one run; most is how many mistakes to show."""
    sections = [
        Section("Scores", _scores(record)),
        Section("Settings that differ from the default", [_settings(record)] if record.settings else []),
        Section("Learning curve", learning_curves(collection, [record])),
        *_inside(collection, record, most),
        Section("Environment", _environment(record)),
    ]
    shown = [section for section in sections if section.blocks]
    return Page(collection.key(record), collection.name(record), _lead(record), shown)


def _lead(record: Record) -> str:
    found = record.score()
    told = f"{record.task}, {record.run.path.name}: {record.standing}"
    if found and found["value"] is not None:
        ends = " ({:.2f} – {:.2f})".format(*found["interval"]) if found["interval"] else ""
        told += f", {found['value']:.2f}{ends} {found['id']} on {protocol(record)}"
    return told if told.endswith(".") else f"{told}."


def _scores(record: Record) -> list[Block]:
    if record.status != "done":
        return [NoteBlock(record.standing, "warning")]
    try:
        tables, warnings = run_tables(record.run), warnings_of(record.run, record.scores)
    except (DanseoError, KeyError):
        return [NoteBlock("environment.json or scores.json is not what danseo writes", "warning")]
    plain = [
        Table(t.title, t.columns, t.rows, t.note.split("\n")[0] if k + 1 < len(tables) else "")
        for k, t in enumerate(tables)
    ]
    return [
        *(NoteBlock(text, "warning") for text in warnings),
        *(TableBlock(table, folded=table.title == "all of dev" and k > 0) for k, table in enumerate(plain)),
    ]


def _settings(record: Record) -> Block:
    defaults, counted = flat(RunConfig(task="", model="")), {*traits(record), "seed", "kind"}  # a floor has no epochs
    said = {name: value for name, value in record.settings.items() if name in counted}
    differing = {k: as_typed(v) for k, v in said.items() if k not in defaults or defaults[k] != v}
    rows: list[tuple[object, ...]] = [(name, value, as_typed(defaults.get(name))) for name, value in differing.items()]
    return TableBlock(Table("settings", ("setting", "value", "default"), rows))


def _environment(record: Record) -> list[Block]:
    facts: dict[str, object] = {}
    for name, value in record.surroundings.items():
        if isinstance(value, dict):
            facts |= {f"{name}: {key}": str(inner) for key, inner in value.items()}
        elif value is not None:
            facts[name] = value if isinstance(value, int | float) else str(value)
    return [facts_table("environment", facts)] if facts else []


def _inside(collection: Collection, record: Record, most: int) -> list[Section]:
    """What needs the examples: tables per class, slices, calibration, mistakes."""
    if record.status != "done":
        return []
    answers = collection.answers(record)
    if answers is None:
        return [Section("Where the score comes from", [NoteBlock(NO_DATA)])]
    task = record.run.task
    part = "all of dev" if record.scores["reported_on"] == "dev" else "the report half of dev"
    blocks = [_breakdown(table) for table in details(task, answers.examples, answers.member.predictions)]
    return [
        Section(f"Where the score comes from ({part})", [*blocks, *_slices(collection, task, answers)]),
        Section("Calibration", _calibration(task, answers)),
        Section("Failed replies", _failed(record, task, answers, most)),
        Section("Mistakes", [mistakes_block(task, answers, most)]),
    ]


def _failed(record: Record, task: Task, answers: Answers, most: int) -> list[Block]:
    """What a language model wrote where no answer could be read of it."""
    if not isinstance(record.scores.get("replies"), dict):
        return []
    found = failed_replies(record.run, task, answers.examples)
    shown = [show_reply(task, each.example, each.text, each.problems) for each in found[:most]]
    note = f"{len(shown)} of {len(found):,} replies that could not be read, among {len(answers.examples):,}"
    return [ExamplesBlock("Failed replies", f"{note}; each counts as wrong", shown)] if shown else []


def _breakdown(table: Table) -> Block:
    """A table of a breakdown; a confusion matrix as a heat map."""
    if not table.columns[0].startswith("gold \\"):
        return TableBlock(table, folded=len(table.rows) > 12)
    rows = [str(row[0]) for row in table.rows]
    counts = [[value if isinstance(value, int) else 0 for value in row[1:]] for row in table.rows]
    shares = [[count / (sum(row) or 1) for count in row] for row in counts]
    texts = [[f"{count:,}" if count else "" for count in row] for row in counts]
    grid = Grid(rows, table.columns[1:], texts, shares, "gold ↓ answer →")
    return FigureBlock(table.title.capitalize(), grid, table, "colours are shares of the gold label")


def _slices(collection: Collection, task: Task, answers: Answers) -> list[Block]:
    predictions = answers.member.predictions
    tables = [by_length(task, answers.examples, predictions)] if answers.examples else []
    train = collection.train(task) if task.kind == "tag" or task.form == "relation" else None
    seen = by_seen(task, train, answers.examples, predictions) if train else None
    return [TableBlock(table) for table in (*tables, *([seen] if seen else []))]


def _calibration(task: Task, answers: Answers) -> Sequence[Block]:
    found = calibration(task, answers.examples, answers.member.predictions, answers.member.kept)
    return [reliability(found)] if found else []


def reliability(found: Calibration) -> FigureBlock:
    """The reliability diagram."""
    points = [(each.confidence, each.right) for each in found.bins]
    chart = Chart([Curve("answers", points)], "confidence %", "right %", diagonal=True)
    caption = f"on the line, confidence means what it says; expected calibration error {found.error:.2f} points"
    return FigureBlock("Reliability", chart, found.table(), caption)
