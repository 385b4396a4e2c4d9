"""The sample of KLUE-RE: sentences whose people and organisations stand in all thirty relations."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from danseo.sample.relation_frames import DEV_ONLY, SHARED, TRAIN_ONLY, Frame
from danseo.sample.spans import (
    GIVEN_NAMES,
    STEMS,
    SURNAMES,
    Span,
    fill_spans,
    foreign_names,
    joined,
    kind_of,
    listed,
    share,
    slots_of,
)

# How many rows of each relation a split holds: the common ones, the others, and no_relation.
_COMMON = ("per:title", "per:employee_of", "org:top_members/employees")
_QUOTAS = {"train": (24, 16, 246), "dev": (7, 5, 76)}

_NONE = "no_relation"

Pair = tuple[str, str]  # the slots of subject and object

_TYPES = {
    **dict.fromkeys(("person", "kin", "foreign", "stage", "pen"), "PER"),
    **dict.fromkeys(("company", "former", "school", "party", "band", "team", "league"), "ORG"),
    **dict.fromkeys(("union", "bloc", "agency", "short", "charity", "religion"), "ORG"),
    **dict.fromkeys(("city", "region", "country"), "LOC"),
    **dict.fromkeys(("born", "birth", "died", "founded", "closed", "day"), "DAT"),
    **dict.fromkeys(("job", "artist", "rank", "post", "nickname"), "POH"),
    **dict.fromkeys(("work", "product", "creed", "faith"), "POH"),
    **dict.fromkeys(("staff", "age", "percent"), "NOH"),
}

_CITIES = listed(
    "서울 부산 대전 대구 인천 울산 수원 광주 전주 춘천 강릉 청주 안동 통영 군산 여수 경주 김해 원주 포항 "
    "천안 순천 진주 목포"
)
_REGIONS = ("경기도", "강원도", "충청남도", "경상북도", "전라북도", "경상남도", "제주도", "전라남도")
_COUNTRIES = listed(
    "일본 프랑스 캐나다 독일 이탈리아 태국 호주 베트남 영국 스페인 핀란드 멕시코 브라질 인도 뉴질랜드 체코"
)
_JOBS = listed(
    "화가 소설가 시인 조각가 작곡가 건축가 사진작가 성악가 영화감독 생물학자 역사학자 천문학자 만화가 "
    "무용가 번역가 피아니스트 물리학자 언론인 극작가 수필가"
)
_ARTISTS = listed("화가 소설가 시인 영화감독 작곡가 만화가 극작가 수필가")
_RANKS = listed("대표이사 사장 회장 부사장 전무 연구소장 상무 공동대표")
_POSTS = listed("원장 이사장 정책국장 본부장 대변인 기획실장 사무총장 부원장")
_WORKS = (
    "겨울 정류장", "바다의 문장", "느린 기차", "하얀 골목", "봄밤의 약속", "숲의 언어", "마지막 등대",
    "푸른 계단", "달빛 우체국", "모래 시계탑", "강변의 오후", "은빛 그림자", "별을 줍는 아이",
    "낮은 지붕", "먼 섬의 노래", "유리 정원",
)  # fmt: skip
_PRODUCTS = (
    "하늘패드", "로봇 청소기", "전기 자전거", "공기 청정기", "무선 이어폰", "온빛스탠드", "소형 냉장고",
    "바람워치", "식기세척기", "전동 킥보드", "한손카메라", "전자책 단말기", "가정용 혈압계",
    "구름스피커", "태양광 충전기", "인덕션",
)  # fmt: skip
_PARTIES = listed("새길당 시민두레당 푸른마을당 미래숲당 한마음당 평화나눔당 바른길당 함께민생당")
_BANDS = (
    "새벽산책", "블루라인", "여름기차", "달그림자", "구름다리", "파란우산", "골목별", "모래시계단",
    "빛고래", "레몬하우스", "안개소년", "회전목마클럽",
)  # fmt: skip
_LEAGUES = (
    "누리리그",
    "한빛 풋볼리그",
    "에이원리그",
    "가온 챌린지리그",
    "K스타리그",
    "새솔 슈퍼리그",
    "우리리그",
    "온누리리그",
)
_UNIONS = (
    "한국친환경기업협회", "전국제조업연합회", "한국로봇산업협회", "한국스마트가전협의회",
    "동북아기술연합회", "혁신기업협의회", "한국정밀기술협회", "지역경제인연합회",
)  # fmt: skip
_BLOCS = (
    "세계바다연맹", "아시아물환경기구", "국제숲보전연맹", "세계기후협력기구", "남방경제협력체",
    "국제문화교류연맹", "열대우림보호기구", "국제해양안전기구",
)  # fmt: skip
_RELIGIONS = listed("천주교 개신교 원불교 성공회 감리교 장로교 침례교 정교회")
_FAITHS = listed("불교 기독교 유대교 힌두교 가톨릭 천도교 대종교 이슬람교")
_CREEDS = listed("자유주의 사회민주주의 보수주의 진보주의 생태주의 공화주의 중도주의 민족주의")
_STAGE_NAMES = listed("루엘 하이진 마리온 제이담 노을비 세라온 비오르 라엘 도리안 유채빛 카이든 솔비안")
_PEN_NAMES = listed("청람 월담 송하 은재 벽오 해담 죽원 운계 석담 매원 호정 설촌")
_NICKNAMES = (
    "걸어 다니는 사전", "영원한 청년", "시대의 거울", "작은 거인", "침묵의 승부사", "고독한 완벽주의자",
    "불꽃 같은 노력가", "밤의 산책자",
)  # fmt: skip
_AGENCIES = {
    "해양기록진흥원": "해진원", "산림치유연구원": "산치원", "농촌미래재단": "농미재단",
    "생활안전연구원": "생안연", "도시재생기록원": "도재원", "청년일자리지원단": "청일단",
    "수산식품개발원": "수식원", "문화유산보존원": "문보원", "지역교통진흥원": "지교원",
    "재난대응훈련원": "재훈원", "관광상품개발원": "관상원", "기후환경정보원": "기환원",
}  # fmt: skip

_LISTS = {
    "given": GIVEN_NAMES,
    "stage": _STAGE_NAMES,
    "pen": _PEN_NAMES,
    "nickname": _NICKNAMES,
    "city": _CITIES,
    "region": _REGIONS,
    "country": _COUNTRIES,
    "party": _PARTIES,
    "band": _BANDS,
    "league": _LEAGUES,
    "union": _UNIONS,
    "bloc": _BLOCS,
    "agency": tuple(_AGENCIES),
    "religion": _RELIGIONS,
    "faith": _FAITHS,
    "creed": _CREEDS,
    "job": _JOBS,
    "artist": _ARTISTS,
    "rank": _RANKS,
    "post": _POSTS,
    "work": _WORKS,
    "product": _PRODUCTS,
}

# A relation read the other way round, where the object can be a subject too.
_INVERSES = {
    "per:spouse": "per:spouse",
    "per:siblings": "per:siblings",
    "per:colleagues": "per:colleagues",
    "per:other_family": "per:other_family",
    "per:alternate_names": "per:alternate_names",
    "per:parents": "per:children",
    "per:children": "per:parents",
    "per:employee_of": "org:top_members/employees",
    "org:top_members/employees": "per:employee_of",
    "org:members": "org:member_of",
    "org:member_of": "org:members",
    "org:alternate_names": "org:alternate_names",
}

DEMO = {"epochs": 4, "batch_size": 16, "optimizer": "muon", "learning_rate": 1e-3}
"""How the demo trains the encoder in the box on it."""


def make(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """The rows of the official JSON of a split, every relation as often as its quota says."""
    rows = list(_rows(split, rng))
    rng.shuffle(rows)
    return [{"guid": f"klue-re-sample_{split}_{number:05}", **row} for number, row in enumerate(rows)]


def _rows(split: str, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Sentences for the relations still wanted, each asked about up to three of its pairs."""
    words, needs, seen = _words(split), _needs(split), set[str]()
    frames = [(frame, _pairs(frame)) for frame in SHARED + (DEV_ONLY if split == "dev" else TRAIN_ONLY)]
    while +needs:
        [label] = rng.choices(list(needs), weights=list(needs.values()))
        fitting = [list(pairs.values()).count(label) for _, pairs in frames]
        [(frame, pairs)] = rng.choices(frames, weights=fitting)
        sentence, spans = fill_spans(frame.text, _draw(slots_of(frame.text), words, rng))
        if sentence in seen:
            continue
        seen.add(sentence)
        for pair in _chosen(pairs, label, needs, rng):
            needs[pairs[pair]] -= 1
            yield _row(frame.source, sentence, spans, pair, pairs[pair])


