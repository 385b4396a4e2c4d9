"""Truncation of long sentences around two entities, which are always kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Span = tuple[int, int]


@dataclass(slots=True)
class MarkedSentence:
    """The tokens of a marked sentence, and the positions of its four markers."""

    ids: list[int]
    positions: list[int]
    widths: Sequence[int]
    """Number of tokens of each marker; 0 if an entity has none on that side."""
    mode: str = "whole"

    def ends(self, marker: int) -> int:
        """Return where the text after a marker begins."""
        return self.positions[marker] + self.widths[marker]

    def entities(self) -> tuple[Span, Span]:
        """Return the spans of subject and object with their markers."""
        return (self.positions[0], self.ends(1)), (self.positions[2], self.ends(3))


def truncate_sentence(marked: MarkedSentence, budget: int, gap: int) -> MarkedSentence:
    """Truncate the sentence to the budget; markers are never removed."""
    ids, positions = marked.ids, marked.positions
    if len(ids) <= budget:
        return marked
    first, second = sorted(marked.entities())
    both = first[0], max(first[1], second[1])
    if found := window(len(ids), both, budget):
        moved = [position - found[0] for position in positions]
        return MarkedSentence(ids[slice(*found)], moved, marked.widths, "window")
    apart = first[1] <= second[0]
    halves = two_windows(len(ids), first, second, budget) if apart else None
    if halves is None:
        return _keep_only_entities(marked, budget, gap, apart)
    (start, end), (start2, end2) = halves
    kept = [*ids[start:end], gap, *ids[start2:end2]]
    moved = [
        position - start if position <= first[1] else position - start2 + end - start + 1 for position in positions
    ]
    return MarkedSentence(kept, moved, marked.widths, "two windows")


def window(length: int, both: Span, budget: int) -> Span | None:
    """Return the window around both entities that fills the budget; None if they are too far apart."""
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
    """Return a window around each entity with a gap token between; None if the entities are too long."""
    content, needs = budget - 1, (first[1] - first[0], second[1] - second[0])
    if sum(needs) > content:
        return None
    size = min(max(-(-content // 2), needs[0]), content - needs[1])  # half each, unless one needs more
    return _center_window(length, first, size), _center_window(length, second, content - size)


def _center_window(length: int, span: Span, size: int) -> Span:
    """Return a window with the span in its middle, moved inside the text."""
    start = span[0] - (size - (span[1] - span[0])) // 2
    start = max(0, min(start, length - size))
    return start, start + size


def _keep_only_entities(marked: MarkedSentence, budget: int, gap: int, apart: bool) -> MarkedSentence:
    """Keep only the entities, and truncate the longest texts between their markers."""
    order = sorted(range(len(marked.positions)), key=lambda marker: (marked.positions[marker], marked.ends(marker)))
    inner = [marked.ids[marked.ends(a) : marked.positions[b]] for a, b in pairwise(order)]
    if apart:
        inner[1] = inner[1] and [gap]
    limit = find_common_length([len(stretch) for stretch in inner], budget - sum(marked.widths))
    kept, positions = list[int](), [0] * len(marked.positions)
    for marker, stretch in zip(order, [[], *inner], strict=True):
        kept += keep_ends(stretch, limit, gap)
        positions[marker] = len(kept)
        kept += marked.ids[marked.positions[marker] : marked.ends(marker)]
    return MarkedSentence(kept, positions, marked.widths, "squeezed")


def find_common_length(lengths: Sequence[int], budget: int) -> int:
    """Return the greatest common length to which all can be truncated to fit the budget."""
    return max(level for level in range(budget + 1) if sum(min(length, level) for length in lengths) <= budget)


def keep_ends(stretch: list[int], limit: int, gap: int) -> list[int]:
    """Return the beginning and the end of a long span, with a gap token between."""
    if len(stretch) <= limit:
        return stretch
    head = limit // 2
    tail = max(0, limit - 1 - head)
    return [*stretch[:head], gap, *stretch[len(stretch) - tail :]][:limit]
