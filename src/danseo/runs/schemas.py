"""Schemas of scores.json and environment.json, which users or a disk may have changed."""

from collections.abc import Mapping
from typing import Any

Schema = Any
"""A type, a dict of schemas by key, a list with the schema of all items, or a function that returns whether it fits."""


_LARGEST = 1e300  # the largest number that may be scaled


def is_number(value: Any) -> bool:
    """Return whether this is a finite number, or None for an undefined score."""
    if value is None or isinstance(value, bool):
        return value is None
    return isinstance(value, int | float) and abs(value) < _LARGEST  # false for NaN


def has_numbers(record: Mapping[Any, Any], *keys: Any) -> bool:
    """Return whether all of these entries are finite numbers."""
    return all(record.get(key) is not None and is_number(record[key]) for key in keys)


def _is_interval(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and all(map(is_number, value)))


def _all_values(schema: Schema) -> Any:
    """Return a check that all values of an object match the schema."""
    return lambda value: isinstance(value, dict) and all(matches_schema(item, schema) for item in value.values())


def _optional(schema: Schema) -> Any:
    return lambda value: value is None or matches_schema(value, schema)


_SCORE = {"id": str, "value": is_number, "?interval": _is_interval, "?n": is_number}
_MEMBER = {"run": str, "?model": str, "?seed": is_number, "?variant": str, "?weight": is_number}
SCORES = {
    "headline": str,
    "selected_on": str,
    "reported_on": str,
    "scores": _all_values([_SCORE]),
    "?baselines": _all_values(_all_values(_all_values(is_number))),
    "?weights": _all_values(_all_values(is_number)),
    "?select_score": is_number,
    "?select_loss": is_number,
    "?best_step": is_number,
    "?steps": is_number,
    "?failed_percent": is_number,
    "?invalid_items": is_number,
    "?extra_tables": [{"title": str, "columns": [str], "rows": [list], "?note": str}],
    "?ensemble": {"?members": [_MEMBER]},
}
ENVIRONMENT = {
    "?data": _all_values(str),
    "?model": _optional({"?name": str, "?sha256": _optional(str)}),
    "?seconds": is_number,
    "?wall_seconds": is_number,
    "?parameters": is_number,
    "?device": _optional(str),
}


_LOGGED = ("step", "epoch", "loss", "rate", "score", "best")


def clean_log_line(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of log.jsonl without values that should be finite numbers and are not."""
    return {
        key: item
        for key, item in line.items()
        if is_number(item) or not (key in _LOGGED or isinstance(item, float | int))
    }


def matches_schema(value: Any, schema: Schema) -> bool:
    """Return whether a value matches; keys with a question mark are optional, and other keys are allowed."""
    if isinstance(schema, dict):
        return isinstance(value, dict) and all(_has_key(value, key, part) for key, part in schema.items())
    if isinstance(schema, list):
        return isinstance(value, list) and all(matches_schema(item, schema[0]) for item in value)
    return isinstance(value, schema) if isinstance(schema, type) else bool(schema(value))


def _has_key(value: dict[str, Any], key: str, schema: Schema) -> bool:
    name = key.removeprefix("?")
    return matches_schema(value[name], schema) if name in value else key.startswith("?")
