"""Tables with one row per run, or per group of runs that differ only in their seed."""

import math
from collections.abc import Sequence
from statistics import mean, pstdev, stdev
from typing import Any

from danseo.display.table import Table, as_typed, format_interval
from danseo.errors import DanseoError
from danseo.language import _, join
from danseo.runs.index import Record
from danseo.runs.provenance import describe_split
from danseo.tables.variants import (
    choose_settings,
    drop_copies,
    format_traits,
    get_traits,
    get_variant_key,
    make_model_names,
    shorten_setting,
)

_ALWAYS = ("train.learning_rate", "train.epochs")  # always shown
NOTE = _("std is the sample standard deviation (n - 1) over seeds; runs that differ in anything else are not averaged")


def make_run_table(
    records: Sequence[Record], metric: str | None = None, *, with_paths: bool = False, wide: bool = False
) -> Table:
    """Return one row per run with the settings that differ, or all of them; copies are marked."""
    settings = choose_settings(records, _ALWAYS, wide=wide)
    distinct = drop_copies(records)
    copies = {id(copy) for copy, _ in distinct.copies}
    rows = [
        (
            str(record.run.path),
            record.task,
            name,
            as_typed(record.seed),
            *format_traits(record, settings),
            (record.score(metric) or {}).get("id"),
            *format_score(record, metric),
            record.failed_percent,
            describe_split(record),
            record.surroundings.get("seconds"),
            _("copy") if id(record) in copies else record.status_with_note,
        )
        for record, name in zip(records, make_model_names(records), strict=True)
    ]
    names = tuple(map(shorten_setting, settings))
    scored = ("metric", "score", "95 % interval", "failed %", "scored on", "seconds", "status")
    columns, once = ("run", "task", "model", "seed", *names, *scored), (*names, "metric", "scored on", "status")
    table = Table("runs", columns, rows, distinct.note, keys=1 if with_paths else 4, once=once)
    return table.without(find_hidden_columns(records, with_paths))


def format_score(record: Record, metric: str | None = None) -> tuple[float | None, str | None]:
    """Return the value and the interval of a metric, by default the headline."""
    score = record.score(metric)
    return (score["value"], format_interval(score["interval"])) if score else (None, None)


def find_hidden_columns(records: Sequence[Record], with_paths: bool = False) -> list[str]:
    """Return the columns that a table of these runs does not need: directories, and failures of no run."""
    has_failures = any(record.failed_percent is not None for record in records)
    return [*(() if with_paths else ("run", "runs")), *(() if has_failures else ("failed %",))]


def make_group_table(
    records: Sequence[Record],
    keys: Sequence[str],
    metric: str | None = None,
    *,
    with_paths: bool = False,
    wide: bool = False,
) -> Table:
    """Return mean, standard deviation and t-interval over the seeds of each variant."""
    distinct = drop_copies([record for record in records if record.status == "done"])
    done = distinct.records
    names = dict(zip(map(id, done), make_model_names(done), strict=True))
    settings = [_find_full_name(done, key) for key in keys]
    more_settings = [name for name in _find_more_keys(done, wide) if name not in settings]
    groups: dict[object, list[Record]] = {}
    for record in done:
        groups.setdefault((get_variant_key(record), record.seeds if "seed" in settings else ()), []).append(record)
    rows: list[tuple[object, ...]] = []
    for members in groups.values():
        cells = [_format_cell(members[0], names[id(members[0])], name) for name in (*settings, *more_settings)]
        for id_, split, scored in _collect_scores(members, metric):
            paths = [str(record.run.path) for record in scored]
            values = [float(record.value(metric) or 0.0) for record in scored]
            average, std, _population_std, n, interval = summarize_seeds(values)
            rows.append((*cells, id_, average, std, n, interval, compute_mean_failed(scored), split, paths))
    more_names = tuple(map(shorten_setting, more_settings))
    columns = (*keys, *more_names, "metric", "mean", "std", "n", "95 % t-interval", "failed %", "scored on", "runs")
    note = join(filter(None, (NOTE, distinct.note)), "; ")
    once = ("metric", "scored on", *(more_names if wide else ()))
    title = _("runs by {keys}").format(keys=", ".join(keys))
    table = Table(title, columns, rows, note, keys=len(keys) + len(more_names), once=once)
    return table.without(find_hidden_columns(done, with_paths))


def compute_mean_failed(records: Sequence[Record]) -> float | None:
    """Return the mean percentage of failed examples, of the runs that report it."""
    shares = [share for record in records if (share := record.failed_percent) is not None]
    return mean(shares) if shares else None


def _find_more_keys(records: Sequence[Record], wide: bool) -> list[str]:
    """Return the other settings in which the groups differ."""
    found = [name for name in ("task", "model") if len({get_traits(record)[name] for record in records}) > 1]
    return [*found, *choose_settings(records, wide=wide)]


def _find_full_name(records: Sequence[Record], key: str) -> str:
    """Return the full name of a setting by its full or short name."""
    known = dict.fromkeys(name for record in records for name in ("seed", "data", *record.settings))
    if not known:
        return key
    if matches := [name for name in known if key in (name, name.split(".")[-1])]:
        return matches[0]
    raise DanseoError(_("--group {key}: no such setting; try model, task, seed or train.learning_rate").format(key=key))


def _format_cell(record: Record, model: str, name: str) -> object:
    if name == "model":
        return model
    return as_typed(record.seed) if name == "seed" else format_traits(record, [name])[0]


def _collect_scores(members: Sequence[Record], metric: str | None) -> list[tuple[str, str, list[Record]]]:
    """Return metric id, examples and the runs that have this metric on these examples."""
    scored: dict[tuple[str, str], list[Record]] = {}
    for member in members:
        score = member.score(metric)
        if score and score["value"] is not None:
            scored.setdefault((score["id"], describe_split(member) or ""), []).append(member)
    return [(id_, split, records) for (id_, split), records in scored.items()]


def summarize_seeds(values: Sequence[float]) -> tuple[Any, ...]:
    """Return mean, sample and population standard deviation, n, and t-interval."""
    spreads = (stdev(values), pstdev(values)) if len(values) > 1 else (None, None)
    return mean(values), *spreads, len(values), format_interval(compute_t_interval(values))


def compute_t_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % t-interval of the mean; none for fewer than two values."""
    if len(values) < 2:
        return None, None
    from scipy.stats import t

    margin = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean(values) - margin, mean(values) + margin
