"""Models × settings of one task, best first: the table of a sweep."""

from collections.abc import Sequence
from typing import Any

from danseo.errors import DanseoError
from danseo.runs.index import Record, protocol
from danseo.runs.seeds import official_metrics, short_name
from danseo.tables import Best, Strong, Table
from danseo.tasks import get_task

_SHOWN = {"train.learning_rate": "learning rate", "train.epochs": "epochs", "train.batch_size": "batch", "seed": "seed"}
_ALIKE = ("task", "model", "recipe", "train.threads", *_SHOWN)
_LOSS = "validation loss"


def sweep_table(records: Sequence[Record], task: str | None = None) -> Table:
    """One row per run, sorted by the headline; the best number of each column is marked."""
    name = task or _only_task(records)
    chosen = sorted((r for r in records if r.task == name), key=_order)
    if not chosen:
        raise DanseoError(f"--table sweep: no runs of {name} there")
    metrics = [*official_metrics(name), *(["re/accuracy@plain-1"] if name == "re" else [])]
    metrics.sort(key=lambda id_: id_ != get_task(name).headline)
    varied = _varied(chosen)
    scores = [[*(_value(r, id_) for id_ in metrics), r.scores.get("select_loss")] for r in chosen]
    marked = [_marked(column, lowest=k == len(metrics)) for k, column in enumerate(zip(*scores, strict=True))]
    rows = [_row(r, varied, list(values)) for r, *values in zip(chosen, *marked, strict=True)]
    columns = ("model", *_SHOWN.values(), *(key.split(".")[-1] for key in varied), "best step")
    columns += (*map(short_name, metrics), _LOSS, "scored on", "status")
    note = "best of each column marked; validation loss is that of the best checkpoint on the select half"
    return Table(f"{name}: runs, best first", columns, rows, note)


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


def _varied(records: Sequence[Record]) -> list[str]:
    """Further settings in which trained runs differ."""
    trained = [r for r in records if r.settings and not r.is_made_of_runs and "train.epochs" in r.settings]
    keys = [key for key in (trained[0].settings if trained else ()) if key not in _ALIKE]
    return [key for key in keys if len({str(record.settings[key]) for record in trained}) > 1]


def _marked(column: Sequence[float | None], *, lowest: bool) -> list[float | None]:
    known = [value for value in column if value is not None]
    best = (min if lowest else max)(known) if len(known) > 1 else None
    return [Best(value) if value is not None and value == best else value for value in column]


def _row(record: Record, varied: Sequence[str], scores: list[Any]) -> tuple[object, ...]:
    model = Strong(record.model) if type(scores[0]) is Best else record.model
    settings = [record.seed if key == "seed" else record.setting(key) for key in _SHOWN]
    further = [record.setting(key) for key in varied]
    status = record.status + (f": {record.note}" if record.note else "")
    return model, *settings, *further, record.scores.get("best_step"), *scores, protocol(record), status
