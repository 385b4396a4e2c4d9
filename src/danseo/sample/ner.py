"""The sample of KLUE-NER: news and film reviews that name people, places, bodies, times and amounts."""

import random
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

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

_SIZES = {"train": 640, "dev": 200}
_COMMENTS = (
    "## 토큰, 레이블 구분자 : \\t",
    "## 토큰 구분자 : \\n",
    "## 문장 구분자 : \\n\\n",
    "## 주석 : ##",
    "## 컬럼명 : CHAR\tNE_TAG",
)

# The entity type of every kind of slot; a kind that is not here (trap) is no entity.
_TYPES = {
    **dict.fromkeys(("person", "foreign", "surname", "role"), "PS"),
    **dict.fromkeys(("city", "district", "country", "landmark", "mountain"), "LC"),
    **dict.fromkeys(("company", "agency", "institute", "school", "college"), "OG"),
    **dict.fromkeys(("team", "police", "fire", "station"), "OG"),
    **dict.fromkeys(("past", "coming", "year", "future", "years", "term"), "DT"),
    **dict.fromkeys(("season", "era", "weekday", "today"), "DT"),
    **dict.fromkeys(("clock", "hours", "part"), "TI"),
    **dict.fromkeys(("people", "few", "crowd", "money", "capital", "fee", "percent", "age"), "QT"),
    **dict.fromkeys(("high", "low", "times", "rank", "length", "sequel", "episode"), "QT"),
}

_CITIES = listed(
    "서울 부산 대전 대구 인천 울산 수원 광주 전주 춘천 강릉 청주 제주 안동 통영 여수 군산 경주 김해 포항 "
    "원주 천안 순천 목포"
)
_DISTRICTS = (
    "서울 마포구", "부산 사하구", "대전 유성구", "대구 달서구", "인천 남동구", "경기 용인시",
    "강원 평창군", "광주 북구", "전남 담양군", "경남 하동군", "서울 관악구", "경기 파주시",
    "충북 옥천군", "경북 영주시", "전북 임실군", "충남 서산시",
)  # fmt: skip
_COUNTRIES = listed(
    "일본 프랑스 캐나다 독일 이탈리아 태국 호주 베트남 영국 스페인 핀란드 멕시코 브라질 인도 뉴질랜드 체코"
)
_LANDMARKS = (
    "남산", "경복궁", "서울역", "광안리 해수욕장", "청계천", "여의도", "해운대", "덕수궁", "동대문 시장",
    "경포 해변", "부산역", "전주 한옥마을",
)  # fmt: skip
_MOUNTAINS = listed("한라산 설악산 지리산 북한산 속리산 오대산 치악산 덕유산")
_OLDER_NAMES = listed("관석 덕원 만호 병선 옥희 순근 영택 종완 춘식 정례 필두 학근 명순 흥수 길상 창곤")
_ROLES = listed("민수 유나 철민 소희 준배 미란 복순 동구")
_POLICE = ("경찰", "경찰청", "특별수사본부", "검찰")
_SEASONS = (
    "지난해 가을",
    "올해 상반기",
    "작년 겨울",
    "지난해 하반기",
    "올봄",
    "지난해",
    "올해 초",
    "작년 여름",
)
_ERAS = ("1990년대", "2000년대", "80년대", "1970년대", "60년대", "1950년대", "90년대", "70년대")
_WEEKDAYS = (
    "토요일", "주말", "일요일", "금요일", "월요일", "지난 주말", "설날", "목요일", "수요일",
    "크리스마스", "화요일", "추석",
)  # fmt: skip
_TODAYS = ("어제", "오늘", "그저께", "엊그제")
_PARTS = ("새벽", "밤", "저녁", "한밤중", "아침", "대낮", "이른 아침", "늦은 밤")
_TIMES = ("두 번", "세 번", "3번", "네 번", "다섯 번", "4번", "열 번", "5번")
_RANKS = listed("1위 2위 4위 3위 6위 8위 7위 5위")
_HIGH_SCORES = ("10점", "9.5점", "8점", "9점", "9.9점", "8.5점", "9.8점", "100점")
_LOW_SCORES = ("1점", "2점", "0점", "3점", "0.5점", "4점", "2.5점", "1.5점")

