"""Per seed every model and the ensemble, then mean and spread over the seeds: the table of a seed study."""

from collections.abc import Sequence
from statistics import mean, pstdev, stdev
from typing import Any

from danseo.display.table import Strong, Table, as_typed, shown_interval
from danseo.errors import DanseoError
from danseo.runs.index import Record, protocol
from danseo.runs.layouts.listing import have_replies, mean_failed, t_interval
from danseo.runs.layouts.variants import distinct, key_of, label_variants

_NAMES = {"ner/entity_f1@official-1": "entity F1", "ner/char_f1@official-1": "char F1"}
NOTE = "std divides by n - 1, the population std by n (as the old report printed it)"


def seed_tables(records: Sequence[Record], task: str = "ner", *, with_paths: bool = False) -> list[Table]:
    """The table of one task, and its summary; a run that is there twice counts once."""
    found = distinct([record for record in records if record.task == task])
    chosen = found.records
    if not chosen:
        raise DanseoError(f"--table seed000: no runs of {task} there; name a task with --task")
    metrics = chosen[0].run.task.table_metrics[:2]
    labels = dict(zip(map(id, chosen), label_variants(chosen), strict=True))
    rows: list[tuple[Any, ...]] = []
    for seeds in sorted({record.seeds for record in chosen}, key=lambda seeds: (len(seeds) != 1, seeds)):
        rows += _seed_rows([record for record in chosen if record.seeds == seeds], labels, metrics)
    columns = ("seed", "model", *map(short_name, metrics), "failed %", "scored on", "status", "run")
    table = Table(f"{task}: seeds", columns, rows, found.note, keys=2, once=("scored on",))
    silent = {*(() if with_paths else ("run",)), *(() if have_replies(chosen) else ("failed %",))}
    shown = [position for position, name in enumerate(columns) if name not in silent]
    return [table.only(shown), _summary(task, chosen, labels, metrics)]


def short_name(metric: str) -> str:
    """ner/entity_f1@official-1 as entity F1."""
    return _NAMES.get(metric) or metric.split("/")[1].split("@")[0].replace("_", " ")


def _seed_rows(records: Sequence[Record], labels: dict[int, str], metrics: Sequence[str]) -> list[tuple[Any, ...]]:
    """The models of a seed, small ones first, then what is made of them; an absent ensemble is said to be absent."""
    shown = as_typed(records[0].seed)
    single = sorted((r for r in records if not r.is_made_of_runs), key=lambda r: (size_of(r), labels[id(r)]))
    made = [record for record in records if record.is_made_of_runs]
    rows = [_row(shown, labels[id(record)], record, metrics) for record in single]
    rows += [_row(shown, Strong(made_name(labels[id(record)])), record, metrics) for record in made]
    if not made and len(single) > 1:
        broken = [record for record in single if record.status != "done"]
        status = f"INCOMPLETE: {broken[0].model} {broken[0].status}" if broken else "not made (danseo ensemble)"
        rows.append((shown, Strong("ENSEMBLE"), *[None] * len(metrics), None, None, status, None))
    return rows


def made_name(label: str) -> str:
    """The name of an ensemble or soup, its kind in capitals."""
    for kind in ("ensemble", "soup"):
        if label.startswith(kind):
            return kind.upper() + label[len(kind) :]
    return label


def size_of(record: Record) -> float:
    """How many parameters a model has; unknown ones come first."""
    return float(record.surroundings.get("parameters") or 0)


def _row(seed: object, label: str, record: Record, metrics: Sequence[str]) -> tuple[Any, ...]:
    status = {"done": "OK"}.get(record.status, record.status.upper())
    note = f": {record.note}" if record.note else ""
    scores = [_value(record, metric) for metric in metrics]
    return (seed, label, *scores, record.failed_percent, protocol(record), status + note, str(record.run.path))


def _value(record: Record, metric: str) -> float | None:
    found = record.score(metric)
    return found["value"] if found else None


def _summary(task: str, records: Sequence[Record], labels: dict[int, str], metrics: Sequence[str]) -> Table:
    """Mean ± std over the seeds of every model; what was scored on different examples is never averaged."""
    groups: dict[object, list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.is_made_of_runs, size_of(r))):
        if record.status == "done":
            groups.setdefault((key_of(record), protocol(record)), []).append(record)
    rows: list[tuple[object, ...]] = []
    for members in groups.values():
        label, split = made_name(labels[id(members[0])]), protocol(members[0])
        for metric in metrics:
            values = [value for value in (_value(m, metric) for m in members) if value is not None]
            if values:
                rows.append((label, short_name(metric), *spread(values), mean_failed(members), split))
    columns = ("model", "metric", "mean", "std", "population std", "n", "95 % t-interval", "failed %", "scored on")
    table = Table(f"{task}: mean over seeds", columns, rows, NOTE, once=("metric", "scored on"))
    return table if have_replies(records) else table.only([k for k, name in enumerate(columns) if name != "failed %"])


def spread(values: Sequence[float]) -> tuple[Any, ...]:
    """Mean, sample and population standard deviation, n, and the t-interval; one value has no spread."""
    low, high = t_interval(values)
    spreads = (stdev(values), pstdev(values)) if len(values) > 1 else (None, None)
    return mean(values), *spreads, len(values), shown_interval(low, high)
