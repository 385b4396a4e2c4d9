"""Nouns, pronouns and POS tags of texts, found by Kiwi; particles of Korean words, and entities without them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol
from unicodedata import normalize

from danseo.extras import require

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


"""Particles that hardly ever end a name, as 은 (김정은), 이, 도 (제주도), 로 (종로), 에 (벨기에) and 의 (회의) do."""