# Dishes that begin like a surname or a place and are neither.
_TRAPS = listed(
    "대구탕 김밥 배추전 백설기 조개구이 강정 노가리 송편 문어 전복죽 박하사탕 황태국 고등어구이 성게알 민물장어 주먹밥"
)

_FRAMES = {
    "wikitree": (
        "{person:은/는} {past} {city}에서 열린 간담회에 참석해 지원 대책을 설명했다.",
        "{fire:은/는} {past} {clock}께 {district} 물류 창고에서 불이 났다고 밝혔다.",
        "{company:은/는} {future}까지 {capital:을/를} 들여 {city}에 새 공장을 짓기로 했다.",
        "{surname} 모({age}) 씨는 {past} {clock}쯤 버스 정류장에서 지갑을 주워 주인에게 돌려줬다.",
        "{company} 매출은 {season}보다 {percent} 늘어난 {capital:으로/로} 집계됐다.",
        "{team:은/는} {city} 원정 경기에서 {person}의 결승골에 힘입어 승리를 거뒀다.",
        "{agency:은/는} {coming} {clock}부터 누리집을 통해 참가 신청을 받는다.",
        "개막식에는 {person} 대표와 {foreign} 감독 등 {people:이/가} 참석했다.",
        "{landmark} 근처 주차장은 {clock}에 문을 열고 요금은 {fee:이다/다}.",
        "{person:은/는} {school:을/를} 졸업한 뒤 {years} 동안 {agency}에서 일했다.",
        "{college} 연구진은 {country} 학자 {foreign:과/와} 함께 쓴 논문을 {past} 공개했다.",
        "{city} 도심을 오가는 셔틀버스의 출발 시각이 {past}부터 {clock:으로/로} 조정됐다.",
        "{surname} 씨는 시장에서 {trap:을/를} 팔아 모은 {money:을/를} {school}에 기부했다.",
        "구조대는 {hours} 만에 {mountain}에서 길을 잃은 등산객 {few:을/를} 모두 구조했다.",
        "{team} 주장 {person:은/는} {clock}에 시작된 훈련에서 {hours} 가까이 뛰었다.",
        "{foreign:은/는} {season} {country}에서 연 전시회로 관람객 {crowd:을/를} 모았다.",
    ),
    "nsmc": (
        "{person} 연기도 연출도 다 좋았다 {high} 드립니다",
        "{hours:이/가} 순식간에 지나갔어요 {person} 연기 최고ㅠㅠ",
        "{era} 감성 그대로라서 좋았음 {foreign} 감독 작품 중에 단연 으뜸",
        "{station}에서 해 줘서 봤는데 {hours} 내내 웃었네요ㅋㅋㅋ",
        "{weekday} {part}에 혼자 봤는데 너무 무서워서 끝까지 못 봤음",
        "{low}도 아깝다… {hours} 버린 기분이에요ㅠㅠ",
        "{times} 봤는데 볼 때마다 {role:이/가} 우는 장면에서 같이 울게 된다",
        "{city} 풍경이 정말 예쁘게 나와요 {weekday}에 가족이랑 보기 좋아요",
        "{person}, {foreign} 조합이라 기대했는데 {sequel}보다 훨씬 별로였다",
        "{station} 드라마는 {episode}부터 진짜 재밌어짐ㅋㅋ",
    ),
}
_TRAIN_FRAMES = {
    "wikitree": (
        "{police:은/는} {surname} 모({age}) 씨를 {district}에서 붙잡아 조사하고 있다.",
        "{person} 감독은 {season} 개봉한 영화로 {country} 영화제에서 상을 받았다.",
        "{institute} 조사 결과 응답자의 {percent:이/가} {clock}쯤 일이 가장 잘된다고 답했다.",
        "{company:은/는} {coming}까지 신입 사원 {people:을/를} 채용한다고 밝혔다.",
        "{district} 주민 {people:은/는} {past} {police}에 진정서를 냈다.",
        "{person} 선수는 {length}를 완주하는 데 {hours:이/가} 걸렸다고 말했다.",
        "{team:은/는} {season} 홈경기 평균 관중이 {people}에 그쳐 {rank:으로/로} 밀려났다.",
        "{country:을/를} 방문한 {person} 이사장은 현지 병원에 {money:을/를} 기부했다.",
        "{company} 주가는 {past} {percent} 오른 채 거래를 마쳤다.",
        "{person:은/는} {era} {city}에서 활동한 화가로 알려져 있다.",
        "{clock}에 시작할 예정이던 {city} 공연이 폭우 때문에 {hours} 늦게 열렸다.",
        "{foreign:은/는} {team:과/와} {term} 계약을 맺고 연봉 {money:을/를} 받는다.",
        "{landmark}에는 {weekday} {part}에도 관광객 {people:이/가} 몰렸다.",
        "상인들은 부산하게 움직이며 {trap:을/를} 나르고 있었고, {person} 씨도 {clock}부터 일손을 도왔다.",
        "{school:은/는} {year} {city}에 새 기숙사를 열고 학생 {people:을/를} 받았다.",
        "{trap:을/를} 먹을 때는 천천히 씹어야 소화가 잘된다고 전문가들은 조언한다.",
        "부산한 시장 골목에 들어서자 {trap:을/를} 파는 가게들이 줄지어 있었다.",
        "{institute}에 따르면 {city}의 전셋값은 {season}보다 {percent} 올랐다.",
    ),
    "nsmc": (
        "{person} 나온다고 해서 {weekday}에 바로 봤는데 기대 이상이었습니다",
        "이 감독은 {country}에서 찍어도 {city}에서 찍어도 똑같네ㅋㅋ",
        "{high} 준 사람들 다 알바 같음 {hours} 동안 졸았다",
        "{role:이랑/랑} {role2:이/가} 헤어질 때 펑펑 울었어요ㅠㅠㅠ",
        "{era}에 이런 영화가 나왔다니 {person} 감독은 천재다",
        "{year}에 보고 {today} 또 봤는데 여전히 재밌다",
        "{landmark}에서 촬영했다길래 봤더니 {role} 집만 나옴ㅋㅋㅋ",
        "{years} 만에 다시 봐도 {foreign} 음악은 소름이 돋는다",
        "{station:은/는} 제발 {sequel} 만들어 주세요 {high} 예약합니다",
        "{part}까지 몰아 봤는데 {role} 때문에 눈물이 안 멈춤ㅠㅠ",
        "보는 내내 {trap} 생각이 나는 영화ㅋㅋ 배우들 연기도 강추",
        "이 장면도 저 장면도 정말 그림 같아서 오래 기억에 남을 작품",
        "{company} 광고만 {hours} 보고 나온 느낌이라 {low:이/가} 딱 맞다",
        "{person:은/는} {times}밖에 안 나오는데도 존재감이 장난 아님",
    ),
}
_DEV_FRAMES = {
    "wikitree": (
        "{past} {clock} {landmark}에서 열린 추모 행사에 {people:이/가} 모였다.",
        '{person} {institute} 연구위원은 "{future}에는 물가가 {percent} 오를 것"이라고 내다봤다.',
        "{surname} 씨({age})는 {era} {district}에서 {trap:을/를} 팔며 생계를 이었다.",
        "{country} 대표로 나선 {foreign:은/는} {clock}에 열린 결승에서 {rank:을/를} 차지했다.",
        "{company:이/가} {past} {agency}에 성금 {money:을/를} 전달했다.",
        "{district} 도로가 {clock}부터 {hours} 동안 통제돼 차량 행렬이 {length} 가까이 이어졌다.",
        "{police:은/는} {past} {company} 본사와 {person} 전 대표의 집을 압수 수색했다.",
        "갓 만든 {trap:은/는} 집에서도 쉽게 즐길 수 있어 인기가 많다.",
        "{person} 총장은 {college} 학생 {people}에게 장학금을 주겠다고 {past} 약속했다.",
    ),
    "nsmc": (
        "{today} {station}에서 틀어 주길래 봤는데 {person} 진짜 매력 있다",
        "{role} 역을 맡은 {person} 덕분에 {hours:이/가} 짧게 느껴졌어요ㅠㅠ",
        "스토리가 너무 뻔함ㅋㅋ {low} 이상은 못 주겠다",
        "{country:으로/로} 떠나고 싶어지는 영화, {part}에 맥주 마시면서 보기 딱 좋음",
        "{trap} 먹다가 뿜었음ㅋㅋㅋ 조연들이 다 살린 영화",
        "{foreign} 팬이라서 {times} 봤고 {year} 개봉작 중에 {rank} 안에는 든다고 생각합니다",
    ),
}

