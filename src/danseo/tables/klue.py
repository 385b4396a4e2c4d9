"""The KLUE table: models × eight tasks, with published scores."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, stdev
from typing import Any

from danseo.display.table import Best, Second, Table
from danseo.errors import DanseoError
from danseo.language import _, join
from danseo.runs.index import Record
from danseo.runs.provenance import answered_whole_dev, describe_split, get_dev_set, name_dev_sets
from danseo.tables.published import read_published
from danseo.tables.seeds import capitalize_run_type, get_parameters
from danseo.tables.variants import drop_copies, get_variant_key, make_model_names
from danseo.tasks import TASKS

COLUMNS = {f"{task.short} {word}": id_ for task in TASKS.values() for word, id_ in task.columns.items()}
PUBLISHED = {"dev": _("published, dev set"), "test": _("published, test set")}
"""The headings of published scores by split."""
_HALF = _("dev (selected on half of it)")
_SIZES = ((80e6, "small"), (200e6, "base"))  # the largest number of parameters of a size; more is large


@dataclass(frozen=True)
class KlueRow:
    """A row of the KLUE table."""

    model: str
    size: str
    cells: list[float | str | None]
    scored_on: str
    seeds: str = ""
    runs: dict[str, list[str]] = field(default_factory=dict)
    """Task -> its run directories."""
    spreads: list[str] = field(default_factory=list)
    """For each cell, the 95 % interval of one run or the standard deviation over seeds."""


def make_klue_tables(records: Sequence[Record], *, with_paths: bool = False, in_one: bool = False) -> list[Table]:
    """Return the runs and then the published models, with the best numbers marked."""
    copies = drop_copies(records)
    own = _merge_rows(_make_rows(copies.records))
    rows = [*_mark_best(own if in_one else _drop_texts(own)), *_mark_best(list_published_rows(own))]
    note = _(
        "bold or *: best; underlined, italic or ': best of its size; each among the rows scored on the same examples. "
        "Own rows are means over seeds; of several variants, the best on the select split is used. "
        "Published dev scores are usually selected on dev; `danseo published` lists them with their sources"
    )
    columns = ("model", "size", *COLUMNS, "seeds", "scored on", "runs")
    unscored = "" if in_one else _describe_unscored(own)
    note = join(filter(None, (note, unscored, _describe_failures(copies.records), copies.note)), "; ")
    table = Table("KLUE", columns, rows, note, keys=1, section="scored on")
    if not in_one:
        shown = _find_shown_metrics(_drop_texts(own))
        table = table.without([name for name, metric in COLUMNS.items() if metric not in shown])
    columns = table.columns
    if not with_paths or in_one:
        return [table if with_paths else table.only(range(len(columns) - 1))]
    paths = [(line.model, task, path) for line in own for task, found in line.runs.items() for path in found]
    listed = Table("runs of the table", ("model", "task", "run"), list(dict.fromkeys(paths)))
    return [table.only(range(len(columns) - 1)), listed]


def _find_shown_metrics(own: Sequence[KlueRow]) -> set[str]:
    """Return the metrics that some run has; all of them without runs."""
    scored = {
        metric
        for line in own
        for metric, cell in zip(COLUMNS.values(), line.cells, strict=True)
        if isinstance(cell, float)
    }
    return scored or set(COLUMNS.values())


def list_klue_spreads(records: Sequence[Record]) -> list[dict[str, str]]:
    """Return the spreads of the first table, by row and column."""
    own = _merge_rows(_make_rows(drop_copies(records).records))
    lines = [*_drop_texts(own), *list_published_rows(own)]
    return [{name: text for name, text in zip(COLUMNS, line.spreads, strict=False) if text} for line in lines]


def _format_spread(scores: Sequence[dict[str, Any]]) -> str:
    if len(scores) > 1:
        return f"± {stdev(score['value'] for score in scores):.1f}"
    return "{:.1f}–{:.1f}".format(*scores[0]["interval"]) if scores and scores[0]["interval"] else ""


def _describe_failures(records: Sequence[Record]) -> str:
    """Describe how many examples failed."""
    shares: dict[str, list[str]] = {}
    for record in records:
        if record.failed_percent is not None:
            shares.setdefault(record.model, []).append(f"{record.failed_percent:.2f} % in {record.task}")
    failed = [f"{model} {', '.join(found)}" for model, found in shares.items()]
    return _("failed examples: {runs}").format(runs="; ".join(failed)) if failed else ""


def _drop_texts(lines: Sequence[KlueRow]) -> list[KlueRow]:
    """Return the lines with numbers, without texts in their cells."""
    found = [replace(line, cells=[None if isinstance(cell, str) else cell for cell in line.cells]) for line in lines]
    return [line for line in found if any(cell is not None for cell in line.cells)]


def _describe_unscored(lines: Sequence[KlueRow]) -> str:
    """Describe the runs without scores."""
    return "; ".join(
        dict.fromkeys(
            f"{line.model} is {cell} in {column.split()[0]}"
            for line in lines
            for column, cell in zip(COLUMNS, line.cells, strict=True)
            if isinstance(cell, str)
        )
    )


def _make_rows(records: Sequence[Record]) -> list[KlueRow]:
    """Return a line per model and dev set; runs on all of KLUE's dev set have a second one, as published scores do."""
    dev_sets = name_dev_sets(records)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record, name in zip(records, make_model_names(records), strict=True):
        split = describe_split(record, dev_sets.get(get_dev_set(record), "")) or ""
        groups.setdefault((split, name), []).append(record)
        if record.scores and record.scores["reported_on"] != "dev" and answered_whole_dev(record):
            groups.setdefault((_HALF, name), []).append(record)

    def rank(key: tuple[str, str]) -> tuple[object, ...]:  # dev next to the published scores
        is_dev = key[0].startswith("dev")
        return is_dev, key[0], groups[key][0].is_made_of_runs, _get_largest_size(groups[key]), key[1]

    return [_make_row(name, groups[split, name], split) for split, name in sorted(groups, key=rank)]


