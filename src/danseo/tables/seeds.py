"""Tables of the runs of one task: per seed, with mean and spread over seeds; and a sweep, best first."""

import re
from collections.abc import Sequence
from typing import Any

from danseo.display.table import Best, Strong, Table, as_typed
from danseo.errors import DanseoError
from danseo.language import _, join
from danseo.runs.index import Record
from danseo.runs.provenance import describe_split, get_dev_set
from danseo.tables.runs import compute_mean_failed, find_hidden_columns, summarize_seeds
from danseo.tables.variants import (
    choose_settings,
    drop_copies,
    format_traits,
    get_variant_key,
    label_variants,
    make_model_names,
    shorten_setting,
)

_ABBREVIATIONS = ("f1", "auprc", "uas", "las", "jga")
NOTE = _("std divides by n - 1, population std by n")


def make_seed_tables(records: Sequence[Record], task: str = "ner", *, with_paths: bool = False) -> list[Table]:
    """Return the table of one task and its summary; a copy does not count."""
    found = drop_copies([record for record in records if record.task == task])
    chosen = found.records
    if not chosen:
        raise DanseoError(f"--table seeds: no runs of {task} there; name a task with --task")
    metrics = chosen[0].run.task.table_metrics[:2]
    labels = dict(zip(map(id, chosen), label_variants(chosen), strict=True))
    rows: list[tuple[Any, ...]] = []
    for seeds in sorted({record.seeds for record in chosen}, key=lambda seeds: (len(seeds) != 1, seeds)):
        rows += _make_seed_rows([record for record in chosen if record.seeds == seeds], labels, metrics)
    columns = ("seed", "model", *map(shorten_metric, metrics), "failed %", "scored on", "status", "run")
    table = Table(_("{task}: seeds").format(task=task), columns, rows, found.note, keys=2, once=("scored on",))
    return [table.without(find_hidden_columns(chosen, with_paths)), _make_summary_table(task, chosen, labels, metrics)]


def shorten_metric(metric: str) -> str:
    """Shorten ner/entity_f1@official-1 to "entity F1 (official)": the definition stays visible."""
    name, _at, definition = metric.split("/")[1].partition("@")
    words = [word.upper() if word in _ABBREVIATIONS else word for word in name.split("_")]
    return f"{' '.join(words)} ({definition.rsplit('-', 1)[0]})"


