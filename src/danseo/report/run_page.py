"""The page of a run: scores, settings, learning curve, breakdowns, calibration, mistakes and environment."""

from collections.abc import Sequence
from dataclasses import replace

from danseo.config.base import flatten_config
from danseo.config.run import RunConfig
from danseo.display.plots.figures import Chart, Curve, Grid
from danseo.display.table import Table, as_typed
from danseo.errors import DanseoError
from danseo.language import Message, _, join
from danseo.models.registry import get_family
from danseo.report.collection import Collection, RunAnswers
from danseo.report.error_examples import make_mistakes_block, render_reply
from danseo.report.html import (
    Block,
    ExamplesBlock,
    FigureBlock,
    NoteBlock,
    Page,
    PageSection,
    TableBlock,
    make_facts_table,
)
from danseo.report.task_page import draw_learning_curves
from danseo.runs.index import Record
from danseo.runs.provenance import describe_split
from danseo.runs.stress_file import read_stress
from danseo.scoring.breakdown import by_length, details
from danseo.scoring.calibration import Calibration, calibration
from danseo.tables.run_summary import list_warnings, make_run_tables
from danseo.tables.runs import format_score
from danseo.tables.stress import draw_stress, make_stress_table, rank_perturbations
from danseo.tables.variants import get_traits
from danseo.tasktypes.base import Task

_NO_DATA = _(
    "no examples: the dev file of this run is missing (name its folder with --data), or its predictions are unreadable"
)


def make_run_page(collection: Collection, record: Record, most: int) -> Page:
    """Return the page of one run with at most so many mistakes."""
    sections = [
        PageSection("Scores", _make_score_blocks(record)),
        PageSection("Settings that differ from the default", [_make_settings_table(record)] if record.settings else []),
        PageSection("Learning curve", draw_learning_curves(collection, [record])),
        *_make_example_sections(collection, record, most),
        PageSection("Perturbed inputs", _make_stress_blocks(record)),
        PageSection("Environment", _make_environment_table(record)),
    ]
    shown = [section for section in sections if section.blocks]
    return Page(collection.key(record), collection.name(record), _write_lead(record), shown)


def _write_lead(record: Record) -> str:
    lead = join([f"{record.task}, {record.run.path.name}:", record.status_line])
    value, interval = format_score(record)
    if value is not None:
        ends = f" ({interval})" if interval else ""
        score = _(", {score} {metric} on {split}")
        metric, split = record.scores["headline"], describe_split(record)
        lead += score.format(score=f"{value:.2f}{ends}", metric=metric, split=split)
    return lead if lead.endswith(".") else lead + "."


def _make_score_blocks(record: Record) -> list[Block]:
    if record.status != "done":
        return [NoteBlock(record.status_line, "warning")]
    try:
        tables, warnings = make_run_tables(record.run), list_warnings(record.run, record.scores)
    except (DanseoError, KeyError):
        return [NoteBlock(_("environment.json or scores.json is not what danseo writes"), "warning")]
    plain = list(tables[:-1])
    plain.append(replace(tables[-1], note=""))
    return [
        *(NoteBlock(text, "warning") for text in warnings),
        *(TableBlock(table, folded=table.title == "whole dev set" and k > 0) for k, table in enumerate(plain)),
    ]


def _make_settings_table(record: Record) -> Block:
    defaults = flatten_config(RunConfig(task="", model=""))
    counted = {*get_traits(record), "seed", "run_type"}  # a baseline has no epochs
    rows = [
        (name, as_typed(value), as_typed(defaults.get(name)))
        for name, value in record.settings.items()
        if name in counted and (name not in defaults or defaults[name] != value)
    ]
    return TableBlock(Table("settings", ("setting", "value", "default"), rows))


def _make_environment_table(record: Record) -> list[Block]:
    facts: dict[str, object] = {}
    for name, value in record.surroundings.items():
        if isinstance(value, dict):
            facts |= {f"{name}: {key}": str(inner) for key, inner in value.items()}
        elif value is not None:
            facts[name] = value if isinstance(value, int | float) else str(value)
    return [make_facts_table("environment", facts)] if facts else []


