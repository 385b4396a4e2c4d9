"""The page of a task: scores, paired tests, learning curves, effects of settings, cost and disagreements."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from danseo.display.plots.figures import Chart, Curve, Forest
from danseo.display.table import Table, compact
from danseo.errors import DanseoError
from danseo.language import Message, _, join, ngettext
from danseo.report.collection import Collection
from danseo.report.comparison import TaskComparison
from danseo.report.error_examples import find_disagreements
from danseo.report.html import Block, FigureBlock, Page, PageSection, TableBlock
from danseo.runs.index import Record
from danseo.runs.provenance import answered_whole_dev, describe_split, get_scored_set, is_fold, is_of_sample
from danseo.runs.scores import read_extra_tables
from danseo.runs.stress_file import StressResult, read_stress
from danseo.tables.published import find_comparable_scores, make_published_table, read_published
from danseo.tables.runs import make_group_table
from danseo.tables.seeds import make_sweep_table
from danseo.tables.stress import draw_stress_grid, make_side_by_side_table
from danseo.tables.variants import LABELLED, find_differences, format_traits, get_variant_key, shorten_setting
from danseo.tasktypes.base import Task

_MIN_VARIANTS = 3  # of a model with a figure; for two the table of scores is enough
_NO_CHOICES = ("data", "fold")
_MAX_ROWS = 40  # of a forest plot
_MAX_CURVES = 12
_COSTS = ("seconds", "peak_memory_gib", "device", "parameters")
_TOKENIZER_COSTS = ("tokens_per_character", "unknown_percent", "truncated_percent", "ceiling")


def draw_setting_effects(collection: Collection, task: Task, done: Sequence[Record]) -> list[Block]:
    """Return a figure per model that has runs with several settings."""
    models: dict[str, list[Record]] = {}
    for record in done:
        if record.value() is not None and not record.is_baseline and not record.is_made_of_runs:
            models.setdefault(record.identity, []).append(record)
    return [
        block
        for records in models.values()
        if len({get_variant_key(record) for record in records}) >= _MIN_VARIANTS
        for block in _draw_model_effects(task, records)
    ]


def _draw_model_effects(task: Task, records: Sequence[Record]) -> list[Block]:
    groups = [
        (shorten_setting(name), value, scores)
        for name in find_differences(records)
        if name not in _NO_CHOICES
        for value, scores in _group_by_value(records, name)
    ]
    if not groups:
        return []
    rows = [(n, v, len(f), mean(f), min(f), max(f)) for n, v, f in groups]
    table = Table("effects of settings", ("setting", "value", "runs", "mean", "worst", "best"), rows)
    names = [f"{name} = {value} ({len(scores)})" for name, value, scores in groups]
    values = [(min(scores), mean(scores), max(scores)) for _, _, scores in groups]
    caption = _(
        "dots are means over all runs with that value, whatever their other settings; bars go from the worst to the "
        "best run, in brackets how many there are"
    )
    title = _("{model}: settings").format(model=records[0].model)
    return [FigureBlock(title, Forest(names, values, task.headline), table, caption)]


def _format_value(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _group_by_value(records: Sequence[Record], name: str) -> list[tuple[str, list[float]]]:
    """Return the scores by the value of a setting, best mean first; nothing if all runs have the same value."""
    groups: dict[str, list[float]] = {}
    for record in records:
        groups.setdefault(_format_value(format_traits(record, [name])[0]), []).append(record.rank_value())
    return sorted(groups.items(), key=lambda pair: -mean(pair[1])) if len(groups) > 1 else []


def make_task_page(collection: Collection, task: Task, compared: TaskComparison, most: int) -> Page:
    """Return the page of one task with at most so many examples."""
    done = collection.done(task)
    others = [r for r in collection.records if r.task == task.name and r.status != "done"]
    sections = [
        PageSection(
            "Scores", [*_draw_scores(collection, task, done, compared), *_make_score_table(collection, task, done)]
        ),
        PageSection("Published scores", _make_published_tables(collection, task, done)),
        PageSection("Paired tests", compared.blocks()),
        PageSection("Learning curves", draw_learning_curves(collection, done)),
        PageSection("What settings do", draw_setting_effects(collection, task, done)),
        PageSection("Spread over seeds", _make_seed_table(done)),
        PageSection("Cost", _make_cost_table(collection, done)),
        *_make_extra_sections(collection, done),
        PageSection("Ensembles", _make_member_table(collection, done)),
        PageSection("Where the best two disagree", _make_disagreements(collection, task, done, most)),
        PageSection("Perturbed inputs", _draw_stress(collection, done)),
        PageSection("Not finished", _make_unfinished_table(collection, others)),
    ]
    title = Message(task.title[:1].upper() + task.title[1:], task.title)
    counts = ngettext("{n} finished run", "{n:,} finished runs", len(done))
    lead = join([_("{title}: {runs}.").format(title=title, runs=counts), _describe_best(collection, task, done)])
    shown = [section for section in sections if section.blocks]
    return Page(f"task/{task.name}", make_task_title(task), lead, shown)


def make_task_title(task: Task) -> str:
    """Return a title such as "TC (ynat)"; a custom task has one name."""
    return task.name if task.short == task.name else f"{task.short} ({task.name})"


def rank_runs(records: Sequence[Record]) -> list[Record]:
    """Return the runs, best first; those without a score last."""
    return sorted(records, key=lambda record: -record.rank_value())


def find_best_runs(records: Sequence[Record]) -> list[Record]:
    """Return the best run of each set of examples; folds and runs on a part of dev only if there are no others."""
    groups: dict[object, list[Record]] = {}
    complete = [record for record in records if not record.settings.get("prompt.max_eval_samples")]
    for record in rank_runs(complete or records):
        groups.setdefault(get_scored_set(record), []).append(record)
    return [next((record for record in group if not is_fold(record)), group[0]) for group in groups.values()]


def _describe_best(collection: Collection, task: Task, done: Sequence[Record]) -> str:
    scored = [record for record in find_best_runs(done) if record.value() is not None]
    if not scored:
        return _("None has a score yet.")
    text = _("{name} with {score:.2f} ({metric}, {split})")
    named = [
        text.format(name=collection.name(r), score=r.value(), metric=task.headline, split=describe_split(r))
        for r in scored
    ]
    return _("The best is {runs}.").format(runs=join(named, "; "))


def _draw_scores(collection: Collection, task: Task, done: Sequence[Record], compared: TaskComparison) -> list[Block]:
    known = [record for record in rank_runs(done) if record.value() is not None]
    shown = known[:_MAX_ROWS]
    if not shown:
        return []
    names = [collection.name(record) for record in shown]
    marks = [compared.letters_of(name) for name in names]
    values = [get_estimate(record) for record in shown]
    rows = [
        (name, value, low, high, mark or None, describe_split(record))
        for record, name, mark, (low, value, high) in zip(shown, names, marks, values, strict=True)
    ]
    table = Table(task.headline, ("run", "score", "low", "high", "group", "scored on"), rows)
    baseline = get_majority_score(shown[0])
    levels = [(_("most frequent answer"), baseline)] if baseline is not None else []
    figure = Forest(names, values, task.headline, marks, levels)
    caption = _("bars are 95 % intervals over examples")
    caption += _("; runs with the same letter do not differ significantly (α = 5 %)") if any(marks) else ""
    caption += _("; the best {n} of {all}").format(n=len(shown), all=len(known)) if len(shown) < len(known) else ""
    return [FigureBlock(task.metrics[task.headline].description, figure, table, caption)]


def get_estimate(record: Record) -> tuple[float | None, float, float | None]:
    """Return low end, value and high end of the headline score."""
    score = record.score() or {}
    low, high = score.get("interval") or (None, None)
    return low, record.rank_value(), high


def get_majority_score(record: Record) -> float | None:
    """Return the score of the most frequent answer on the same examples."""
    baselines = record.scores.get("baselines", {}).get(record.scores["reported_on"], {})
    value = baselines.get("majority", {}).get(record.scores["headline"])
    return float(value) if value is not None else None


def _make_score_table(collection: Collection, task: Task, done: Sequence[Record]) -> list[Block]:
    if not done:
        return []
    table = make_sweep_table(done, task.name, with_paths=True)
    at = table.columns.index("run")
    names = {str(record.run.path): collection.name(record) for record in done}
    labelled = [shorten_setting(name) for name in LABELLED]
    others = table.without(("run", "model", *labelled))  # the name of a run contains its model and its labels
    rows = [(names[str(row[at])], *cells) for row, cells in zip(table.rows, others.rows, strict=True)]
    named = replace(others, columns=("run", *others.columns), rows=rows, keys=None)
    return [TableBlock(compact(named).without_empty(), collection.links(done))]


def _make_published_tables(collection: Collection, task: Task, done: Sequence[Record]) -> list[Block]:
    """Return own and published scores of the headline metric on KLUE's dev set, and apart from them all others."""
    if task.custom or all(map(is_of_sample, done)):
        return []
    own = [
        (collection.name(record), score["value"], describe_split(record), None, None)
        for record in done
        if (score := record.score(split="dev")) and score["value"] is not None and answered_whole_dev(record)
    ]
    same = find_comparable_scores(task.headline)
    rows = [*own, *((each.model, each.value, _("published"), each.source, each.note) for each in same)]
    note = _("whole dev set; published scores are usually selected on it")
    note += "" if own else _("; no run here answered all of KLUE's dev set")
    columns = ("run or model", "score", "scored on", "source", "note")
    ranked = sorted(rows, key=lambda row: -row[1])
    table = Table(_("{metric} on dev").format(metric=task.headline), columns, ranked, note)
    others = [each for each in read_published() if each.task == task.name and each not in same]
    return [
        TableBlock(table.without_empty(), collection.links(done)),
        TableBlock(
            replace(make_published_table(others), title=_("other metrics and splits: not comparable")), folded=True
        ),
    ]


