"""Texts in the letters that tokenizers know: syllables composed, and jamo that compose to nothing as plain letters."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from unicodedata import combining, is_normalized, normalize

# Conjoining jamo, which NFKC makes of ㅋㅋ and ㅠㅠ, back to the letters that vocabularies know, one to one.
_LEADS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_TAILS = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
_JAMO = {
    **{0x1100 + k: letter for k, letter in enumerate(_LEADS)},
    **{0x1161 + k: letter for k, letter in enumerate(_VOWELS)},
    **{0x11A8 + k: letter for k, letter in enumerate(_TAILS)},
}
_LONE = re.compile(f"[{''.join(map(chr, _JAMO))}]")
_BLANKS = re.compile(r"(\s+)")


class Letters(NamedTuple):
    """A text as a tokenizer reads it, and where its characters stand in the text as it was given."""

    text: str
    starts: Sequence[int] | None = None
    """Where each character begins, and at the end where the last one ends; None where they are the same."""

    def given(self, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Stretches of this text as stretches of the text as it was given."""
        starts = self.starts
        return list(spans) if starts is None else [(starts[first], starts[last]) for first, last in spans]

    def parted(self, positions: Sequence[int]) -> "Letters":
        """The same with a space before the characters at these positions; it covers nothing of the given text."""
        starts = range(len(self.text) + 1) if self.starts is None else self.starts
        cuts = [0, *positions, len(self.text)]
        text = " ".join(self.text[a:b] for a, b in pairwise(cuts))
        parts = [[*starts[a:b], starts[b]] for a, b in pairwise(cuts)]
        return Letters(text, [start for part in parts for start in part])


def letters_of(text: str, *, plain: bool = True) -> Letters:
    """The text composed and, with plain, its lone conjoining jamo as ordinary letters."""
    found = Letters(text) if is_normalized("NFC", text) else _composed(text)
    return found._replace(text=found.text.translate(_JAMO)) if plain and _LONE.search(found.text) else found


def _composed(text: str) -> Letters:
    """The canonical composition (NFC), stretch by stretch."""
    parts, starts, position = list[str](), list[int](), 0
    for word in _BLANKS.split(text):
        for cluster in [word] if is_normalized("NFC", word) else _clusters(word):
            part = normalize("NFC", cluster)
            surplus = len(cluster) - len(part)  # falls to the first character
            starts += [position + max(0, k + surplus if k else 0) for k in range(len(part))]
            parts.append(part)
            position += len(cluster)
    return Letters("".join(parts), [*starts, position])


def _clusters(word: str) -> Iterator[str]:
    """The word in stretches that compose, each for itself, to what the whole does."""
    start = 0
    for position in range(1, len(word)):
        if not _joins(word[start:position], word[position]):
            yield word[start:position]
            start = position
    yield word[start:]


def _joins(before: str, character: str) -> bool:
    """Whether a character becomes part of what stands before it."""
    if combining(character):
        return True
    return normalize("NFC", before + character) != normalize("NFC", before) + normalize("NFC", character)