def _needs(split: str) -> Counter[str]:
    """How many rows of every label the split still wants."""
    common, other, none = _QUOTAS[split]
    labels = {label for frame in SHARED + TRAIN_ONLY for label in _pairs(frame).values()}
    return Counter({label: common if label in _COMMON else other for label in sorted(labels)} | {_NONE: none})


def _pairs(frame: Frame) -> dict[Pair, str]:
    """The label of every pair of slots that may be asked about, relations read in both directions."""
    pairs = dict(_related(item) for item in frame.relations.split(", ") if item)
    for (subject, other), label in list(pairs.items()):
        if label in _INVERSES and _TYPES[kind_of(other)] in ("PER", "ORG"):
            pairs[other, subject] = _INVERSES[label]
    return pairs | dict(_related(f"{pair} {_NONE}") for pair in frame.unrelated.split())


def _related(item: str) -> tuple[Pair, str]:
    """Subject, object and label of "person>city per:origin"."""
    pair, label = item.split()
    subject, other = pair.split(">")
    return (subject, other), label


def _chosen(pairs: Mapping[Pair, str], label: str, needs: Mapping[str, int], rng: random.Random) -> list[Pair]:
    """One pair of the wanted label and up to two of other relations that are still wanted."""
    chosen: dict[str, Pair] = {}
    for pair in rng.sample(list(pairs), len(pairs)):
        if needs[pairs[pair]] > 0:
            chosen.setdefault(pairs[pair], pair)
    others = [other for other in chosen if other not in (label, _NONE)]
    return [chosen[label], *(chosen[other] for other in others[:2])]


