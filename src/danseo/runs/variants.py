"""Runs that differ only in their seed belong together: what tells the groups apart, in few words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.runs.index import Record

_ALIKE = ("seed", "task", "train.threads", "recipe")  # what makes no variant: recipes show in their settings


def key_of(record: Record) -> tuple[tuple[str, str], ...]:
    """Everything but the seed; a model folder is the same by whatever path."""
    model = Path(str(record.settings.get("model")))
    settings = {**record.settings, "model": model.resolve() if model.is_dir() else model}
    return tuple(sorted((name, str(value)) for name, value in settings.items() if name not in _ALIKE[:3]))


def label_variants(records: Sequence[Record]) -> list[str]:
    """A name per record: its model, and the settings in which records of the same model differ."""
    alike: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        alike.setdefault((record.task, record.model), []).append(record)
    varied = {key: _varied(group) for key, group in alike.items()}
    return [_label(record, varied[record.task, record.model]) for record in records]


def _varied(records: Sequence[Record]) -> list[str]:
    """The settings in which records differ."""
    keys = dict.fromkeys(key for record in records for key in record.settings if key not in (*_ALIKE, "model"))
    return [key for key in keys if len({str(record.settings.get(key)) for record in records}) > 1]


def _label(record: Record, varied: Sequence[str]) -> str:
    shown = (f"{key.split('.')[-1]}={_shown(record.settings.get(key))}" for key in varied)
    return " ".join([record.model, *shown])


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
