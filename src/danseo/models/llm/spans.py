"""Texts found again in a sentence: the n-th occurrence, in the characters that the sentence really has."""

from collections.abc import Iterator
from unicodedata import is_normalized, normalize

Span = tuple[int, int, str]


def composed(text: str) -> str:
    """The text with its letters composed (NFC), as both sides are compared."""
    return normalize("NFC", text)


def occurrences(text: str, part: str) -> Iterator[int]:
    """Where a part begins, left to right; occurrences may overlap."""
    position = text.find(part)
    while position >= 0:
        yield position
        position = text.find(part, position + 1)


def occurrence_of(text: str, start: int, part: str) -> int:
    """Which occurrence of a part begins at a place, counted from 0."""
    return sum(position < start for position in occurrences(text, part))


class Composed:
    """From characters of the composed sentence back to those of the sentence as it is written."""

    def __init__(self, text: str) -> None:
        self.text = composed(text)
        is_same = is_normalized("NFC", text)
        self._ends = None if is_same else [len(composed(text[:count])) for count in range(len(text) + 1)]

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The same stretch in the sentence as it is written."""
        if self._ends is None:
            return start, end
        first = max(position for position, length in enumerate(self._ends) if length <= start)
        last = max(position for position, length in enumerate(self._ends) if length <= end)
        return first, last