def draw_learning_curves(collection: Collection, records: Sequence[Record]) -> list[Block]:
    """Score and loss over steps of the best runs that were trained step by step."""
    logs = [(record, log) for record in rank_runs(records) if (log := read_log(record))]
    blocks: list[Block] = []
    for key, label in (("score", _describe_select_score(logs)), ("loss", _("training loss"))):
        found = [(record, points) for record, log in logs if (points := _read_points(log, key))]
        drawn = [each for each in found if len(each[1]) > 1 or len(records) == 1]  # one point is no curve
        curves = [Curve(collection.name(r), points, r.scores.get("best_step")) for r, points in drawn[:_MAX_CURVES]]
        if curves:
            rows = [(c.name, x, y, x == c.best) for c in curves for x, y in c.points]
            table = Table(label, ("run", "step", label, "best"), rows)
            has_ring = key == "score" and any(curve.best for curve in curves)
            captions = [_("the ringed point is the selected checkpoint")] if has_ring else []
            if len(drawn) > _MAX_CURVES:
                captions.append(_("the best {n} of {all} runs").format(n=_MAX_CURVES, all=len(drawn)))
            title = Message(label.capitalize(), label)
            blocks.append(FigureBlock(title, Chart(curves, "step", label), table, join(captions, "; ")))
    return blocks