def _make_seed_rows(records: Sequence[Record], labels: dict[int, str], metrics: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the models of a seed, small ones first, then their ensembles or a row for a missing one."""
    shown = as_typed(records[0].seed)
    single = sorted((r for r in records if not r.is_made_of_runs), key=lambda r: (get_parameters(r), labels[id(r)]))
    made = [record for record in records if record.is_made_of_runs]
    rows = [_make_row(shown, labels[id(record)], record, metrics) for record in single]
    rows += [_make_row(shown, Strong(capitalize_run_type(labels[id(record)])), record, metrics) for record in made]
    if not made and len(single) > 1:
        broken = [record for record in single if record.status != "done"]
        status = f"INCOMPLETE: {broken[0].model} {broken[0].status}" if broken else "not made (danseo ensemble)"
        rows.append((shown, Strong("ENSEMBLE"), *[None] * len(metrics), None, None, status, None))
    return rows


def capitalize_run_type(label: str) -> str:
    """Return the name of an ensemble or soup with its type in capitals."""
    return re.sub("^(ensemble|soup)", lambda match: match[0].upper(), label)


def get_parameters(record: Record) -> float:
    """Return the number of parameters; 0 if unknown."""
    return float(record.surroundings.get("parameters") or 0)


def _make_row(seed: object, label: str, record: Record, metrics: Sequence[str]) -> tuple[Any, ...]:
    status = {"done": "OK"}.get(record.status, record.status.upper())
    note = f": {record.note}" if record.note else ""
    scores = map(record.value, metrics)
    return (seed, label, *scores, record.failed_percent, describe_split(record), status + note, str(record.run.path))


def _make_summary_table(task: str, records: Sequence[Record], labels: dict[int, str], metrics: Sequence[str]) -> Table:
    """Return mean ± std over the seeds of every model and dev set."""
    groups: dict[object, list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.is_made_of_runs, get_parameters(r))):
        if record.status == "done":
            groups.setdefault((get_variant_key(record), describe_split(record)), []).append(record)
    rows: list[tuple[object, ...]] = []
    for members in groups.values():
        label, split = capitalize_run_type(labels[id(members[0])]), describe_split(members[0])
        for metric in metrics:
            values = [value for member in members if (value := member.value(metric)) is not None]
            if values:
                rows.append(
                    (label, shorten_metric(metric), *summarize_seeds(values), compute_mean_failed(members), split)
                )
    columns = ("model", "metric", "mean", "std", "population std", "n", "95 % t-interval", "failed %", "scored on")
    table = Table(_("{task}: mean over seeds").format(task=task), columns, rows, NOTE, once=("metric", "scored on"))
    return table.without(find_hidden_columns(records))


_ALWAYS = ("train.learning_rate", "train.epochs", "train.batch_size")
_LOSS = "validation loss"


def make_sweep_table(
    records: Sequence[Record], task: str | None = None, *, with_paths: bool = False, wide: bool = False
) -> Table:
    """Return one row per run by headline score, with the best number of each column marked."""
    name = task or _find_only_task(records)
    found = drop_copies([record for record in records if record.task == name])
    chosen = sorted(found.records, key=_get_sort_key)
    if not chosen:
        raise DanseoError(f"--table sweep: no runs of {name} there")
    described = chosen[0].run.task
    metrics = [*described.table_metrics, *described.shown_metrics]
    metrics.sort(key=lambda id_: id_ != described.headline)
    settings = choose_settings(chosen, _ALWAYS, wide=wide)
    scores = [[*map(r.value, metrics), r.scores.get("select_loss")] for r in chosen]
    groups = [(get_dev_set(record), describe_split(record)) for record in chosen]
    marked = [
        _mark_best(column, groups, lowest=k == len(metrics)) for k, column in enumerate(zip(*scores, strict=True))
    ]
    names = make_model_names(chosen)
    rows = [
        _make_sweep_row(r, model, settings, list(values))
        for r, model, *values in zip(chosen, names, *marked, strict=True)
    ]
    names_of_settings = tuple(map(shorten_setting, settings))
    scored = ("best step", *map(shorten_metric, metrics), _LOSS, "failed %", "scored on", "status", "run")
    columns = ("model", "seed", *names_of_settings, *scored)
    note = _(
        "best of each column marked, among runs scored on the same examples; validation loss is that of the best "
        "checkpoint on the select split"
    )
    note, once = join(filter(None, (note, found.note)), "; "), (*names_of_settings, "scored on", "status")
    table = Table(_("{name}: runs, best first").format(name=name), columns, rows, note, keys=2, once=once)
    return table.without(find_hidden_columns(chosen, with_paths))


def _find_only_task(records: Sequence[Record]) -> str:
    tasks = sorted({record.task for record in records if record.settings})
    if len(tasks) != 1:
        raise DanseoError(f"--table sweep: runs of {', '.join(tasks) or 'no task'} there; choose one with --task")
    return tasks[0]


def _get_sort_key(record: Record) -> tuple[float, str]:
    return -record.rank_value(), record.run.path.name


def _mark_best(column: Sequence[float | None], groups: Sequence[object], *, lowest: bool) -> list[float | None]:
    """Mark the best value of each group of comparable runs, unless all of its values are equal."""
    known: dict[object, list[float]] = {}
    for group, value in zip(groups, column, strict=True):
        known.setdefault(group, []).extend([] if value is None else [value])
    bests = {group: (min if lowest else max)(values) for group, values in known.items() if len(set(values)) > 1}
    return [
        Best(value) if value is not None and value == bests.get(group) else value
        for group, value in zip(groups, column, strict=True)
    ]


def _make_sweep_row(record: Record, name: str, settings: Sequence[str], scores: list[Any]) -> tuple[object, ...]:
    model = Strong(name) if type(scores[0]) is Best else name
    settings_cells = (as_typed(record.seed), *format_traits(record, settings), record.scores.get("best_step"))
    facts = describe_split(record), record.status_with_note, str(record.run.path)
    return model, *settings_cells, *scores, record.failed_percent, *facts
