"""What of a long sentence an encoder sees: always both entities, with as much around them as fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Span = tuple[int, int]


@dataclass(slots=True)
class Marked:
    """The pieces of a marked sentence, and where its four markers stand: subject's and object's, before and after."""

    ids: list[int]
    positions: list[int]
    widths: Sequence[int]
    """Pieces of each marker; 0 where an entity has none at that side."""
    mode: str = "whole"

    def ends(self, marker: int) -> int:
        """Where the text after a marker begins."""
        return self.positions[marker] + self.widths[marker]

    def entities(self) -> tuple[Span, Span]:
        """Subject and object with their markers."""
        return (self.positions[0], self.ends(1)), (self.positions[2], self.ends(3))


def fit_window(marked: Marked, budget: int, gap: int) -> Marked:
    """The sentence within the budget; no marker is ever lost. The caller sees to it that the markers fit."""
    ids, positions = marked.ids, marked.positions
    if len(ids) <= budget:
        return marked
    first, second = sorted(marked.entities())
    both = first[0], max(first[1], second[1])
    if found := window(len(ids), both, budget):
        moved = [position - found[0] for position in positions]
        return Marked(ids[slice(*found)], moved, marked.widths, "window")
    apart = first[1] <= second[0]
    halves = two_windows(len(ids), first, second, budget) if apart else None
    if halves is None:
        return _squeezed(marked, budget, gap, apart)
    (start, end), (start2, end2) = halves
    kept = [*ids[start:end], gap, *ids[start2:end2]]
    moved = [
        position - start if position <= first[1] else position - start2 + end - start + 1 for position in positions
    ]
    return Marked(kept, moved, marked.widths, "two windows")


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


def _squeezed(marked: Marked, budget: int, gap: int, apart: bool) -> Marked:
    """Only the entities, the longest stretches between their markers cut to head and tail."""
    order = sorted(range(len(marked.positions)), key=lambda marker: (marked.positions[marker], marked.ends(marker)))
    inner = [marked.ids[marked.ends(a) : marked.positions[b]] for a, b in pairwise(order)]
    if apart:
        inner[1] = inner[1] and [gap]
    limit = level([len(stretch) for stretch in inner], budget - sum(marked.widths))
    kept, positions = list[int](), [0] * len(marked.positions)
    for marker, stretch in zip(order, [[], *inner], strict=True):
        kept += head_and_tail(stretch, limit, gap)
        positions[marker] = len(kept)
        kept += marked.ids[marked.positions[marker] : marked.ends(marker)]
    return Marked(kept, positions, marked.widths, "squeezed")


def level(lengths: Sequence[int], budget: int) -> int:
    """The greatest length to which all can be cut so that they fit together."""
    return max(level for level in range(budget + 1) if sum(min(length, level) for length in lengths) <= budget)


def head_and_tail(stretch: list[int], limit: int, gap: int) -> list[int]:
    """A stretch that is too long as its beginning and end, a piece between them for what was left out."""
    if len(stretch) <= limit:
        return stretch
    head = limit // 2
    tail = max(0, limit - 1 - head)
    return [*stretch[:head], gap, *stretch[len(stretch) - tail :]][:limit]
