"""Whether scores.json and environment.json are what danseo writes: others may have edited them, or a disk."""

import math
from typing import Any

Shape = Any
"""A type or several, a dict of shapes by key, a list with the shape of all items, or a function that judges."""


def number(value: Any) -> bool:
    """A finite number, or none where a score is undefined."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value))


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _interval(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and all(map(number, value)))


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(number, value.values()))


def _each(shape: Shape) -> Any:
    """An object all of whose values have a shape."""
    return lambda value: isinstance(value, dict) and all(has_shape(item, shape) for item in value.values())


def _maybe(shape: Shape) -> Any:
    return lambda value: value is None or has_shape(value, shape)


_SCORE = {"id": str, "value": number, "?interval": _interval, "?n": number}
_MEMBER = {"run": str, "?model": str, "?seed": number, "?variant": str, "?weight": number}
SCORES = {
    "headline": str,
    "selected_on": str,
    "reported_on": str,
    "scores": _each([_SCORE]),
    "?floors": _each(_each(_numbers)),
    "?weights": _each(_numbers),
    "?select_score": number,
    "?select_loss": number,
    "?best_step": number,
    "?steps": number,
    "?ensemble": {"?members": [_MEMBER]},
}
ENVIRONMENT = {
    "?data": _texts,
    "?model": _maybe({"?name": str, "?sha256": _maybe(str)}),
    "?seconds": number,
    "?wall_seconds": number,
    "?parameters": number,
    "?device": _maybe(str),
}


def has_shape(value: Any, shape: Shape) -> bool:
    """Whether a value is as described; keys with a question mark may be absent, and others may be there."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(_has_key(value, key, part) for key, part in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(has_shape(item, shape[0]) for item in value)
    return isinstance(value, shape) if isinstance(shape, type) else bool(shape(value))


def _has_key(value: dict[str, Any], key: str, shape: Shape) -> bool:
    name = key.removeprefix("?")
    return has_shape(value[name], shape) if name in value else key.startswith("?")
