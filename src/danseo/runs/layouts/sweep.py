"""Models × settings of one task, best first: the table of a sweep."""

from collections.abc import Sequence
from typing import Any

from danseo.display.table import Best, Strong, Table, as_typed
from danseo.errors import DanseoError
from danseo.runs.index import Record, protocol
from danseo.runs.layouts.listing import have_replies
from danseo.runs.layouts.seeds import short_name
from danseo.runs.layouts.variants import distinct, model_names, short_setting, shown_settings, shown_traits

_ALWAYS = ("train.learning_rate", "train.epochs", "train.batch_size")
_LOSS = "validation loss"


def sweep_table(
    records: Sequence[Record], task: str | None = None, *, with_paths: bool = False, wide: bool = False
) -> Table:
    """One row per run, sorted by the headline; the best number of each column is marked, a copy left out."""
    name = task or _only_task(records)
    found = distinct([record for record in records if record.task == name])
    chosen = sorted(found.records, key=_order)
    if not chosen:
        raise DanseoError(f"--table sweep: no runs of {name} there")
    described = chosen[0].run.task
    metrics = [*described.table_metrics, *described.shown_metrics]
    metrics.sort(key=lambda id_: id_ != described.headline)
    settings = shown_settings(chosen, _ALWAYS, wide=wide)
    scores = [[*(_value(r, id_) for id_ in metrics), r.scores.get("select_loss")] for r in chosen]
    marked = [_marked(column, lowest=k == len(metrics)) for k, column in enumerate(zip(*scores, strict=True))]
    names = model_names(chosen)
    rows = [_row(r, model, settings, list(values)) for r, model, *values in zip(chosen, names, *marked, strict=True)]
    told = tuple(map(short_setting, settings))
    scored = ("best step", *map(short_name, metrics), _LOSS, "failed %", "scored on", "status", "run")
    columns = ("model", "seed", *told, *scored)
    note = "best of each column marked; validation loss is that of the best checkpoint on the select half"
    note, once = "; ".join(filter(None, (note, found.note))), (*told, "scored on", "status")
    table = Table(f"{name}: runs, best first", columns, rows, note, keys=2, once=once)
    silent = {*(() if with_paths else ("run",)), *(() if have_replies(chosen) else ("failed %",))}
    return table.only([position for position, name in enumerate(columns) if name not in silent])


def _only_task(records: Sequence[Record]) -> str:
    tasks = sorted({record.task for record in records if record.settings})
    if len(tasks) != 1:
        raise DanseoError(f"--table sweep: runs of {', '.join(tasks) or 'no task'} there; choose one with --task")
    return tasks[0]


def _order(record: Record) -> tuple[bool, float, str]:
    found = record.score()
    value = found["value"] if found else None
    return value is None, -(value or 0.0), record.run.path.name


def _value(record: Record, metric: str) -> float | None:
    found = record.score(metric)
    return found["value"] if found else None


def _marked(column: Sequence[float | None], *, lowest: bool) -> list[float | None]:
    known = [value for value in column if value is not None]
    best = (min if lowest else max)(known) if len(set(known)) > 1 else None
    return [Best(value) if value is not None and value == best else value for value in column]


def _row(record: Record, name: str, settings: Sequence[str], scores: list[Any]) -> tuple[object, ...]:
    model = Strong(name) if type(scores[0]) is Best else name
    told = (as_typed(record.seed), *shown_traits(record, settings), record.scores.get("best_step"))
    status = record.status + (f": {record.note}" if record.note else "")
    return model, *told, *scores, record.failed_percent, protocol(record), status, str(record.run.path)
