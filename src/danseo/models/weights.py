"""Whether a load found every weight that the model needs, and whether they are numbers: nothing is random unseen."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError

_SHOWN = 3


def check_new(name: str, model: Any, report: Mapping[str, Any], *, head: str = "") -> list[str]:
    """Refuse a checkpoint that lacks more than its head or pooling layer; the weights that are new come out.

    These may be absent because they are about to be learned, each part as a whole: masked language models have no
    pooling layer, and no checkpoint has a head for the task. A head that is named is one part.
    """
    missing = set(report["missing_keys"])
    found = {_part(model, key, head) for key in _own_names(model) - missing}
    refuse_missing(name, [key for key in missing if _part(model, key, head) in ("", *found)], report)
    check_finite(name, model)
    return sorted(missing)


def check_whole(name: str, model: Any, report: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that lacks any weight of its own model."""
    refuse_missing(name, report["missing_keys"], report)
    check_finite(name, model)


def refuse_missing(name: str, missing: Collection[str], report: Mapping[str, Any]) -> None:
    """The weights that are not there, and those that are there instead."""
    if missing:
        instead = f", while {_few(found)} have no place in it" if (found := report["unexpected_keys"]) else ""
        raise DanseoError(f"{name} lacks {_few(missing)}{instead}; its weights are damaged or of another model")


def is_head(model: Any, key: str) -> bool:
    """Whether a weight lies above the body."""
    return model.base_model is not model and not key.startswith(f"{model.base_model_prefix}.")


def _part(model: Any, key: str, head: str) -> str:
    """The part that may be new of which a weight is: the pooling layer, one of the head's; "" for the body."""
    steps = key.split(".")
    return "pooler" if "pooler" in steps else head or steps[0] if is_head(model, key) else ""


def _own_names(model: Any) -> set[str]:
    """The names of all weights; a head that shares the table of pieces has no weight of its own in it."""
    shared = model.get_input_embeddings().weight
    return {key for key, weight in model.named_parameters() if weight is not shared or not is_head(model, key)}


def check_finite(name: str, model: Any) -> None:
    """Refuse weights that are no numbers: all that is computed with them would be none either."""
    refuse_odd(name, model.named_parameters())


def refuse_odd(name: str | Path, weights: Iterable[tuple[str, Any]]) -> None:
    """As check_finite, for weights by name."""
    odd = [key for key, weight in weights if weight.is_floating_point() and not weight.isfinite().all()]
    if odd:
        raise DanseoError(f"{name}: {_few(odd)} with NaN or infinite numbers; get or train it again")


def _few(keys: Collection[str]) -> str:
    """How many weights, and the first of them."""
    count = f"{len(keys):,} weight{'s' if len(keys) != 1 else ''}"
    return f"{count} ({', '.join(sorted(keys)[:_SHOWN])}{', …' if len(keys) > _SHOWN else ''})"
