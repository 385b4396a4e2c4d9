"""Whether encoders are shown what they should be: looked at before every training, over all examples."""

import re
from collections.abc import Sequence
from typing import Any, Protocol
from unicodedata import normalize

from danseo.errors import DanseoError
from danseo.models.encoder.marking import TYPED, Variant
from danseo.models.encoder.pieces import Pieces
from danseo.training.features import Features

_HALF = "\ufffd"  # what is left of a syllable some of whose bytes lie in another piece
_SIGNS = re.compile(r"[\W_]+")
_WHOLE_ENTITIES = ("whole", "window", "two windows")


class Marking(Protocol):
    """What is looked at of the kind that marks entities."""

    variant: Variant
    pieces: Pieces

    @property
    def gap(self) -> int:
        """The piece that stands for what was left out."""

    def markers(self, example: Any) -> Any:
        """The pieces of the markers of an example, in the order of their positions."""


def check_shown(kind: Marking, examples: Sequence[Any], features: Sequence[Features]) -> None:
    """Refuse inputs without their markers or entities, and different examples that come out as the same input."""
    for example, record in zip(examples, features, strict=True):
        _check_markers(kind, example, record)
    if kind.variant.name != "entity_mask":
        _check_entities(kind, examples, features)
    _check_different(kind, examples, features)


def _check_markers(kind: Marking, example: Any, record: Features) -> None:
    """The markers of the sentence stand at the positions that the head is told of."""
    for position, marker in zip(record.fields["markers"], kind.markers(example), strict=True):
        if position >= 0 and record.ids[position : position + len(marker)] != marker:
            raise DanseoError(f"the input of {example.guid} lacks an entity marker where the head reads it")
        if position < 0 and record.fields["window"] != "right":  # which is KLUE's own way to cut
            raise DanseoError(f"the input of {example.guid} lost an entity marker; raise max_length")


def _check_entities(kind: Marking, examples: Sequence[Any], features: Sequence[Features]) -> None:
    """The words of both entities are there, as far as the tokenizer knows them."""
    looked = [(e, r) for e, r in zip(examples, features, strict=True) if r.fields["window"] in _WHOLE_ENTITIES]
    found = _decoded(kind, [r.ids[start:end] for _, r in looked for start, end in r.fields["spans"]])
    words = [entity.word for example, _ in looked for entity in (example.subject, example.object)]
    due = _decoded(kind, [cut.ids for cut in kind.pieces.cut(words)])
    for position, (shown, word) in enumerate(zip(found, due, strict=True)):
        if None not in (shown, word) and shown != word:
            raise DanseoError(
                f"the input of {looked[position // 2][0].guid} does not show {words[position]} between its markers"
            )


def _decoded(kind: Marking, rows: Sequence[list[int]]) -> list[str | None]:
    """The letters of some pieces; None where one of them is unknown, holds part of a syllable, or names were cut."""
    texts = kind.pieces.backend.decode_batch([list(row) for row in rows], skip_special_tokens=False)
    unclear = {kind.pieces.unknown, kind.gap}
    return [
        None if unclear & set(row) or _HALF in text else _letters(text) for row, text in zip(rows, texts, strict=True)
    ]


def _letters(text: str) -> str:
    return _SIGNS.sub("", normalize("NFKC", text).casefold()).replace("##", "")


def _check_different(kind: Marking, examples: Sequence[Any], features: Sequence[Features]) -> None:
    """No two examples that differ in what the variant shows are the same pieces, unless the tokenizer knows too few."""
    seen: dict[tuple[int, ...], Any] = {}
    for example, record in zip(examples, features, strict=True):
        if record.fields["window"] != "whole" or kind.pieces.unknown in record.ids:
            continue
        other = seen.setdefault(tuple(record.ids), example)
        if other is not example and _visible(kind, other) != _visible(kind, example):
            raise DanseoError(
                f"{other.guid} and {example.guid} differ, but come out as the same input; use other head.markers"
            )


def _visible(kind: Marking, example: Any) -> tuple[object, ...]:
    """What of an example a model should see."""
    types = (example.subject.type, example.object.type) if kind.variant.name in TYPED else ()
    if kind.variant.name == "concat":
        return *types, _letters(example.text), _letters(example.subject.word), _letters(example.object.word)
    return *types, _letters(kind.variant.text(example))
