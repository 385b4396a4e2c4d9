"""Normalize text for tokenizers: compose syllables (NFC), and write lone conjoining jamo as ordinary letters."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
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
_CACHED_LENGTH = 8  # characters: shorter clusters are cached
_LONG_RUN = 32  # symbols in a row that may be marks to sort
_SYMBOLS = re.compile(rf"[^\w\s]{{{_LONG_RUN},}}")  # no combining mark is a letter
_DOUBLE_MARKS = {0x0F73: "\u0f71\u0f72", 0x0F75: "\u0f71\u0f74", 0x0F81: "\u0f71\u0f80"}  # their own class is 0


class NormalizedText(NamedTuple):
    """A normalized text, and the positions of its characters in the original text."""

    text: str
    starts: Sequence[int] | None = None
    """Original start of each character, then the end of the last one; None if nothing changed."""

    def to_original(self, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return spans of this text as spans of the original text."""
        starts = self.starts
        return list(spans) if starts is None else [(starts[first], starts[last]) for first, last in spans]

    def insert_spaces(self, positions: Sequence[int]) -> "NormalizedText":
        """Return the text with a space before these positions; it has no place in the original text."""
        starts = range(len(self.text) + 1) if self.starts is None else self.starts
        cuts = [0, *positions, len(self.text)]
        text = " ".join(self.text[a:b] for a, b in pairwise(cuts))
        parts = [[*starts[a:b], starts[b]] for a, b in pairwise(cuts)]
        return NormalizedText(text, [start for part in parts for start in part])


def normalize_text(text: str) -> NormalizedText:
    """Compose a text, and write its lone conjoining jamo as ordinary letters."""
    composed = NormalizedText(text) if is_normalized("NFC", text) else _compose_aligned(text)
    return composed._replace(text=composed.text.translate(_JAMO)) if _LONE.search(composed.text) else composed


def compose(text: str) -> str:
    """Return the canonical composition (NFC) of a text in linear time.

    unicodedata sorts the marks of a character by insertion, so long runs of them are sorted before.
    """
    return normalize("NFC", _SYMBOLS.sub(_sort_marks, text) if len(text) >= _LONG_RUN else text)


def _sort_marks(match: re.Match[str]) -> str:
    """Return the symbols with each run of combining marks in canonical order."""
    runs = groupby(match[0].translate(_DOUBLE_MARKS), lambda symbol: combining(symbol) > 0)
    return "".join(symbol for is_marks, run in runs for symbol in (sorted(run, key=combining) if is_marks else run))


def _compose_aligned(text: str) -> NormalizedText:
    """Return the canonical composition (NFC) with its alignment to the text."""
    parts, starts, position = list[str](), list[int](), 0
    for word in _BLANKS.split(text):
        for cluster in [word] if is_normalized("NFC", word) else _split_clusters(word):
            part = compose(cluster)
            surplus = len(cluster) - len(part)  # belongs to the first character
            starts += [position, *(position + max(0, k + surplus) for k in range(1, len(part)))][: len(part)]
            parts.append(part)
            position += len(cluster)
    return NormalizedText("".join(parts), [*starts, position])


def _split_clusters(word: str) -> Iterator[str]:
    """Yield parts of a word that compose separately to the composition of the word."""
    start = 0
    for position in range(1, len(word)):
        character = word[position]
        if combining(character) or ord(character) in _DOUBLE_MARKS:
            continue  # before the slice, because a cluster may be as long as the text
        before = word[start:position]
        if not (_joins(before, character) if len(before) < _CACHED_LENGTH else _joins.__wrapped__(before, character)):
            yield before
            start = position
    yield word[start:]


@lru_cache(1 << 14)
def _joins(before: str, character: str) -> bool:
    """Return whether a letter composes with the cluster before it; a mark between them prevents that."""
    head = compose(before)
    return len(head) == 1 and normalize("NFC", head + character) != head + normalize("NFC", character)