def _row(source: str, sentence: str, spans: Sequence[Span], pair: Pair, label: str) -> dict[str, Any]:
    """One row without its guid."""
    entities = {span.slot: _entity(sentence, span) for span in spans}
    subject, other = pair
    return {
        "sentence": sentence,
        "subject_entity": entities[subject],
        "object_entity": entities[other],
        "label": label,
        "source": source,
    }


def _entity(sentence: str, span: Span) -> dict[str, Any]:
    """A word with its place, the end inclusive as in the official files."""
    word = sentence[span.start : span.end]
    return {
        "word": word,
        "start_idx": span.start,
        "end_idx": span.end - 1,
        "type": _TYPES[kind_of(span.slot)],
    }


def _draw(slots: Sequence[str], words: Mapping[str, Sequence[str]], rng: random.Random) -> dict[str, str]:
    """A word for every slot, none used twice; kin share a surname, other people do not."""
    family, *surnames = rng.sample(SURNAMES, len(slots) + 1)
    given_names = rng.sample(words["given"], len(slots))
    drawn: dict[str, str] = {}
    for slot in sorted(slots):  # agency before short
        kind = kind_of(slot)
        if kind in ("person", "kin"):
            drawn[slot] = (family if kind == "kin" else surnames.pop()) + given_names.pop()
        elif kind == "short":
            drawn[slot] = _AGENCIES[drawn["agency"]]
        else:
            drawn[slot] = rng.choice([word for word in words[kind] if word not in drawn.values()])
    return drawn


def _words(split: str) -> dict[str, list[str]]:
    """The words of the split for every kind of slot."""
    named = {kind: share(words, split) for kind, words in _LISTS.items()}
    return named | _organisations(split) | _dates(split) | _numbers(split) | {"foreign": foreign_names(split)}


def _organisations(split: str) -> dict[str, list[str]]:
    """Invented organisations, by what they are."""
    return {
        "company": joined(split, STEMS, ("전자", "테크", "정밀", "산업")),
        "former": joined(split, STEMS, ("상사", "공업사")),
        "school": joined(split, STEMS, ("대학교", "고등학교", "예술대학")),
        "team": joined(split, STEMS, (" 유나이티드", " 시티즌", "FC")),
        "charity": joined(split, STEMS, ("나눔회", "복지회", "봉사단")),
    }


def _dates(split: str) -> dict[str, list[str]]:
    """Dates in an order that makes sense: born before dead, founded before closed."""
    # The first years lie a multiple of four apart, so a year of dev is a year of dev in every list.
    return {
        "born": _full_dates(range(1890, 1930), split),
        "died": _full_dates(range(1962, 1999), split),
        "birth": _full_dates(range(1958, 1996), split),
        "founded": _months(range(1966, 1991), split, ("", " 3월", " 9월")),
        "closed": _months(range(1998, 2020), split, ("", " 2월", " 11월")),
        "day": [f"{prefix} {day}일" for prefix in ("지난", "지난달") for day in share(range(1, 29), split)],
    }


def _months(years: Sequence[int], split: str, months: Sequence[str]) -> list[str]:
    """The years the split may use, alone and with a month."""
    return [f"{year}년{month}" for year in share(years, split) for month in months]


def _full_dates(years: Sequence[int], split: str) -> list[str]:
    """Two days in each of the years the split may use."""
    numbers = [(year, year * step) for year in share(years, split) for step in (5, 7)]
    return [f"{year}년 {number % 12 + 1}월 {number % 28 + 1}일" for year, number in numbers]


def _numbers(split: str) -> dict[str, list[str]]:
    """How many people, how old, how much more."""
    return {
        "staff": [f"{ten}{form}" for ten in share(range(120, 980, 20), split) for form in ("명", "여 명")],
        "age": [str(age) for age in share(range(26, 70), split)],
        "percent": [f"{one}.{tenth}%" for one in share(range(2, 30), split) for tenth in (3, 8)],
    }


def companions(labels: Sequence[str]) -> dict[str, Any]:
    """The list of the relations."""
    return {"relation_list.json": {"relations": list(labels)}}
