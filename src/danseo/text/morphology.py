"""Nouns, pronouns and POS tags of texts, found by Kiwi; particles of Korean words, and entities without them."""

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol
from unicodedata import normalize

from danseo.extras import is_installed, require
from danseo.text.normalization import normalize_text

NOUNS = ("NNG", "NNP")
PRONOUN = "NP"


class Noun(NamedTuple):
    """A noun (NNG, NNP) or pronoun (NP) and its place in the text."""

    form: str
    tag: str
    start: int
    end: int


class Analyser(Protocol):
    """A morphological analyser that finds nouns and pronouns."""

    @property
    def version(self) -> str: ...

    def find_nouns(self, texts: Iterable[str]) -> Iterator[list[Noun]]:
        """Yield the nouns and pronouns of every text, in order."""
        ...


class KiwiAnalyser:
    """Kiwi, loaded with the first text."""

    def __init__(self, workers: int | None = None) -> None:
        require("kiwipiepy")
        self.workers = workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else workers or 0
        self.kiwi: Any = None

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return f"kiwipiepy {version('kiwipiepy')}"

    def find_nouns(self, texts: Iterable[str]) -> Iterator[list[Noun]]:
        for tokens in self.tokenize(texts):
            yield [
                Noun(token.form, token.tag, token.start, token.start + token.len)
                for token in tokens
                if token.tag in NOUNS or token.tag == PRONOUN
            ]

    def tag_words(self, sentences: Iterable[Sequence[str]]) -> Iterator[tuple[str, ...]]:
        """Yield the POS tags of every word of a sentence as KLUE-DP has them: 재판부는 gives NNG+JX."""
        composed = [[normalize("NFC", word) for word in sentence] for sentence in sentences]
        for words, tokens in zip(composed, self.tokenize(map(" ".join, composed)), strict=True):
            found, start = [], 0
            for word in words:
                end = start + len(word)
                inside = [token for token in tokens if token.start < end and token.start + max(token.len, 1) > start]
                found.append("+".join(filter(None, map(_to_klue_tag, inside))) or UNKNOWN)
                start = end + 1
            yield tuple(found)

    def tokenize(self, texts: Iterable[str]) -> Iterator[Any]:
        """Yield Kiwi's tokens (form, tag, start, len) of every text, in order."""
        if self.kiwi is None:
            from kiwipiepy import Kiwi

            self.kiwi = Kiwi(num_workers=self.workers)
        tokens: Iterator[Any] = self.kiwi.tokenize(iter(texts))
        return tokens


@cache
def get_tagger() -> KiwiAnalyser:
    """Return the one analyser that tags single lines."""
    return KiwiAnalyser(workers=1)


UNKNOWN = "NA"
_NUMERALS = frozenset("한 두 세 네 서 석 너 넉 한두 두세 서너 여러 모든 몇 몇몇 첫 총 양 수 온갖".split())
_QUALITIES = frozenset("약 고 새 헌 옛 각 매 만 오랜 맨 순".split())
_KLUE_TAGS = {"SSO": "SS", "SSC": "SS", "SB": "SN", "XSM": "MAG", "UN": UNKNOWN, "Z_CODA": "", "Z_SIOT": ""}
_KLUE_TAGS |= {"W_URL": "SL", "W_EMAIL": "SL", "W_HASHTAG": "SL", "W_MENTION": "SL", "W_SERIAL": "SN", "W_EMOJI": "SW"}


def _to_klue_tag(token: Any) -> str:
    """Return the tag of KLUE for a token of Kiwi; "" for one that KLUE does not count."""
    tag = str(token.tag).partition("-")[0]  # VV-R and VV-I are regular and irregular verbs
    if tag == "MM":  # determiners: KLUE has numbers, qualities and the others apart
        return "MMN" if token.form in _NUMERALS else "MMA" if token.form in _QUALITIES else "MMD"
    return UNKNOWN if tag.startswith("USER") else _KLUE_TAGS.get(tag, tag)


# How a Latin letter or a digit ends when read aloud in Korean: its final consonant, "" for none.
_SPOKEN_ENDINGS: dict[str, str] = {
    **dict.fromkeys("2459", ""),
    **dict.fromkeys("036", "ㅇ"),
    **dict.fromkeys("178", "ㄹ"),
    **dict.fromkeys("LRlr", "ㄹ"),
    **dict.fromkeys("MNmn", "ㅇ"),
}
_FINALS: tuple[str, ...] = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")


def final_consonant(word: str) -> str:
    """Return the final consonant of the last syllable of a word: "서울" gives ㄹ, "부산" ㄴ, "대구" ""."""
    last = word.rstrip("'\"’”)》〉」』]")[-1:]
    if "가" <= last <= "힣":
        return _FINALS[(ord(last) - ord("가")) % 28]
    return _SPOKEN_ENDINGS.get(last, "")


def particle_class(word: str) -> str:
    """Return "", "ㄹ" or "closed": words of one class take the same form of every particle."""
    final = final_consonant(word)
    return final if final in ("", "ㄹ") else "closed"


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