def _describe_select_score(logs: Sequence[tuple[Record, Any]]) -> Message:
    """Name the score that selects checkpoints: on the select split, or on the fold that is left out."""
    folds = {is_fold(record) for record, log in logs}
    if len(folds) > 1:
        return _("score on the examples that select the checkpoint")
    return _("score on the left-out fold") if True in folds else _("score on the select split")


def read_log(record: Record) -> list[dict[str, Any]]:
    """Return the log of a run; empty if it is corrupted."""
    try:
        return record.run.read_log()
    except DanseoError:
        return []


def _read_points(log: Sequence[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(float(line["step"]), float(line[key])) for line in log if line.get("step") and line.get(key) is not None]


def _make_seed_table(done: Sequence[Record]) -> list[Block]:
    table = make_group_table(done, ["model"])
    at = table.columns.index("n")
    return [TableBlock(compact(table))] if any(isinstance(n := row[at], int) and n > 1 for row in table.rows) else []


def _make_cost_table(collection: Collection, done: Sequence[Record]) -> list[Block]:
    rows = []
    for record in rank_runs(done):
        facts, preflight = record.surroundings, record.scores.get("preflight") or {}
        cells = [*map(facts.get, _COSTS), *map(preflight.get, _TOKENIZER_COSTS)]
        rows.append((collection.name(record), *cells))
    columns = ("run", "seconds", "peak memory GiB", "device", "parameters", "tokens per character")
    has_ceiling = any(row[-1] is not None for row in rows)
    note = _("ceiling: the score of a perfect model with this tokenizer") if has_ceiling else ""
    table = Table("time, memory and tokenizer", (*columns, "unknown %", "truncated %", "ceiling"), rows, note)
    return [TableBlock(table.without_empty(), collection.links(done))] if rows else []


def _make_extra_sections(collection: Collection, done: Sequence[Record]) -> list[PageSection]:
    """Return a section per table that families add to their runs, with a row per run."""
    found: dict[str, list[tuple[Record, Table]]] = {}
    for record in rank_runs(done):
        for table in read_extra_tables(record.scores):
            if len(table.columns) == 2:
                found.setdefault(table.title, []).append((record, table))
    return [
        PageSection(Message(title.capitalize(), title), [_transpose(collection, done, listed)])
        for title, listed in found.items()
    ]


def _transpose(collection: Collection, done: Sequence[Record], listed: Sequence[tuple[Record, Table]]) -> Block:
    """Return tables of names and values as one table with a row per run."""
    names = list(dict.fromkeys(str(row[0]) for _, table in listed for row in table.rows))
    rows: list[tuple[object, ...]] = []
    for record, table in listed:
        values = {str(name): value for name, value in table.rows}
        rows.append((collection.name(record), *(values.get(name) for name in names)))
    first = listed[0][1]
    return TableBlock(Table(first.title, ("run", *names), rows, first.note), collection.links(done))


def _make_member_table(collection: Collection, done: Sequence[Record]) -> list[Block]:
    """Return the members of each ensemble or soup, by their names on the pages if they have one."""
    names = {record.run.path.name: collection.name(record) for record in done}
    rows: list[tuple[object, ...]] = []
    for record in done:
        for part in record.parts:
            member = str(part.get("name") or part.get("run"))
            known = names.get(Path(member).name, member)
            rows.append((collection.name(record), known, part.get("weight"), part.get("select_score")))
    table = Table("members", ("ensemble", "member", "weight", "select score"), rows).without_empty()
    return [TableBlock(table, collection.links(done))] if rows else []


def _make_disagreements(collection: Collection, task: Task, done: Sequence[Record], most: int) -> list[Block]:
    scored = [record for record in rank_runs(done) if record.value() is not None and not is_fold(record)]
    best = [record for record in scored if get_scored_set(record) == get_scored_set(scored[0])][:2]
    return [find_disagreements(collection, task, best[0], best[1], most)] if len(best) == 2 else []


def _draw_stress(collection: Collection, done: Sequence[Record]) -> list[Block]:
    """Return the results of `danseo stress` side by side, a figure for each set of examples."""
    groups: dict[object, dict[str, StressResult]] = {}
    for record in rank_runs(done):
        if result := read_stress(record.run):
            key = result.data_sha256, result.n, result.limit
            groups.setdefault(key, {})[collection.name(record)] = result
    caption = _("change of the score in points; n = {n:,}")
    return [
        FigureBlock(
            _("What perturbations cost"),
            draw_stress_grid(results),
            make_side_by_side_table(results),
            caption.format(n=next(iter(results.values())).n),
        )
        for results in groups.values()
    ]


def _make_unfinished_table(collection: Collection, records: Sequence[Record]) -> list[Block]:
    rows = [(collection.name(r), r.status, r.note or None) for r in records]
    table = Table("not finished", ("run", "status", "why"), rows).without_empty()
    return [TableBlock(table, collection.links(records))] if rows else []
