"""Relations from encoders: two entities of a sentence between markers, and one label."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from danseo.errors import DanseoError
from danseo.models.encoder.classify import Classify
from danseo.models.encoder.pieces import Cut, Pieces
from danseo.records import RelationExample
from danseo.training.features import Features

Span = tuple[int, int]
Edge = tuple[int, int | None]
"""A place between pieces: before this piece, or inside it at this character."""

MARKERS = ("<subj>", "</subj>", "<obj>", "</obj>")
CLOSING = (1, 3)
_WORD_MARKS = ("▁", "Ġ")


class Relate(Classify):
    """A sentence with <subj>…</subj> and <obj>…</obj> in, one label out, read from the first piece."""

    special_tokens: ClassVar[tuple[str, ...]] = MARKERS

    def encode(self, examples: Sequence[Any], *, with_gold: bool) -> list[Features]:
        before, after = self._frame()
        budget = self.longest - len(before) - len(after)
        if budget < len(MARKERS):
            raise DanseoError(f"max_length {self.longest} has no room for the four entity markers; raise it")
        marked = self._mark_officially(examples) if self._official else self._mark(examples)
        labels = {label: number for number, label in enumerate(self.task.labels)}
        features = []
        for number, (ids, places) in enumerate(marked):
            mode, ids, places = self._fit(ids, places, budget)
            ids = [*before, *ids, *after]
            fields = {"truncated": mode != "whole", "window": mode, "markers": _shifted(places, len(before))}
            if with_gold:
                fields["label"] = labels[examples[number].gold]
            features.append(Features(number, ids, [0] * len(ids), fields))
        return features

    @property
    def _official(self) -> bool:
        return self.config.architecture == "official"

    def _frame(self) -> tuple[list[int], list[int]]:
        """The special pieces before and after a text."""
        joined = self.pieces.join(self.pieces.cut(["가"])[0])
        text = [place for place, special in enumerate(joined.special_tokens_mask) if not special]
        return joined.ids[: text[0]], joined.ids[text[-1] + 1 :]

    def _marker_ids(self) -> list[int]:
        ids = [self.pieces.id(marker) for marker in MARKERS]
        if self.pieces.unknown in ids:
            raise DanseoError("the tokenizer lacks the entity markers; add Relate.special_tokens to it")
        return ids

    def _mark(self, examples: Sequence[RelationExample]) -> list[tuple[list[int], list[int]]]:
        """Piece ids with the markers in, and where the four are: cut as if unmarked, and at entity borders."""
        prefix = continuation_prefix(self.pieces)
        sentences = [
            Sentence(cut, example, prefix)
            for cut, example in zip(self.pieces.cut([e.text for e in examples]), examples, strict=True)
        ]
        sides = cut_sides({side for sentence in sentences for side in sentence.sides()}, self.pieces)
        markers = self._marker_ids()
        return [sentence.marked(markers, sides) for sentence in sentences]

    def _mark_officially(self, examples: Sequence[RelationExample]) -> list[tuple[list[int], list[int]]]:
        """As KLUE's own code: cut between markers, and the piece after each closing one made a continuation."""
        cuts = iter(self.pieces.cut([part for example in examples for part in between_markers(example)]))
        markers = self._marker_ids()
        return [
            marked_officially([next(cuts) for _ in range(len(MARKERS) + 1)], example, markers, self.pieces)
            for example in examples
        ]

    def _fit(self, ids: list[int], places: list[int], budget: int) -> tuple[str, list[int], list[int]]:
        """The input within the budget: all of it, what surrounds the entities, or (official) its beginning."""
        if len(ids) <= budget:
            return "whole", ids, places
        if self._official:
            return "right", ids[:budget], [place if place < budget else -1 for place in places]
        return fit_window(ids, places, budget, self._gap())

    def _gap(self) -> int:
        """The piece that stands for what was left out."""
        found = self.pieces.id("…")
        return int(self.pieces.tokenizer.sep_token_id) if found == self.pieces.unknown else found


def _shifted(places: Sequence[int], by: int) -> tuple[int, ...]:
    """Places behind the leading special pieces; -1 stays, for a marker that was cut off."""
    return tuple(place + by if place >= 0 else -1 for place in places)


def marker_order(example: RelationExample) -> list[tuple[int, int]]:
    """(character, marker) in text order: inner markers inside, and at one place closing before opening."""
    events = []
    for role, entity in enumerate((example.subject, example.object)):
        events.append(((entity.start, 1, -entity.end, role), 2 * role))
        events.append(((entity.end, 0, -entity.start, -role), 2 * role + 1))
    return [(key[0], marker) for key, marker in sorted(events)]


