"""What the samples of entities and relations share: frames that remember their slots, and invented names."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from danseo.sample.korean import particle

Word = TypeVar("Word")

# {city} is a word, {city:은/는} a word and its particle, {|city:은/는} the particle alone: "서울(수도)은".
_SLOT = re.compile(r"\{(\|?)(\w+)(?::([^}]+))?\}")


def listed(line: str) -> tuple[str, ...]:
    """The words of a line: "서울 부산" gives ("서울", "부산")."""
    return tuple(line.split())


SURNAMES = tuple("강고곽권김노류문민박배백서성손송신안양오유윤이임장전정조주차최허홍황")
# Names that suit sons and daughters alike, so that a frame may call anybody 아들 or 아내.
GIVEN_NAMES = listed(
    "가온 나율 다온 도경 로하 무영 민결 새결 서린 선율 소율 시안 예결 연우 온유 유담 윤결 재온 정온 주안 "
    "지담 하랑 해솔 현담 다현 태린 한솔 이솔 라온 도윤 지온 수안 영결 은결 새온 루하 시온 유안 진결 해온"
)
_FOREIGN_GIVEN_NAMES = listed("루카스 엘리사 토마스 마리나 안드레 카밀라 요나스 베아트 니콜라 이레나 올리버 산드라")
_FOREIGN_SURNAMES = listed("아르벨 칸델라 로스벡 데마렌 모렐리스 브란키 하프넬 오르테스 벨로냐 칼리오넨 두발렌 페르닉")
STEMS = listed(
    "한울 누리 다솜 온새 가람 미르 도담 윤슬 해오름 새별 솔빛 푸른들 나래 단비 초롱 별하 아람 두루 이든 너울"
)


class Span(NamedTuple):
    """A filled slot: where its word starts and ends (exclusive)."""

    slot: str
    start: int
    end: int


def slots_of(frame: str) -> list[str]:
    """The slots of a frame in order, each once."""
    return list(dict.fromkeys(match[2] for match in _SLOT.finditer(frame)))


def kind_of(slot: str) -> str:
    """The word list a slot draws from: "city2" draws from "city"."""
    return slot.rstrip("0123456789")


def fill_spans(frame: str, words: Mapping[str, str]) -> tuple[str, list[Span]]:
    """The frame with its words, and the place of every word."""
    text, spans, done = "", [], 0
    for match in _SLOT.finditer(frame):
        text, done = text + frame[done : match.start()], match.end()
        bare, slot, pair = match.groups()
        if not bare:
            spans.append(Span(slot, len(text), len(text) + len(words[slot])))
            text += words[slot]
        text += particle(words[slot], pair) if pair else ""
    return text + frame[done:], spans


def share(words: Sequence[Word], split: str) -> list[Word]:
    """The part of a list that a split may use: every fourth word is kept for dev."""
    return [word for number, word in enumerate(words) if (number % 4 == 3) == (split == "dev")]


def joined(split: str, stems: Sequence[str], endings: Sequence[str]) -> list[str]:
    """Every stem of the split with every ending: 한울 and 전자 make 한울전자."""
    return [stem + ending for stem in share(stems, split) for ending in endings]


def foreign_names(split: str) -> list[str]:
    """Invented foreign people, with the space inside that taggers stumble over."""
    return [
        f"{given} {surname}"
        for given in share(_FOREIGN_GIVEN_NAMES, split)
        for surname in share(_FOREIGN_SURNAMES, split)
    ]
