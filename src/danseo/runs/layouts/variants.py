"""Runs that differ in their seed alone belong together, others do not; a run that is there twice counts once."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.config import RunConfig
from danseo.display.table import as_typed
from danseo.runs.index import Record
from danseo.runs.naming import told_apart
from danseo.settings.declaring import declared, incidental, is_unused, setting_paths

_NAMED = 3  # copies; more are counted
_OF_TRAINING = {name for name in setting_paths(RunConfig) if name.startswith("train.")} - {
    "train.select_on",
    "train.halves",
}
_OF_ALL = ("task", "model", "recipe", "train.select_on")  # what counts also where nothing is trained


def traits(record: Record) -> dict[str, Any]:
    """All that a result depends on except the seed: settings, what the model and the data hold, the members."""
    if record.is_made_of_runs:
        options = record.scores.get("ensemble", {})
        counted = {name: record.settings[name] for name in _OF_ALL}
        counted |= {name: options.get(name) for name in ("method", "weights", "select")}
        counted["members"] = _digest(sorted(str(part.get("variant") or part.get("model")) for part in record.parts))
    elif record.is_floor:
        counted = {name: record.settings[name] for name in (*_OF_ALL, "limit", "folds", "fold")}
    else:
        left_out = ("seed", *incidental(RunConfig))
        counted = {name: value for name, value in record.settings.items() if name not in left_out}
    data = record.surroundings.get("data")
    return {**counted, "model": record.identity, **({"data": _digest(data)} if data else {})}


def key_of(record: Record) -> tuple[tuple[str, str], ...]:
    """The same for runs that differ in their seed alone."""
    return tuple(sorted((name, str(value)) for name, value in traits(record).items()))


def variant_of(record: Record) -> str:
    """The same in eight hex digits, to be kept by those who are made of the run; settings to come do not change it."""
    settings = record.settings
    return _digest([(name, value) for name, value in key_of(record) if not _is_new(name, settings.get(name))])


def _is_new(name: str, value: Any) -> bool:
    """Whether a setting came later and is as if it had not."""
    return name in setting_paths(RunConfig) and is_unused(RunConfig, name, value)


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]


# The same run twice


@dataclass(frozen=True)
class Distinct:
    """Runs without copies, and the copies with what they are copies of."""

    records: list[Record]
    copies: list[tuple[Record, Record]]

    @property
    def note(self) -> str:
        """What was left out, in words."""
        shown = [f"{copy.run.path.name} is {first.run.path.name} again" for copy, first in self.copies[:_NAMED]]
        more = [f"{len(self.copies) - _NAMED} more"] if len(self.copies) > _NAMED else []
        return f"the same settings and seed count once: {', '.join([*shown, *more])}" if shown else ""


def distinct(records: Sequence[Record]) -> Distinct:
    """Every finished run once; a copied directory is not a second seed."""
    firsts: dict[object, Record] = {}
    for record in sorted(records, key=lambda record: not record.is_under_own_name):
        if record.status == "done":
            firsts.setdefault(_run_key(record), record)
    pairs = [(record, firsts.get(_run_key(record), record)) for record in records]
    kept = [record for record, first in pairs if first is record or record.status != "done"]
    return Distinct(kept, [pair for pair in pairs if pair[1] is not pair[0] and pair[0].status == "done"])


def _run_key(record: Record) -> object:
    return key_of(record), record.seeds, tuple(sorted(str(part.get("sha256")) for part in record.parts))


# What tells runs apart, in few words


def model_names(records: Sequence[Record]) -> list[str]:
    """A name per record, different for different models."""
    names = told_apart({record.identity: (record.model, record.model_location) for record in records})
    return [names[record.identity] for record in records]


def varied(records: Sequence[Record]) -> list[str]:
    """The settings, and data or members, in which runs of the same task differ; their models aside."""
    found = [(record, traits(record)) for record in records if record.settings]
    names = dict.fromkeys(name for _, counted in found for name in counted if name not in ("task", "model"))
    differing = [name for name in names if _differs(found, name)]
    others = [name for name in differing if name not in ("recipe", "members")]  # what they stand for says more
    return others if _is_enough(found, others) else differing


def _differs(found: Sequence[tuple[Record, dict[str, Any]]], name: str) -> bool:
    values: dict[tuple[str, bool], set[str]] = {}
    for record, counted in found:
        if name in counted:
            values.setdefault((record.task, record.is_made_of_runs), set()).add(str(counted[name]))
    return any(len(different) > 1 for different in values.values())


def _is_enough(found: Sequence[tuple[Record, dict[str, Any]]], names: Sequence[str]) -> bool:
    """Whether these settings tell all variants apart."""
    keys = {
        (key_of(record), record.task, record.identity, *(str(counted.get(n)) for n in names))
        for record, counted in found
    }
    return len({key[1:] for key in keys}) == len({key[0] for key in keys})


def shown_settings(records: Sequence[Record], always: Sequence[str] = (), *, wide: bool = False) -> list[str]:
    """The settings that are worth a column: those that vary and some others, or all there are."""
    every = dict.fromkeys(name for record in records for name in traits(record) if name not in ("task", "model"))
    chosen = set(every if wide else (*always, *varied(records)))
    return [name for name in every if name in chosen]


def short_setting(name: str) -> str:
    """train.learning_rate as learning rate."""
    return name.split(".")[-1].replace("_", " ")


def shown_traits(record: Record, names: Sequence[str]) -> list[object]:
    """The values of some traits as cells; None where one does not count for the run."""
    counted = traits(record) if record.settings else {}
    is_untrained = record.settings.get("kind") == "prompt"
    return [None if is_untrained and name in _OF_TRAINING else _shown(counted.get(name)) for name in names]


def _shown(value: Any) -> object:
    return ", ".join(f"{part:g}" for part in value) if isinstance(value, list) else as_typed(value)


def label_variants(records: Sequence[Record], *, brief: bool = False) -> list[str]:
    """A name per record: its model, and the settings in which records of the same task and model differ.

    A brief one leaves out what most of those records share, so that only changes are named.
    """
    names = model_names(records)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record, name in zip(records, names, strict=True):
        groups.setdefault((record.task, name), []).append(record)
    differing = {key: varied(group) for key, group in groups.items()}
    usual = {key: _usual(group, differing[key]) if brief else {} for key, group in groups.items()}
    keys = [(record.task, name) for record, name in zip(records, names, strict=True)]
    return [_label(record, key[1], differing[key], usual[key]) for record, key in zip(records, keys, strict=True)]


def _usual(records: Sequence[Record], names: Sequence[str]) -> dict[str, object]:
    """The value of each setting that more than half of the records have; else the default, where some have it."""
    columns = zip(names, zip(*(shown_traits(record, names) for record in records), strict=True), strict=False)
    found: dict[str, object] = {}
    for name, values in columns:
        most = [value for value in values if 2 * values.count(value) > len(values)]
        usual = most or [value for value in values if _is_default(name, value)]
        found |= {name: usual[0]} if usual else {}
    return found


def _is_default(name: str, value: object) -> bool:
    declaration = declared(RunConfig).get(name)
    return declaration is not None and bool(declaration.default == value)


def _label(record: Record, name: str, differing: Sequence[str], usual: Mapping[str, object]) -> str:
    pairs = zip(differing, shown_traits(record, differing), strict=True)
    values = [(key, value) for key, value in pairs if key not in usual or usual[key] != value or _is_fold(record, key)]
    return " ".join([name, *(f"{key.split('.')[-1]}={_brief(key, value)}" for key, value in values)])


def _is_fold(record: Record, key: str) -> bool:
    """Whether it says which fold was left out: the first one is no more usual than the others."""
    return key == "fold" and bool(record.settings.get("folds"))


def _brief(key: str, value: object) -> object:
    """A value in a name: no limit of examples is all of them, which 0 would not say."""
    if key == "limit" and value == 0:
        return "all"
    return f"{value:g}" if isinstance(value, float) else value