@dataclass(frozen=True, slots=True)
class Side:
    """A part of a piece that reaches over an entity border; only a first part may begin a word."""

    text: str
    begins_word: bool


class Sentence:
    """The pieces of an unmarked sentence and its entity borders."""

    def __init__(self, cut: Cut, example: RelationExample, prefix: str) -> None:
        self.ids, self.tokens, self.offsets, self.prefix = cut.ids, cut.tokens, cut.offsets, prefix
        self.text, self.order = example.text, marker_order(example)
        ends = [end for _, end in self.offsets]
        self.edges = [self._edge(bisect_right(ends, place), place) for place, _ in self.order]

    def _edge(self, piece: int, place: int) -> Edge:
        """The first piece that ends behind the place; inside it when its text begins before."""
        if piece < len(self.offsets) and self.text[self.offsets[piece][0] : place].strip():
            return piece, place
        return piece, None

    def sides(self) -> list[Side]:
        """The parts that have to be cut anew."""
        if all(place is None for _, place in self.edges):
            return []
        return [part for stretch in self._stretches() for part in self._parts(*stretch) if isinstance(part, Side)]

    def marked(self, markers: Sequence[int], sides: dict[Side, list[int]]) -> tuple[list[int], list[int]]:
        """All ids with the markers between them, and the places of the four markers."""
        ids: list[int] = []
        places = [0] * len(markers)
        for number, stretch in enumerate(self._stretches()):
            for part in self._parts(*stretch):
                ids += sides[part] if isinstance(part, Side) else self.ids[part]
            if number < len(markers):
                marker = self.order[number][1]
                places[marker] = len(ids)
                ids.append(markers[marker])
        return ids, places

    def _stretches(self) -> Iterable[tuple[Edge, Edge]]:
        edges = [(0, None), *self.edges, (len(self.ids), None)]
        return pairwise(edges)

    def _parts(self, first: Edge, last: Edge) -> list[Side | slice]:
        """What lies between two edges: whole pieces, and parts of those that an edge cuts."""
        (start, inside), (stop, until) = first, last
        if first == last:
            return []
        if inside is not None and until is not None and start == stop:
            return [Side(self.text[inside:until], False)]
        parts: list[Side | slice] = [slice(start, stop)]
        if inside is not None:
            parts = [Side(self.text[inside : self.offsets[start][1]], False), slice(start + 1, stop)]
        if until is not None:
            begins = begins_word(self.tokens[stop], self.prefix)
            parts.append(Side(self.text[self.offsets[stop][0] : until].strip(), begins))
        return parts


def continuation_prefix(pieces: Pieces) -> str:
    """What WordPiece writes before a piece inside a word; "" where the start of a word is marked instead."""
    return getattr(pieces.backend.model, "continuing_subword_prefix", None) or ""


def begins_word(token: str, prefix: str) -> bool:
    """Whether a piece stands at the start of a word."""
    return not token.startswith(prefix) if prefix else token.startswith(_WORD_MARKS)


def cut_sides(sides: set[Side], pieces: Pieces) -> dict[Side, list[int]]:
    """The ids of parts of pieces; a part that does not begin a word keeps the form of a continuation."""
    ordered = sorted(sides, key=lambda side: (side.text, side.begins_word))
    encodings = pieces.cut([f" {side.text}" if side.begins_word else side.text for side in ordered])
    return {
        side: encoding.ids if side.begins_word else continued(encoding.ids, encoding.tokens, pieces)
        for side, encoding in zip(ordered, encodings, strict=True)
    }


def continued(ids: list[int], tokens: list[str], pieces: Pieces) -> list[int]:
    """The ids with the first one in the form it has inside a word: ##가 for 가, 가 for ▁가."""
    if not ids or ids[0] == pieces.unknown:
        return ids
    form = tokens[0][1:] if tokens[0].startswith(_WORD_MARKS) else tokens[0]
    if not form:  # a lone word mark
        return ids[1:]
    found = pieces.id(continuation_prefix(pieces) + form)
    return ids if found == pieces.unknown else [found, *ids[1:]]


def between_markers(example: RelationExample) -> list[str]:
    """The five stretches of the sentence that the markers part."""
    cuts = [0, *(place for place, _ in marker_order(example)), len(example.text)]
    return [example.text[start:end] for start, end in pairwise(cuts)]