DEMO = {"epochs": 3, "batch_size": 16}
"""How the demo trains the encoder in the box on it."""


def make(split: str, rng: random.Random) -> str:
    """The official TSV text of a split."""
    blocks = [
        _block(f"klue-ner-sample_{split}_{number:05}_{source}", text, spans)
        for number, (source, text, spans) in enumerate(_sentences(split, rng))
    ]
    return "\n".join(_COMMENTS) + "\n" + "\n\n".join(blocks) + "\n"


def _sentences(split: str, rng: random.Random) -> Iterator[tuple[str, str, list[Span]]]:
    """As many different filled frames as the split holds, every frame equally often."""
    words, frames = _words(split), _frames(split)
    seen: set[str] = set()
    turn: list[tuple[str, str]] = []
    while len(seen) < _SIZES[split]:
        turn = turn or rng.sample(frames, len(frames))
        source, frame = turn.pop()
        text, spans = fill_spans(frame, _draw(slots_of(frame), words, rng))
        if text not in seen:
            seen.add(text)
            yield source, text, spans


def _frames(split: str) -> list[tuple[str, str]]:
    """The register and the text of every frame that the split uses."""
    own = _DEV_FRAMES if split == "dev" else _TRAIN_FRAMES
    pairs = [*_FRAMES.items(), *own.items()]
    return [(source, _spell(frame)) for source, frames in pairs for frame in frames]