def _merge_rows(lines: Sequence[KlueRow]) -> list[KlueRow]:
    """Merge the line of a model's unfinished runs into that of its scored runs."""
    scored = [line for line in lines if line.scored_on]
    for line in (line for line in lines if not line.scored_on):
        position = next((k for k, other in enumerate(scored) if other.model == line.model), None)
        if position is None:
            scored.append(line)
        else:
            pairs = zip(scored[position].cells, line.cells, strict=True)
            scored[position] = replace(
                scored[position], cells=[ours if ours is not None else theirs for ours, theirs in pairs]
            )
    return scored


def _get_largest_size(records: Sequence[Record]) -> float:
    return max(get_parameters(record) for record in records)


def classify_size(parameters: float) -> str:
    """Return small, base or large by the number of parameters; – if unknown."""
    return next((word for limit, word in _SIZES if parameters <= limit), "large") if parameters else "–"


def _make_row(name: str, records: Sequence[Record], split: str) -> KlueRow:
    cells: list[float | str | None] = []
    spreads: list[str] = []
    runs: dict[str, list[str]] = {}
    counts: set[int] = set()
    for metric in COLUMNS.values():
        task = metric.split("/")[0]
        of_task = [record for record in records if record.task == task]
        done = choose_best_variant([record for record in of_task if record.status == "done"])
        listed = [r.score(metric, "dev" if split == _HALF else None) for r in done]
        scores = [score for score in listed if score and score["value"] is not None]
        found = [score["value"] for score in scores]
        spreads.append(_format_spread(scores))
        cells.append(mean(found) if found else of_task[0].status if of_task and not done else None)
        counts |= {len(found)} - {0}
        runs |= {task: [str(record.run.path) for record in done]} if done else {}
    seeds = "–".join(map(str, sorted({min(counts), max(counts)}))) if counts else "0"
    return KlueRow(
        capitalize_run_type(name), classify_size(_get_largest_size(records)), cells, split, seeds, runs, spreads
    )


def choose_best_variant(records: Sequence[Record]) -> list[Record]:
    """Return the runs of the settings with the highest mean on the select split.

    Runs of folds count only if there are no others, because they were selected on training examples.
    """
    groups: dict[object, list[Record]] = {}
    for record in [record for record in records if not record.settings.get("n_folds")] or records:
        groups.setdefault(get_variant_key(record), []).append(record)
    return max(groups.values(), key=_compute_select_score) if groups else []


def _compute_select_score(records: Sequence[Record]) -> float:
    known = [score for record in records if (score := read_select_score(record)) is not None]
    return mean(known) if known else float("-inf")


def read_select_score(record: Record) -> float | None:
    """Return the headline score on the select split."""
    if record.scores.get("select_score") is not None:
        return float(record.scores["select_score"])
    try:
        bests = [float(line["best"]) for line in record.run.read_log() if line.get("best") is not None]
    except DanseoError:
        return None  # a corrupted log has no score
    return bests[-1] if bests else None


def list_published_rows(own: Sequence[KlueRow]) -> list[KlueRow]:
    """Return the published models with at least half of the metrics that the runs have: dev scores, then test scores.

    Several scores of a source for one model and metric, such as reruns, are one row with their mean.
    """
    groups: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    sizes: dict[str, str] = {}
    shown = _find_shown_metrics(own)
    for score in read_published():
        if score.is_valid and score.split in PUBLISHED and score.metric in COLUMNS.values():
            by_metric = groups.setdefault((score.split, score.model, score.source), {})
            by_metric.setdefault(score.metric, []).append(score.value)
            sizes[score.model] = score.size or "–"
    rows = []
    for (split, model, _source), values in sorted(groups.items(), key=lambda item: [*PUBLISHED].index(item[0][0])):
        if 2 * len(values.keys() & shown) >= len(shown):
            count = max(map(len, values.values()))
            found = [values.get(metric, []) for metric in COLUMNS.values()]
            spreads = [f"{min(each):.1f}–{max(each):.1f}" if len(each) > 1 else "" for each in found]
            cells: list[float | str | None] = [mean(each) if each else None for each in found]
            name = f"{model}, mean of {count}" if count > 1 else model
            rows.append(KlueRow(name, sizes[model], cells, PUBLISHED[split], spreads=spreads))
    return rows


def _mark_best(lines: Sequence[KlueRow]) -> list[tuple[object, ...]]:
    """Mark the best number of each column among rows scored on the same examples, unless all are equal."""
    rows: list[list[object]] = [list(line.cells) for line in lines]
    for position in range(len(COLUMNS)):
        known = {k: value for k, line in enumerate(lines) if isinstance(value := line.cells[position], float)}
        for k, value in known.items():
            same = {j: other for j, other in known.items() if lines[j].scored_on == lines[k].scored_on}
            of_size = [other for j, other in same.items() if lines[j].size == lines[k].size]
            if min(same.values()) < value == max(same.values()):
                rows[k][position] = Best(value)
            elif min(of_size) < value == max(of_size):
                rows[k][position] = Second(value)
    return [
        (line.model, line.size, *row, line.seeds or None, line.scored_on or None, _list_runs(line))
        for line, row in zip(lines, rows, strict=True)
    ]


def _list_runs(line: KlueRow) -> list[str] | None:
    return [path for paths in line.runs.values() for path in paths] or None
