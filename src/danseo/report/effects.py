"""What settings do: the runs of a task by each value of each setting in which they differ."""

from collections.abc import Sequence
from statistics import mean

from danseo.display.table import Table
from danseo.plots.figures import Forest
from danseo.report.blocks import Block, FigureBlock
from danseo.report.collect import Collection
from danseo.runs.index import Record
from danseo.runs.layouts.variants import key_of, short_setting, shown_traits, varied
from danseo.tasks.task import Task

_FEWEST = 3  # variants of a model; two are told by the table of scores
_NOT = ("data", "fold")  # neither is chosen


def effects(collection: Collection, task: Task, done: Sequence[Record]) -> list[Block]:
    """A figure per model that was run with several settings."""
    models: dict[str, list[Record]] = {}
    for record in done:
        found = record.score()
        if found and found["value"] is not None and not record.is_floor and not record.is_made_of_runs:
            models.setdefault(record.identity, []).append(record)
    return [
        block
        for records in models.values()
        if len({key_of(record) for record in records}) >= _FEWEST
        for block in _of_model(task, records)
    ]


def _of_model(task: Task, records: Sequence[Record]) -> list[Block]:
    groups = [
        (short_setting(name), value, scores)
        for name in varied(records)
        if name not in _NOT
        for value, scores in _by_value(records, name)
    ]
    if not groups:
        return []
    rows: list[tuple[object, ...]] = [(n, v, len(f), mean(f), min(f), max(f)) for n, v, f in groups]
    table = Table("effects of settings", ("setting", "value", "runs", "mean", "worst", "best"), rows)
    names = [f"{name} = {value} ({len(scores)})" for name, value, scores in groups]
    values = [(min(scores), mean(scores), max(scores)) for _, _, scores in groups]
    caption = (
        "dots are means over all runs with that value, whatever their other settings; bars go from the worst to the "
        "best run, in brackets how many there are"
    )
    return [FigureBlock(f"{records[0].model}: settings", Forest(names, values, task.headline), table, caption)]


def _shown(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _by_value(records: Sequence[Record], name: str) -> list[tuple[str, list[float]]]:
    """The scores of the runs by the value of a setting, best mean first; none where all have the same."""
    groups: dict[str, list[float]] = {}
    for record in records:
        value, score = shown_traits(record, [name])[0], record.score() or {}
        groups.setdefault(_shown(value), []).append(float(score["value"]))
    return sorted(groups.items(), key=lambda pair: -mean(pair[1])) if len(groups) > 1 else []