def _make_example_sections(collection: Collection, record: Record, most: int) -> list[PageSection]:
    """Return the sections that need the examples: breakdowns, slices, calibration, mistakes."""
    if record.status != "done":
        return []
    answers = collection.answers(record)
    if answers is None:
        return [PageSection("Where the score comes from", [NoteBlock(_NO_DATA)])]
    task = record.run.task
    is_whole = record.scores["reported_on"] == "dev"
    title = _("Where the score comes from (the whole dev set)")
    title = title if is_whole else _("Where the score comes from (the report split of dev)")
    blocks = [_make_breakdown_block(table) for table in details(task, answers.examples, answers.member.predictions)]
    return [
        PageSection(title, [*blocks, *_make_slice_tables(collection, task, answers)]),
        PageSection("Calibration", _make_calibration_block(task, answers)),
        PageSection("Failed examples", _make_failure_block(record, task, answers, most)),
        PageSection("Mistakes", [make_mistakes_block(task, answers, most)]),
    ]


def _make_stress_blocks(record: Record) -> list[Block]:
    """Return what `danseo stress` stored: differences by perturbation, and examples that broke."""
    result = read_stress(record.run)
    if result is None:
        return []
    title, caption = _("What perturbations cost"), _("dots are paired differences with their 95 % intervals")
    figure = FigureBlock(title, draw_stress({record.model: result}), make_stress_table(result), caption)
    shown = [example.render(name) for name, each in rank_perturbations(result) for example in each.examples]
    note = _("the original with its answer, then the changed copy; at most 5 of each perturbation")
    return [figure, *([ExamplesBlock("Examples that broke", note, shown)] if shown else [])]


def _make_failure_block(record: Record, task: Task, answers: RunAnswers, most: int) -> list[Block]:
    """Return the examples for which the model gave no valid answer, and what it wrote."""
    if not record.failed_percent:
        return []
    found = get_family(record.model_path).list_failures(record.run, task, answers.examples)
    shown = [render_reply(task, each.example, each.text, each.problems) for each in found[:most]]
    note = _("{n} of {failed:,} failed examples, among {all:,}; each counts as wrong")
    note = note.format(n=len(shown), failed=len(found), all=len(answers.examples))
    return [ExamplesBlock("Failed examples", note, shown)] if shown else []


def _make_breakdown_block(table: Table) -> Block:
    """Return a table of a breakdown; a confusion matrix as a heat map."""
    if not table.columns[0].startswith("gold \\"):
        return TableBlock(table, folded=len(table.rows) > 12)
    rows = [str(row[0]) for row in table.rows]
    counts = [[value if isinstance(value, int) else 0 for value in row[1:]] for row in table.rows]
    shares = [[count / (sum(row) or 1) for count in row] for row in counts]
    texts = [[f"{count:,}" if count else "" for count in row] for row in counts]
    grid = Grid(rows, table.columns[1:], texts, shares, _("gold ↓ answer →"))
    title = Message(table.title.capitalize(), table.title)
    return FigureBlock(title, grid, table, _("colours are shares of the gold label"))


def _make_slice_tables(collection: Collection, task: Task, answers: RunAnswers) -> list[Block]:
    predictions = answers.member.predictions
    tables = [by_length(task, answers.examples, predictions)] if answers.examples else []
    train = collection.train(task) if task.type.has_seen_slices else None
    seen = task.type.breakdown_by_seen(task, train, answers.examples, predictions) if train else None
    return [TableBlock(table) for table in (*tables, *([seen] if seen else []))]


def _make_calibration_block(task: Task, answers: RunAnswers) -> Sequence[Block]:
    found = calibration(task, answers.examples, answers.member.predictions, answers.member.rows)
    return [draw_reliability(found)] if found else []


def draw_reliability(found: Calibration) -> FigureBlock:
    """Return the reliability diagram."""
    points = [(each.confidence, each.right) for each in found.bins]
    chart = Chart([Curve(_("answers"), points)], "confidence %", "right %", diagonal=True)
    caption = _("points on the line are calibrated; expected calibration error {error:.2f} points")
    caption = caption.format(error=found.error)
    return FigureBlock("Reliability", chart, found.table(), caption)
