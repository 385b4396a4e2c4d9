"""Korean particles after nouns: which texts are particles, and where an entity with one too many should end."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from danseo.extras import is_installed
from danseo.text.morphology import KiwiAnalyser, final_consonant
from danseo.text.normalization import normalize_text

# Particles in the order in which they can follow each other: 에서 + 만 + 은.
_GROUPS: tuple[str, ...] = (
    "에서 에게 에게서 에 한테 한테서 께 께서 으로 로 으로서 로서 으로써 로써 와 과 이랑 랑 하고 보다 처럼 만큼 대로",
    "부터 까지 만 마다 마저 조차 밖에 뿐",
    "은 는 이 가 을 를 의 도 이나 나 이라도 라도 아 야",
)
_CHAIN = re.compile("".join(f"({'|'.join(sorted(group.split(), key=len, reverse=True))})?" for group in _GROUPS))
_AFTER_CONSONANT = frozenset("은 이 을 과 아 이나 이라도 이랑".split())
_AFTER_VOWEL = frozenset("는 가 를 와 야 나 라도 랑".split())
_CLEAR = frozenset(
    "는 을 를 에서 에게 에게서 한테 한테서 께서 으로 으로서 으로써 까지 부터 처럼 조차 마저 밖에".split()
)
"""Particles that hardly ever end a name, as 은 (김정은), 이, 도 (제주도), 로 (종로), 에 (벨기에) and 의 (회의) do."""
_LONGEST = 8  # syllables of particles in a row
_SYLLABLES = re.compile("[가-힣]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


@lru_cache(1 << 14)
def split_particles(noun: str, text: str) -> tuple[str, ...]:
    """Return the particles that a text after a noun consists of; () if it is something else or does not fit."""
    match = _CHAIN.fullmatch(text)
    parts = tuple(filter(None, match.groups())) if match else ()
    for particle in parts:
        if not _can_follow(noun, particle):
            return ()
        noun += particle
    return parts


def _can_follow(noun: str, particle: str) -> bool:
    """Return whether the form of a particle fits the last syllable; both forms fit digits, letters and symbols."""
    if not "가" <= noun[-1:] <= "힣":
        return bool(noun.strip())
    final = final_consonant(noun)
    if particle.startswith("으로"):
        return final not in ("", "ㄹ")
    if particle.startswith("로"):
        return final in ("", "ㄹ")
    return particle not in (_AFTER_VOWEL if final else _AFTER_CONSONANT)


class ParticleFixer:
    """Moves the end of an entity that includes a particle, or that leaves out the last syllable of a noun."""

    def __init__(self) -> None:
        self.kiwi = KiwiAnalyser(1) if is_installed("kiwipiepy") else None
        self.name = "kiwi" if self.kiwi else "rules"

    def find_ends(self, texts: Sequence[str], entities: Sequence[Sequence[tuple[int, int]]]) -> Iterator[list[int]]:
        """Yield the corrected ends of the entities (start, end) of each text, in their order."""
        composed = [normalize_text(_SURROGATES.sub("?", text)) for text in texts]
        analysed = self.kiwi.tokenize(each.text for each in composed) if self.kiwi else [None] * len(texts)
        for (text, starts), spans, morphemes in zip(composed, entities, analysed, strict=True):
            starts = range(len(text) + 1) if starts is None else starts
            places = [(bisect_left(starts, start), bisect_left(starts, end)) for start, end in spans]
            ends = [_find_end(text, *place, morphemes) for place in places]
            yield [
                old if end == place else starts[end]
                for (_, old), (_, place), end in zip(spans, places, ends, strict=True)
            ]


def _find_end(text: str, start: int, end: int, morphemes: Sequence[Any] | None) -> int:
    """Return where an entity ends: at its end, before its last particles, or after a noun that it cuts."""
    match = _SYLLABLES.match(text, end)
    word_end = match.end() if match else end
    first = start + (2 if _SYLLABLES.match(text[start]) else 1)  # 김만 is a name, not 김 and a particle
    for cut in range(max(first, end - _LONGEST), end):
        last, particles = text[cut - 1], split_particles(text[cut - 1], text[cut:end])
        if particles and split_particles(last, text[cut:word_end]) and _is_particle(cut, end, particles, morphemes):
            return cut
    if split_particles(text[end - 1], text[end:word_end]):
        return end
    nouns = (each.start + each.len for each in morphemes or () if start <= each.start < end and each.tag[0] == "N")
    return next((cut for cut in nouns if end < cut and _ends_noun(text, end, cut, word_end)), end)


def _ends_noun(text: str, end: int, cut: int, word_end: int) -> bool:
    """Return whether what looks like particles before the cut is not, because only particles follow it, or nothing."""
    is_last = cut == word_end or bool(split_particles(text[cut - 1], text[cut:word_end]))
    return is_last and bool(_CHAIN.fullmatch(text, end, cut))


def _is_particle(start: int, end: int, particles: Sequence[str], morphemes: Sequence[Any] | None) -> bool:
    """Return whether a part of a text is particles and not the end of a name, by Kiwi or by its form."""
    if morphemes is None:
        return _CLEAR.issuperset(particles)
    inside = [each for each in morphemes if each.start < end and each.start + each.len > start]
    return (
        bool(inside) and inside[0].start == start and all(each.tag[0] == "J" and each.tag != "JKV" for each in inside)
    )
