"""Check before training that marked inputs contain what their examples contain."""

import re
from collections.abc import Sequence
from typing import Any, Protocol
from unicodedata import normalize

from danseo.errors import DanseoError
from danseo.models.encoder.heads.entity_markers import TYPED, MarkerStyle
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.training.features import Features

_HALF = "\ufffd"  # what is decoded from part of a syllable
_SIGNS = re.compile(r"[\W_]+")
_WHOLE_ENTITIES = ("whole", "window", "two windows")


class MarkingHead(Protocol):
    """The part of the relation head that is checked."""

    style: MarkerStyle
    tokenizer: EncoderTokenizer

    @property
    def gap(self) -> int:
        """The token for omitted text."""

    def markers(self, example: Any) -> Any:
        """Return the tokens of the markers of an example, in the order of their positions."""


def check_marked_inputs(task_head: MarkingHead, examples: Sequence[Any], features: Sequence[Features]) -> None:
    """Refuse inputs without their markers or entities, and different examples with the same input."""
    for example, record in zip(examples, features, strict=True):
        _check_markers(task_head, example, record)
    if task_head.style.name != "entity_mask":
        _check_entities(task_head, examples, features)
    _check_different(task_head, examples, features)


def _check_markers(task_head: MarkingHead, example: Any, record: Features) -> None:
    """Check that the markers are at the positions that the head reads."""
    for position, marker in zip(record.fields["markers"], task_head.markers(example), strict=True):
        if position >= 0 and record.ids[position : position + len(marker)] != marker:
            raise DanseoError(f"the input of {example.guid} lacks an entity marker where the head reads it")
        if position < 0 and record.fields["window"] != "right":  # KLUE's own truncation
            raise DanseoError(f"the input of {example.guid} lost an entity marker; raise max_length")


def _check_entities(task_head: MarkingHead, examples: Sequence[Any], features: Sequence[Features]) -> None:
    """Check that the words of both entities are in the input, as far as the tokenizer knows them."""
    checked = [(e, r) for e, r in zip(examples, features, strict=True) if r.fields["window"] in _WHOLE_ENTITIES]
    found = _decode_tokens(task_head, [r.ids[start:end] for _, r in checked for start, end in r.fields["spans"]])
    words = [entity.word for example, _ in checked for entity in (example.subject, example.object)]
    due = _decode_tokens(task_head, [cut.ids for cut in task_head.tokenizer.tokenize(words)])
    for position, (shown, word) in enumerate(zip(found, due, strict=True)):
        if None not in (shown, word) and shown != word:
            raise DanseoError(
                f"the input of {checked[position // 2][0].guid} does not show {words[position]} between its markers"
            )


def _decode_tokens(task_head: MarkingHead, rows: Sequence[list[int]]) -> list[str | None]:
    """Return the normalized text of tokens; None if a token is unknown, incomplete or a gap."""
    texts = task_head.tokenizer.backend.decode_batch([list(row) for row in rows], skip_special_tokens=False)
    unclear = {task_head.tokenizer.unk_id, task_head.gap}
    return [
        None if unclear & set(row) or _HALF in text else _letters(text) for row, text in zip(rows, texts, strict=True)
    ]


def _letters(text: str) -> str:
    return _SIGNS.sub("", normalize("NFKC", text).casefold()).replace("##", "")


def _check_different(task_head: MarkingHead, examples: Sequence[Any], features: Sequence[Features]) -> None:
    """Check that examples with different visible content have different inputs."""
    seen: dict[tuple[int, ...], Any] = {}
    for example, record in zip(examples, features, strict=True):
        if record.fields["window"] != "whole" or task_head.tokenizer.unk_id in record.ids:
            continue
        other = seen.setdefault(tuple(record.ids), example)
        if other is not example and _visible(task_head, other) != _visible(task_head, example):
            raise DanseoError(
                f"{other.guid} and {example.guid} differ, but come out as the same input; use other encoder.markers"
            )


def _visible(task_head: MarkingHead, example: Any) -> tuple[object, ...]:
    """Return the visible content of an example."""
    types = (example.subject.type, example.object.type) if task_head.style.name in TYPED else ()
    if task_head.style.name == "concat":
        return *types, _letters(example.text), _letters(example.subject.word), _letters(example.object.word)
    return *types, _letters(task_head.style.text(example))
