"""The table of a sweep: runs of one task, best first."""

from collections.abc import Sequence
from typing import Any

from danseo.display.table import Best, Strong, Table, as_typed
from danseo.errors import DanseoError
from danseo.language import _, join
from danseo.runs.index import Record
from danseo.runs.provenance import describe_split, get_dev_set
from danseo.tables.runs import find_hidden_columns
from danseo.tables.seeds import shorten_metric
from danseo.tables.variants import choose_settings, drop_copies, format_traits, make_model_names, shorten_setting

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
        _make_row(r, model, settings, list(values)) for r, model, *values in zip(chosen, names, *marked, strict=True)
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


def _make_row(record: Record, name: str, settings: Sequence[str], scores: list[Any]) -> tuple[object, ...]:
    model = Strong(name) if type(scores[0]) is Best else name
    settings_cells = (as_typed(record.seed), *format_traits(record, settings), record.scores.get("best_step"))
    facts = describe_split(record), record.status_with_note, str(record.run.path)
    return model, *settings_cells, *scores, record.failed_percent, *facts
