"""Whether the weights of runs can be averaged: one architecture, one tokenizer, one head."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.files import parse_json, read_text
from danseo.runs.answers import Member

_BESIDE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")  # of config.json; they change no weight


def model_folder(member: Member) -> Path:
    """Where a run keeps its model."""
    return member.path / "model"


def check_same_shape(members: Sequence[Member]) -> None:
    """Refuse runs whose weights cannot be averaged, naming the first difference."""
    for member in members:
        if not (model_folder(member) / "config.json").is_file():
            raise DanseoError(f"{member.path} has no encoder to average; a soup is made of fine-tuned runs")
    first, *others = members
    for other in others:
        for what, found in (("config.json", _config), ("tokenizer.json", _tokenizer), ("head", _head)):
            if difference := first_difference(found(first), found(other)):
                key, one, two = difference
                raise DanseoError(
                    f"{first.name} and {other.name} differ in {what}: {key} is {one} in one and {two} in the other; "
                    "a soup needs one architecture and tokenizer (an ensemble does not)"
                )


def _config(member: Member) -> dict[str, Any]:
    found = _json(model_folder(member) / "config.json")
    return {key: value for key, value in found.items() if key not in _BESIDE}


def _tokenizer(member: Member) -> dict[str, Any]:
    """What decides the pieces of a text."""
    found = _json(model_folder(member) / "tokenizer.json")
    parts = {key: found.get(key) for key in ("normalizer", "pre_tokenizer", "added_tokens", "post_processor")}
    vocabulary = (found.get("model") or {}).get("vocab", ())
    return {"the number of pieces": len(vocabulary), "vocab": vocabulary, **parts}


def _head(member: Member) -> dict[str, Any]:
    assert member.record is not None
    return {key: value for key, value in member.record.settings.items() if key.startswith("head.")}


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = parse_json(read_text(path), path) if path.is_file() else {}
    return found


def first_difference(one: dict[str, Any], two: dict[str, Any]) -> tuple[str, str, str] | None:
    """The first key with different values, and these in short."""
    for key in dict.fromkeys((*one, *two)):
        if one.get(key) != two.get(key):
            short = [json.dumps(side.get(key), ensure_ascii=False)[:40] for side in (one, two)]
            return key, short[0], short[1] if short[0] != short[1] else "another"
    return None