def marked_officially(
    stretches: Sequence[Cut], example: RelationExample, markers: Sequence[int], pieces: Pieces
) -> tuple[list[int], list[int]]:
    """All ids, Hangul right after a closing marker as a continuation, and the markers' places."""
    ids, places = stretches[0].ids, [0] * len(markers)
    for (_, marker), stretch in zip(marker_order(example), stretches[1:], strict=True):
        places[marker] = len(ids)
        first, rest = stretch.ids[:1], stretch.ids[1:]
        if first and marker in CLOSING and not stretch.text[0].isspace():
            first = _official_form(first[0], stretch.tokens[0], pieces)
        ids = [*ids, markers[marker], *first, *rest]
    return ids, places


def _official_form(id: int, token: str, pieces: Pieces) -> list[int]:
    """A piece as KLUE writes it after a closing marker; what the vocabulary lacks becomes unknown."""
    if token.startswith("▁"):
        return [pieces.id(token[1:])] if token != "▁" else []
    if "가" <= token[0] <= "힣" and (prefix := continuation_prefix(pieces)):
        return [pieces.id(prefix + token)]
    return [id]


def window(length: int, both: Span, budget: int) -> Span | None:
    """The stretch of pieces around both entities that fills the budget; None when they are too far apart."""
    start, end = both
    if length <= budget:
        return 0, length
    slack = budget - (end - start)
    if slack < 0:
        return None
    left = min(start, slack // 2)
    right = min(length - end, slack - left)
    left = min(start, slack - right)
    return start - left, end + right


def two_windows(length: int, first: Span, second: Span, budget: int) -> tuple[Span, Span] | None:
    """A stretch around each entity, a piece kept for the gap; None when the two are longer than that together."""
    content, needs = budget - 1, (first[1] - first[0], second[1] - second[0])
    if sum(needs) > content:
        return None
    size = min(max(-(-content // 2), needs[0]), content - needs[1])  # half each, unless one needs more
    return _centred(length, first, size), _centred(length, second, content - size)


def _centred(length: int, span: Span, size: int) -> Span:
    """A stretch with the span in its middle, moved inside the text."""
    start = span[0] - (size - (span[1] - span[0])) // 2
    start = max(0, min(start, length - size))
    return start, start + size


def fit_window(ids: list[int], places: Sequence[int], budget: int, gap: int) -> tuple[str, list[int], list[int]]:
    """The mode, the ids that fit and the markers' new places; no marker is ever lost."""
    first, second = sorted([(places[0], places[1] + 1), (places[2], places[3] + 1)])
    both = first[0], max(first[1], second[1])
    if found := window(len(ids), both, budget):
        return "window", ids[slice(*found)], [place - found[0] for place in places]
    apart = first[1] <= second[0]
    halves = two_windows(len(ids), first, second, budget) if apart else None
    if halves is None:
        return "squeezed", *_squeezed(ids, places, budget, gap, apart)
    (start, end), (start2, end2) = halves
    kept = [*ids[start:end], gap, *ids[start2:end2]]
    return "two windows", kept, [p - start if p < end else p - start2 + end - start + 1 for p in places]


def _squeezed(ids: list[int], places: Sequence[int], budget: int, gap: int, apart: bool) -> tuple[list[int], list[int]]:
    """Only the entities, the longest stretches between their markers cut to head and tail."""
    order = sorted(range(len(places)), key=lambda marker: places[marker])
    ordered = [places[marker] for marker in order]
    inner = [ids[a + 1 : b] for a, b in pairwise(ordered)]
    if apart:
        inner[1] = inner[1] and [gap]
    limit = _level([len(stretch) for stretch in inner], budget - len(places))
    kept, new = [ids[ordered[0]]], [0] * len(places)
    for marker, stretch in zip(order[1:], inner, strict=True):
        kept += _head_and_tail(stretch, limit, gap)
        new[marker] = len(kept)
        kept.append(ids[places[marker]])
    return kept, new


def _level(lengths: Sequence[int], budget: int) -> int:
    """The greatest length to which all can be cut so that they fit together."""
    return max(level for level in range(budget + 1) if sum(min(length, level) for length in lengths) <= budget)


def _head_and_tail(stretch: list[int], limit: int, gap: int) -> list[int]:
    if len(stretch) <= limit:
        return stretch
    head = limit // 2
    tail = max(0, limit - 1 - head)
    return [*stretch[:head], gap, *stretch[len(stretch) - tail :]][:limit]
