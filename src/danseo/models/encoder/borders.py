"""Markers between the pieces of an unmarked sentence: pieces keep their form, those over a border are cut anew."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from danseo.models.encoder.marking import marker_order
from danseo.models.encoder.pieces import Cut, Pieces
from danseo.models.encoder.windows import Marked
from danseo.records import RelationExample

Edge = tuple[int, int | None]
"""A place between pieces: before this piece, or inside it at this character."""

CLOSING = (1, 3)
_WORD_MARKS = ("▁", "Ġ")


@dataclass(frozen=True, slots=True)
class Side:
    """A part of a piece that reaches over an entity border; only a first part may begin a word."""

    text: str
    begins_word: bool


class Sentence:
    """The pieces of an unmarked sentence and its entity borders."""

    def __init__(self, cut: Cut, example: RelationExample, prefix: str, *, whole: bool = False) -> None:
        self.ids, self.tokens, self.offsets, self.prefix = cut.ids, cut.tokens, cut.offsets, prefix
        self.text, self.order = example.text, marker_order(example)
        ends = [end for _, end in self.offsets]
        self.edges = [self._edge(bisect_right(ends, position), position) for position, _ in self.order]
        if whole:  # nothing stands at the borders, so no piece is cut there
            self.edges = self._around()

    def _around(self) -> list[Edge]:
        """The borders moved outwards to where pieces begin and end."""
        edges, least = list[Edge](), 0
        for (piece, inside), (_, marker) in zip(self.edges, self.order, strict=True):
            least = max(least, piece + (inside is not None and marker in CLOSING))
            edges.append((least, None))
        return edges

    def _edge(self, piece: int, position: int) -> Edge:
        """The first piece that ends behind the place; inside it when its text begins before."""
        if piece < len(self.offsets) and self.text[self.offsets[piece][0] : position].strip():
            return piece, position
        return piece, None

    def sides(self) -> list[Side]:
        """The parts that have to be cut anew."""
        if all(position is None for _, position in self.edges):
            return []
        return [part for stretch in self._stretches() for part in self._parts(*stretch) if isinstance(part, Side)]

    def marked(self, markers: Sequence[Sequence[int]], sides: dict[Side, list[int]], *, hides: bool = False) -> Marked:
        """All ids with the markers between them, without those of the entities where the markers hide them."""
        ids, positions, inside = list[int](), [0] * len(markers), 0
        for number, stretch in enumerate(self._stretches()):
            for part in self._parts(*stretch) if not (inside and hides) else ():
                ids += sides[part] if isinstance(part, Side) else self.ids[part]
            if number < len(markers):
                marker = self.order[number][1]
                positions[marker] = len(ids)
                ids += markers[marker]
                inside += -1 if marker in CLOSING else 1
        return Marked(ids, positions, [len(marker) for marker in markers])

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


def marked_officially(
    stretches: Sequence[Cut], example: RelationExample, markers: Sequence[Sequence[int]], pieces: Pieces
) -> Marked:
    """As KLUE's own code: cut between markers, and Hangul right after a closing one made a continuation."""
    ids, positions = stretches[0].ids, [0] * len(markers)
    for (_, marker), stretch in zip(marker_order(example), stretches[1:], strict=True):
        positions[marker] = len(ids)
        first, rest = stretch.ids[:1], stretch.ids[1:]
        if first and marker in CLOSING and not stretch.text[0].isspace():
            first = _official_form(first[0], stretch.tokens[0], pieces)
        ids = [*ids, *markers[marker], *first, *rest]
    return Marked(ids, positions, [len(marker) for marker in markers])


def _official_form(id: int, token: str, pieces: Pieces) -> list[int]:
    """A piece as KLUE writes it after a closing marker; what the vocabulary lacks becomes unknown."""
    if token.startswith("▁"):
        return [pieces.id(token[1:])] if token != "▁" else []
    if "가" <= token[0] <= "힣" and (prefix := continuation_prefix(pieces)):
        return [pieces.id(prefix + token)]
    return [id]