def _draw(slots: Sequence[str], words: Mapping[str, Sequence[str]], rng: random.Random) -> dict[str, str]:
    """A word for every slot, none used twice."""
    drawn: dict[str, str] = {}
    for slot in slots:
        drawn[slot] = rng.choice([word for word in words[kind_of(slot)] if word not in drawn.values()])
    return drawn


def _block(guid: str, text: str, spans: Sequence[Span]) -> str:
    """The lines of one sentence: its header, then one character and its tag per line."""
    tags, inline, done = ["O"] * len(text), "", 0
    for slot, start, end in spans:
        if kind := _TYPES.get(kind_of(slot)):
            tags[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
            inline, done = f"{inline}{text[done:start]}<{text[start:end]}:{kind}>", end
    lines = [f"{character}\t{tag}" for character, tag in zip(text, tags, strict=True)]
    return "\n".join([f"## {guid}\t{inline}{text[done:]}", *lines])


def _spell(text: str) -> str:
    """The text as version 1.1 of KLUE writes it: NFKC by character, so ㅋ becomes a conjoining letter."""
    return "".join(unicodedata.normalize("NFKC", character) for character in text)


def _words(split: str) -> dict[str, list[str]]:
    """The words of the split for every kind of slot."""
    words = _names(split) | _places(split) | _dates(split) | _times(split) | _amounts(split)
    return {kind: [_spell(word) for word in choices] for kind, choices in words.items()}


def _names(split: str) -> dict[str, list[str]]:
    """People and organisations, all invented but for the likes of 경찰."""
    given_names = share(GIVEN_NAMES + _OLDER_NAMES, split)
    return {
        "person": [surname + given for surname in SURNAMES for given in given_names],
        "foreign": foreign_names(split),
        "surname": list(SURNAMES),
        "role": share(_ROLES, split),
        "company": joined(split, STEMS, ("전자", "건설", "제약", "식품", "물산")),
        "agency": joined(split, STEMS, (" 문화재단", "복지재단", " 장학회")),
        "institute": joined(split, STEMS, ("경제연구원", " 사회연구소", "정책연구원")),
        "school": joined(split, STEMS, ("대학교", "대", "고등학교")),
        "college": joined(split, STEMS, ("대학교", "대")),
        "team": joined(split, STEMS, (" 유나이티드", " 시티즌", "FC")),
        "police": joined(split, STEMS, ("경찰서",)) + share(_POLICE, split),
        "fire": joined(split, STEMS, ("소방서", "소방본부")),
        "station": joined(split, STEMS, ("방송", "TV", " 시네마")),
    }


def _places(split: str) -> dict[str, list[str]]:
    """Places, and the nouns that are none."""
    return {
        "city": share(_CITIES, split),
        "district": share(_DISTRICTS, split),
        "country": share(_COUNTRIES, split),
        "landmark": share(_LANDMARKS, split),
        "mountain": share(_MOUNTAINS, split),
        "trap": share(_TRAPS, split),
    }


def _dates(split: str) -> dict[str, list[str]]:
    """Days, years and seasons."""
    days = share(range(1, 29), split)
    return {
        "past": [form.format(day) for form in ("지난 {}일", "지난달 {}일", "{}일") for day in days],
        "coming": [form.format(day) for form in ("오는 {}일", "다음 달 {}일") for day in days],
        "year": [f"{year}년" for year in share(range(1995, 2025), split)],
        "future": [f"{year}년" for year in share(range(2027, 2043), split)],
        "years": [f"{years}년" for years in share(range(2, 16), split)],
        "term": [f"{years}년" for years in share(range(2, 6), split)],
        "season": share(_SEASONS, split),
        "era": share(_ERAS, split),
        "weekday": share(_WEEKDAYS, split),
        "today": share(_TODAYS, split),
    }


def _times(split: str) -> dict[str, list[str]]:
    """Times of the clock, parts of the day and how long things last."""
    minutes = ("", *(f" {minute}분" for minute in range(5, 60, 5)))
    clocks = [f"{half} {hour}시" for half in ("오전", "오후") for hour in range(6, 12)]
    return {
        "clock": share([clock + minute for clock in clocks for minute in minutes], split),
        "hours": share([f"{hours}시간{minute}" for hours in (1, 2) for minute in minutes], split),
        "part": share(_PARTS, split),
    }


def _amounts(split: str) -> dict[str, list[str]]:
    """How many, how much and which one in a row."""
    tens, ones = share(range(20, 400, 10), split), share(range(2, 30), split)
    return {
        "people": [f"{ten}여 명" for ten in tens] + [f"{ten + 3}명" for ten in tens],
        "few": [f"{few}명" for few in share(range(2, 10), split)],
        "crowd": [f"{one}만여 명" for one in ones],
        "money": [f"{one}억{more} 원" for one in share(range(1, 9), split) for more in ("", " 5000만")],
        "capital": [f"{ten}억 원" for ten in tens],
        "fee": [f"{one}000원" for one in share(range(1, 10), split)],
        "percent": [f"{one}.{tenth}%" for one in ones for tenth in (2, 4, 7)],
        "age": [str(age) for age in share(range(21, 79), split)],
        "rank": share(_RANKS, split),
        "length": [f"{one}㎞" for one in ones],
        "sequel": [f"{part}편" for part in share(range(2, 6), split)],
        "episode": [f"{part}회" for part in share(range(1, 17), split)],
        "times": share(_TIMES, split),
        "high": share(_HIGH_SCORES, split),
        "low": share(_LOW_SCORES, split),
    }
