"""Models × the eight tasks in KLUE's order and metrics, with the published baselines as reference rows."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from danseo.display.table import Best, Second, Table
from danseo.files import read_text
from danseo.runs.index import Record, protocol
from danseo.runs.layouts.seeds import made_name, size_of
from danseo.runs.layouts.variants import distinct, key_of, model_names
from danseo.tasks import TASKS

COLUMNS = {f"{task.short} {word}": id_ for task in TASKS.values() for word, id_ in task.columns.items()}
PUBLISHED = "published, test set"
_SIZES = ((80e6, "small"), (200e6, "base"))  # up to so many parameters; more is large


@dataclass(frozen=True)
class Line:
    """A row before it is shown."""

    model: str
    size: str
    cells: list[float | str | None]
    scored_on: str
    seeds: str = ""
    runs: dict[str, list[str]] = field(default_factory=dict)
    """Task -> the directories that its cells come from."""
    spreads: list[str] = field(default_factory=list)
    """Beneath each cell: the 95 % interval of one run, the standard deviation over several seeds."""


def klue_tables(records: Sequence[Record], *, with_paths: bool = False, in_one: bool = False) -> list[Table]:
    """Own models first, then the published ones; the best of all and of each size are marked among their like."""
    found = distinct(records)
    own = _merged(_lines(found.records))
    rows = [*_marked(own if in_one else _numbers(own)), *_marked(published())]
    note = (
        "bold or *: best; underlined, italic or ': best of its size; each among own and among published rows. "
        "Own rows are means over seeds, of several variants the one that is best on the select half"
    )
    columns = ("model", "size", *COLUMNS, "seeds", "scored on", "runs")
    note = "; ".join(filter(None, (note, "" if in_one else _open(own), _failed(found.records), found.note)))
    table = Table("KLUE", columns, rows, note, keys=1, section="scored on")
    if not with_paths or in_one:
        return [table if with_paths else table.only(range(len(columns) - 1))]
    return [table.only(range(len(columns) - 1)), _paths(own)]


def klue_spreads(records: Sequence[Record]) -> list[dict[str, str]]:
    """What goes beneath the numbers of the first of the tables, by row and column."""
    lines = [*_numbers(_merged(_lines(distinct(records).records))), *published()]
    return [{name: text for name, text in zip(COLUMNS, line.spreads, strict=False) if text} for line in lines]


def _spread(scores: Sequence[dict[str, Any]]) -> str:
    if len(scores) > 1:
        return f"± {stdev(score['value'] for score in scores):.1f}"
    return "{:.1f}–{:.1f}".format(*scores[0]["interval"]) if scores and scores[0]["interval"] else ""


def _failed(records: Sequence[Record]) -> str:
    """How many replies of language models failed, which count as wrong."""
    shares: dict[str, list[str]] = {}
    for record in records:
        if record.failed_percent is not None:
            shares.setdefault(record.model, []).append(f"{record.failed_percent:.2f} % in {record.task}")
    told = [f"{model} {', '.join(found)}" for model, found in shares.items()]
    return f"failed replies: {'; '.join(told)}" if told else ""


def _numbers(lines: Sequence[Line]) -> list[Line]:
    """The lines without words, which would need more room than numbers; and those that have any."""
    found = [replace(line, cells=[None if isinstance(cell, str) else cell for cell in line.cells]) for line in lines]
    return [line for line in found if any(cell is not None for cell in line.cells)]


def _open(lines: Sequence[Line]) -> str:
    """What is not there yet, in words."""
    return "; ".join(
        dict.fromkeys(
            f"{line.model} is {cell} in {column.split()[0]}"
            for line in lines
            for column, cell in zip(COLUMNS, line.cells, strict=True)
            if isinstance(cell, str)
        )
    )


def _paths(lines: Sequence[Line]) -> Table:
    """Where the own numbers come from."""
    rows: list[tuple[object, ...]] = [
        (line.model, task, path) for line in lines for task, paths in line.runs.items() for path in paths
    ]
    return Table("runs of the table", ("model", "task", "run"), rows)


def _lines(records: Sequence[Record]) -> list[Line]:
    """A line per model and per set of examples that it was scored on."""
    tags, names = _data_tags(records), model_names(records)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record, name, tag in zip(records, names, tags, strict=True):
        groups.setdefault((f"{protocol(record)}{tag}" if record.scores else "", name), []).append(record)
    order = sorted(groups, key=lambda key: (key[0], groups[key][0].is_made_of_runs, _size(groups[key]), key[1]))
    return [_line(name, groups[split, name], split) for split, name in order]


def _data_tags(records: Sequence[Record]) -> list[str]:
    """Which dev file a run answered, where runs of its task answered several: those are not to be compared."""
    files: dict[str, set[str]] = {}
    for record in records:
        if record.scores:
            files.setdefault(record.task, set()).add(record.dev_sha256)
    return [f" of dev {record.dev_sha256[:6]}" if len(files.get(record.task, ())) > 1 else "" for record in records]


def _merged(lines: Sequence[Line]) -> list[Line]:
    """A model whose only unscored runs are unfinished ones shares the row of its scored ones."""
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


def _size(records: Sequence[Record]) -> float:
    return max(size_of(record) for record in records)


def size_word(parameters: float) -> str:
    """small, base or large, by the number of parameters; – where it is not known."""
    return next((word for limit, word in _SIZES if parameters <= limit), "large") if parameters else "–"


def _line(name: str, records: Sequence[Record], split: str) -> Line:
    cells: list[float | str | None] = []
    spreads: list[str] = []
    runs: dict[str, list[str]] = {}
    counts: set[int] = set()
    for metric in COLUMNS.values():
        task = metric.split("/")[0]
        of_task = [record for record in records if record.task == task]
        done = best_variant([record for record in of_task if record.status == "done"])
        scores = [score for r in done if (score := r.score(metric)) and score["value"] is not None]
        found = [score["value"] for score in scores]
        spreads.append(_spread(scores))
        cells.append(mean(found) if found else of_task[0].status if of_task and not done else None)
        counts |= {len(found)} - {0}
        runs |= {task: [str(record.run.path) for record in done]} if done else {}
    seeds = "–".join(map(str, sorted({min(counts), max(counts)}))) if counts else "0"
    return Line(made_name(name), size_word(_size(records)), cells, split, seeds, runs, spreads)


def best_variant(records: Sequence[Record]) -> list[Record]:
    """The runs of the settings with the highest mean on the select half; the reported half has no say.

    What picked a run of a fold were examples of train, so it has no such mean: it counts where there are no others.
    """
    groups: dict[object, list[Record]] = {}
    for record in [record for record in records if not record.settings.get("folds")] or records:
        groups.setdefault(key_of(record), []).append(record)
    return max(groups.values(), key=_select_score) if groups else []


def _select_score(records: Sequence[Record]) -> float:
    known = [score for record in records if (score := select_score(record)) is not None]
    return mean(known) if known else float("-inf")


def select_score(record: Record) -> float | None:
    """The headline on the select half; older runs have it in their log only."""
    if record.scores.get("select_score") is not None:
        return float(record.scores["select_score"])
    try:
        bests = [float(line["best"]) for line in record.run.read_log() if line.get("best") is not None]
    except (ValueError, TypeError, AttributeError):
        return None  # a damaged log decides nothing
    return bests[-1] if bests else None


def published() -> list[Line]:
    """The baselines of the KLUE benchmark's own table."""
    path = Path(__file__).with_name("published.toml")
    document = tomllib.loads(read_text(path))
    return [
        Line(model["name"], model["size"], [model["scores"].get(column) for column in COLUMNS], PUBLISHED)
        for model in document["model"]
    ]


def _marked(lines: Sequence[Line]) -> list[tuple[object, ...]]:
    """The rows with the best numbers of each column marked; where all are the same nobody wins."""
    rows: list[list[object]] = [list(line.cells) for line in lines]
    for position in range(len(COLUMNS)):
        known = {k: value for k, line in enumerate(lines) if isinstance(value := line.cells[position], float)}
        for k, value in known.items():
            of_size = [other for j, other in known.items() if lines[j].size == lines[k].size]
            if min(known.values()) < value == max(known.values()):
                rows[k][position] = Best(value)
            elif min(of_size) < value == max(of_size):
                rows[k][position] = Second(value)
    return [
        (line.model, line.size, *row, line.seeds or None, line.scored_on or None, _all_runs(line))
        for line, row in zip(lines, rows, strict=True)
    ]


def _all_runs(line: Line) -> list[str] | None:
    return [path for paths in line.runs.values() for path in paths] or None
