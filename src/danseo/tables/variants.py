"""Variants: runs that differ only in their seed; a copy of a run does not count."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.config.base import default_values, incidental_names, list_settings
from danseo.config.run import RunConfig
from danseo.display.table import as_typed
from danseo.runs.index import Record
from danseo.runs.naming import make_names_unique
from danseo.runs.provenance import is_of_sample, list_run_labels

LABELLED = ("max_train_samples", "n_folds", "fold", "prompt.max_eval_samples")
"""Settings that list_run_labels names."""
_NAMED = 3  # copies that are named; more are counted
_OF_TRAINING = {name for name in list_settings(RunConfig) if name.startswith("train.")} - {"train.select_on"}
_OF_ALL = ("task", "model", "recipe", "train.select_on")  # settings that count without training too
_OF_BASELINES = ("max_train_samples", "n_folds", "fold", "train.augment")


def get_traits(record: Record) -> dict[str, Any]:
    """Return all that a result depends on except the seed: settings, hashes of model and data, members."""
    if record.is_made_of_runs:
        options = record.scores.get("ensemble", {})
        counted = {name: record.settings[name] for name in _OF_ALL}
        counted |= {name: options.get(name) for name in ("method", "weights", "select")}
        counted["members"] = _hash_document(
            sorted(str(part.get("variant") or part.get("model")) for part in record.parts)
        )
    elif record.is_baseline:
        counted = {name: record.settings[name] for name in (*_OF_ALL, *_OF_BASELINES)}
    else:
        left_out = ("seed", *incidental_names(RunConfig))
        counted = {name: value for name, value in record.settings.items() if name not in left_out}
    data = record.surroundings.get("data")
    return {**counted, "model": record.identity, **({"data": _hash_document(data)} if data else {})}


def get_variant_key(record: Record) -> tuple[tuple[str, str], ...]:
    """Return a key that is equal for runs that differ only in their seed."""
    return tuple(sorted((name, str(value)) for name, value in get_traits(record).items()))


def hash_variant(record: Record) -> str:
    """Return a hash of the key in eight hex digits; new settings do not change it."""
    settings = record.settings
    return _hash_document(
        [(name, value) for name, value in get_variant_key(record) if not _is_default(name, settings.get(name))]
    )


def _is_default(name: str, value: Any) -> bool:
    defaults = default_values(RunConfig)
    return name in defaults and bool(value == defaults[name])


def _hash_document(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]


# Copies


@dataclass(frozen=True)
class DistinctRuns:
    """Runs without copies, and each copy with its original."""

    records: list[Record]
    copies: list[tuple[Record, Record]]

    @property
    def note(self) -> str:
        """A note on the copies."""
        shown = [f"{copy.run.path.name} is {first.run.path.name} again" for copy, first in self.copies[:_NAMED]]
        more = [f"{len(self.copies) - _NAMED} more"] if len(self.copies) > _NAMED else []
        return f"the same settings and seed count once: {', '.join([*shown, *more])}" if shown else ""


def drop_copies(records: Sequence[Record]) -> DistinctRuns:
    """Return every finished run once; a copied directory is not a second seed."""
    firsts: dict[object, Record] = {}
    for record in sorted(records, key=lambda record: not record.is_under_own_name):
        if record.status == "done":
            firsts.setdefault(_get_run_key(record), record)
    pairs = [(record, firsts.get(_get_run_key(record), record)) for record in records]
    kept = [record for record, first in pairs if first is record or record.status != "done"]
    return DistinctRuns(kept, [pair for pair in pairs if pair[1] is not pair[0] and pair[0].status == "done"])


def _get_run_key(record: Record) -> object:
    return get_variant_key(record), record.seeds, tuple(sorted(str(part.get("sha256")) for part in record.parts))


# Names of variants


def make_model_names(records: Sequence[Record]) -> list[str]:
    """Return a name per record, different for different models."""
    names = make_names_unique({record.identity: (record.model, record.model_location) for record in records})
    return [names[record.identity] for record in records]


def find_differences(records: Sequence[Record]) -> list[str]:
    """Return the settings, data or members, but not models, in which runs of the same task differ."""
    found = [(record, get_traits(record)) for record in records if record.settings]
    names = dict.fromkeys(name for _, counted in found for name in counted if name not in ("task", "model"))
    differing = [name for name in names if _differs(found, name)]
    others = [name for name in differing if name not in ("recipe", "members")]  # their settings say more
    return others if _is_enough(found, others) else differing


def _differs(found: Sequence[tuple[Record, dict[str, Any]]], name: str) -> bool:
    values: dict[tuple[str, bool], set[str]] = {}
    for record, counted in found:
        if name in counted:
            values.setdefault((record.task, record.is_made_of_runs), set()).add(str(counted[name]))
    return any(len(different) > 1 for different in values.values())


def _is_enough(found: Sequence[tuple[Record, dict[str, Any]]], names: Sequence[str]) -> bool:
    """Return whether these settings distinguish all variants."""
    keys = {
        (get_variant_key(record), record.task, record.identity, *(str(counted.get(n)) for n in names))
        for record, counted in found
    }
    return len({key[1:] for key in keys}) == len({key[0] for key in keys})


def choose_settings(records: Sequence[Record], always: Sequence[str] = (), *, wide: bool = False) -> list[str]:
    """Return the settings to show: those that differ and some others, or all."""
    every = dict.fromkeys(name for record in records for name in get_traits(record) if name not in ("task", "model"))
    chosen = set(every if wide else (*always, *find_differences(records)))
    return [name for name in every if name in chosen]


def shorten_setting(name: str) -> str:
    """Return a short name: learning rate for train.learning_rate."""
    return name.split(".")[-1].replace("_", " ")


def format_traits(record: Record, names: Sequence[str]) -> list[object]:
    """Return the values of some settings as cells; None for a setting without effect on the run."""
    counted = get_traits(record) if record.settings else {}
    if "data" in names and is_of_sample(record):
        counted["data"] = "sample"
    is_untrained = record.settings.get("run_type") == "prompt"
    return [None if is_untrained and name in _OF_TRAINING else _format_trait(counted.get(name)) for name in names]


def _format_trait(value: Any) -> object:
    return ", ".join(f"{part:g}" for part in value) if isinstance(value, list) else as_typed(value)


def label_variants(records: Sequence[Record], *, brief: bool = False) -> list[str]:
    """Return a name per record: its model, and the settings in which records of the same task and model differ.

    Labels (sample, fold, limit) follow unless all records of the task have them. With brief=True, values that most of
    those records share are left out.
    """
    names = make_model_names(records)
    labels = [list(map(str, list_run_labels(record))) for record in records]
    shared: dict[str, set[str]] = {}
    for record, listed in zip(records, labels, strict=True):
        shared[record.task] = shared.get(record.task, set(listed)) & set(listed)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record, name in zip(records, names, strict=True):
        groups.setdefault((record.task, name), []).append(record)
    differing = {key: _find_unlabelled_differences(group) for key, group in groups.items()}
    usual = {key: _find_usual_values(group, differing[key]) if brief else {} for key, group in groups.items()}
    found = []
    for record, name, listed in zip(records, names, labels, strict=True):
        key, own = (record.task, name), [label for label in listed if label not in shared[record.task]]
        text = _make_label(record, name, differing[key], usual[key])
        found.append(f"{text} ({', '.join(own)})" if own else text)
    return found


def _find_unlabelled_differences(records: Sequence[Record]) -> list[str]:
    """Return the settings in which runs differ, apart from those that labels name."""
    data = {
        str(get_traits(record).get("data"))
        for record in records
        if not is_of_sample(record) and not record.settings.get("prompt.max_eval_samples")
    }
    named = LABELLED if len(data) > 1 else (*LABELLED, "data")
    return [name for name in find_differences(records) if name not in named]


def _find_usual_values(records: Sequence[Record], names: Sequence[str]) -> dict[str, object]:
    """Return the value of each setting that most records have, else the default if some have it."""
    columns = zip(names, zip(*(format_traits(record, names) for record in records), strict=True), strict=False)
    found: dict[str, object] = {}
    for name, values in columns:
        most = [value for value in values if 2 * values.count(value) > len(values)]
        usual = most or [value for value in values if _is_default(name, value)]
        found |= {name: usual[0]} if usual else {}
    return found


def _make_label(record: Record, name: str, differing: Sequence[str], usual: Mapping[str, object]) -> str:
    pairs = zip(differing, format_traits(record, differing), strict=True)
    values = [(key, value) for key, value in pairs if key not in usual or usual[key] != value]
    shown = [(key, value) for key, value in values if (key, value) != ("data", "sample")]
    return " ".join([name, *(f"{key.split('.')[-1]}={_shorten_value(value)}" for key, value in shown)])


def _shorten_value(value: object) -> object:
    return f"{value:g}" if isinstance(value, float) else value
