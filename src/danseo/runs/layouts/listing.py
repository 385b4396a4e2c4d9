"""One row per run, and one per group of runs that differ in their seed alone."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from danseo.display.table import Table, as_typed, shown_interval
from danseo.errors import DanseoError
from danseo.runs.index import Record, protocol
from danseo.runs.layouts.variants import (
    distinct,
    key_of,
    model_names,
    short_setting,
    shown_settings,
    shown_traits,
    traits,
)

_ALWAYS = ("train.learning_rate", "train.epochs")  # shown also where they do not differ
NOTE = "std is the sample standard deviation (n - 1) over seeds; runs that differ in anything else are not averaged"


def run_table(
    records: Sequence[Record], metric: str | None = None, *, with_paths: bool = False, wide: bool = False
) -> Table:
    """One row per run, with the settings that vary, or all of them; copies are said to be copies."""
    settings = shown_settings(records, _ALWAYS, wide=wide)
    found = distinct(records)
    copies = {id(copy) for copy, _ in found.copies}
    has_replies = have_replies(records)
    rows: list[tuple[object, ...]] = [
        (
            *([str(record.run.path)] if with_paths else []),
            record.task,
            name,
            as_typed(record.seed),
            *shown_traits(record, settings),
            *_shown_score(record, metric),
            *([record.failed_percent] if has_replies else []),
            protocol(record),
            record.surroundings.get("seconds"),
            "copy" if id(record) in copies else record.status + (f": {record.note}" if record.note else ""),
        )
        for record, name in zip(records, model_names(records), strict=True)
    ]
    told = tuple(map(short_setting, settings))
    failed = ("failed %",) if has_replies else ()
    scored = ("metric", "score", "95 % interval", *failed, "scored on", "seconds", "status")
    columns = ("task", "model", "seed", *told, *scored)
    paths = ("run",) if with_paths else ()
    return Table(
        "runs",
        (*paths, *columns),
        rows,
        found.note,
        keys=1 if with_paths else 3,
        once=(*told, "metric", "scored on", "status"),
    )


def _shown_score(record: Record, metric: str | None) -> tuple[object, object, object]:
    """Id, value and interval of a metric, empty where the run has none."""
    score = record.score(metric)
    if not score:
        return None, None, None
    return score["id"], score["value"], shown_interval(*score["interval"]) if score["interval"] else None


def have_replies(records: Sequence[Record]) -> bool:
    """Whether language models are among them, whose replies may fail."""
    return any(record.failed_percent is not None for record in records)


def group_table(
    records: Sequence[Record],
    keys: Sequence[str],
    metric: str | None = None,
    *,
    with_paths: bool = False,
    wide: bool = False,
) -> Table:
    """Mean, sample standard deviation and t-interval over the seeds of each variant, with the settings that differ."""
    chosen = distinct([record for record in records if record.status == "done"])
    done = chosen.records
    names = dict(zip(map(id, done), model_names(done), strict=True))
    wanted = [_full_name(done, key) for key in keys]
    further = [name for name in _further(done, wide) if name not in wanted]
    has_replies = have_replies(done)
    groups: dict[object, list[Record]] = {}
    for record in done:
        own = record.seeds if "seed" in wanted else ()
        groups.setdefault((key_of(record), own), []).append(record)
    rows: list[tuple[object, ...]] = []
    for members in groups.values():
        cells = [_cell(members[0], names[id(members[0])], name) for name in (*wanted, *further)]
        for id_, split, scored in _scored(members, metric):
            paths = [[str(record.run.path) for record, _ in scored]] if with_paths else []
            failed = [mean_failed([record for record, _ in scored])] if has_replies else []
            rows.append((*cells, id_, *_summary([value for _, value in scored]), *failed, split, *paths))
    told = tuple(map(short_setting, further))
    failed_column = ("failed %",) if has_replies else ()
    columns = (*keys, *told, "metric", "mean", "std", "n", "95 % t-interval", *failed_column, "scored on")
    return Table(
        f"runs by {', '.join(keys)}",
        (*columns, *(("runs",) if with_paths else ())),
        rows,
        "; ".join(filter(None, (NOTE, chosen.note))),
        keys=len(keys) + len(told),
        once=("metric", "scored on", *(told if wide else ())),
    )


def mean_failed(records: Sequence[Record]) -> float | None:
    """The mean share of failed replies, of those runs that have any."""
    shares = [share for record in records if (share := record.failed_percent) is not None]
    return mean(shares) if shares else None


def _further(records: Sequence[Record], wide: bool) -> list[str]:
    """What groups have to be told apart by, besides what was asked for."""
    found = [name for name in ("task", "model") if len({traits(record)[name] for record in records}) > 1]
    return [*found, *shown_settings(records, wide=wide)]


def _full_name(records: Sequence[Record], key: str) -> str:
    """The setting that a key stands for, by its full or its short name."""
    known = dict.fromkeys(name for record in records for name in ("seed", "data", *record.settings))
    if not known:
        return key
    if matches := [name for name in known if key in (name, name.split(".")[-1])]:
        return matches[0]
    raise DanseoError(f"--group {key}: no such setting; try model, task, seed or train.learning_rate")


def _cell(record: Record, model: str, name: str) -> object:
    """A trait of a group, as it is shown."""
    if name == "model":
        return model
    return as_typed(record.seed) if name == "seed" else shown_traits(record, [name])[0]


def _scored(members: Sequence[Record], metric: str | None) -> list[tuple[str, str, list[tuple[Record, float]]]]:
    """The values of a metric, apart by what they were scored on."""
    found: dict[tuple[str, str], list[tuple[Record, float]]] = {}
    for member in members:
        score = member.score(metric)
        if score and score["value"] is not None:
            found.setdefault((score["id"], protocol(member) or ""), []).append((member, score["value"]))
    return [(id_, split, scored) for (id_, split), scored in found.items()]


def _summary(values: Sequence[float]) -> tuple[Any, ...]:
    low, high = t_interval(values)
    spread = stdev(values) if len(values) > 1 else None
    return mean(values), spread, len(values), shown_interval(low, high)


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float | None, float | None]:
    """The mean's interval by Student's t; none for fewer than two values."""
    if len(values) < 2:
        return None, None
    from scipy.stats import t

    half = float(t.ppf((1 + level) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half
