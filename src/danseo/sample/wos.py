"""Sample of WoS: dialogues with a Seoul travel guide, the state growing with every user turn.

A dialogue is a plan of domains; each domain adds its turns, and every user turn says which slots it fills.
Where several wordings stand side by side, train uses all but the last and dev all but the first.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from danseo.sample.templates import fill

_T = TypeVar("_T")

_SIZES = {"train": 180, "dev": 30}
_CHANGE_RATE = 0.4

# --- values: of train, of dev -----------------------------------------------------------------------------

_AREAS = ("서울 북쪽", "서울 중앙", "서울 동쪽", "서울 서쪽", "서울 남쪽")
_DAYS = ("월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일")
_COUNTS = tuple(str(number) for number in range(1, 11))
_PRICES = {"저렴": "저렴한", "적당": "가격이 적당한", "비싼": "비싼"}
_TAXIS = ("고급", "개인", "에코")
_TIMES = tuple(f"{hour:02}:{minute:02}" for hour in range(7, 23) for minute in range(0, 60, 10))
_STATIONS = (
    "서울역,시청역,종각역,강남역,잠실역,홍대입구역,신촌역,왕십리역,혜화역,명동역,광화문역,여의도역",
    "용산역,건대입구역,합정역,사당역,이태원역,안국역,성수역",
)
_LANDMARKS = ("경복궁,남산타워,인사동,코엑스,북촌", "덕수궁,서울숲,가로수길,망원동")
_NAMES = {
    "숙소": {
        "호텔": ("달빛 호텔,은하 호텔,강바람 호텔,소나무 호텔", "새벽별 호텔,물결 호텔,구름다리 호텔"),
        "게스트 하우스": (
            "골목길 게스트 하우스,느티나무 게스트 하우스,기와 게스트 하우스",
            "담쟁이 게스트 하우스,청사초롱 게스트 하우스",
        ),
        "호스텔": ("나그네 호스텔,여행자 호스텔,징검다리 호스텔", "배낭 호스텔,바람개비 호스텔"),
        "모텔": ("무지개 모텔,은방울 모텔", "초승달 모텔,종이배 모텔"),
        "에어비엔비": ("햇살 에어비엔비,옥탑방 에어비엔비", "다락방 에어비엔비,마당집 에어비엔비"),
    },
    "식당": {
        "한식당": ("봄날밥상,할매손맛,장독대", "아궁이밥집,도란도란"),
        "중식당": ("붉은등불,만리향반점", "연꽃반점,비단길반점"),
        "일식당": ("나무젓가락,파도초밥", "종이학,달토끼우동"),
        "양식당": ("올리브나무,작은부엌", "토마토정원,은수저"),
        "베이커리": ("밀밭향기,아침오븐", "보리이삭,버터한조각"),
        "분식집": ("골목떡볶이,하굣길분식", "종소리분식,단골분식"),
        "치킨집": ("바삭한저녁,노란병아리", "닭날개집,황금들판"),
    },
    "관광": {
        "공원": ("버들 공원,반달 공원,물안개 공원", "노루목 공원,참새 공원"),
        "박물관": ("종이 박물관,옛소리 박물관,등잔 박물관", "나침반 박물관,붓글씨 박물관"),
        "공연": ("푸른무대 극장,두레 소극장", "꽃가람 극장,바람 소극장"),
        "쇼핑": ("한빛 쇼핑몰,다온 쇼핑몰", "별빛 쇼핑몰,누리 쇼핑몰"),
        "놀이공원": ("꿈동산,회전목마 나라", "솜사탕 나라,무지개동산"),
    },
}
_SPOKEN_PLACES = {"관광": "관광지", "숙소": "숙소", "식당": "식당"}
_SPOKEN_KINDS = {"공연": "공연장", "쇼핑": "쇼핑몰"}

# --- what is said: yes/no wishes by domain and slot -------------------------------------------------------

_PARKING: dict[str, tuple[str, ...]] = {
    "yes": (
        "주차할 수 있는 곳이면 좋겠어요.",
        "차를 가져갈 거라 주차가 꼭 돼야 해요.",
        "차로 갈 예정이라 주차장이 있어야 합니다.",
    ),
    "dontcare": ("주차는 되든 안 되든 상관없어요.", "주차 여부는 신경 쓰지 않아요."),
}
_WALKING: dict[str, tuple[str, ...]] = {
    "yes": ("역에서 걸어갈 수 있어야 해요.", "걸어서 갈 수 있는 곳이면 좋겠어요.", "도보로 갈 수 있어야 합니다.")
}
_INTERNET: dict[str, tuple[str, ...]] = {
    "yes": ("인터넷이 되는 곳이어야 해요.", "일을 해야 해서 와이파이가 필요해요.", "인터넷을 쓸 수 있어야 합니다.")
}
_SMOKING: dict[str, tuple[str, ...]] = {
    "no": (
        "담배 냄새가 싫어서 금연인 곳이면 좋겠어요.",
        "담배를 못 피우는 곳으로 부탁드려요.",
        "흡연이 안 되는 곳이어야 합니다.",
    ),
    "yes": ("담배를 피울 수 있는 곳이면 좋겠어요.", "흡연이 되는 곳으로 부탁드려요."),
}
_WISHES: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "숙소": {
        "주차 가능": _PARKING,
        "도보 가능": _WALKING,
        "인터넷 가능": _INTERNET,
        "흡연 가능": _SMOKING,
        "조식 가능": {
            "yes": (
                "조식이 나오는 곳으로 부탁드려요.",
                "아침 식사를 할 수 있어야 해요.",
                "조식을 먹을 수 있으면 합니다.",
            ),
            "dontcare": ("조식은 있어도 되고 없어도 돼요.", "조식은 상관없어요."),
        },
        "수영장 유무": {
            "yes": (
                "수영장이 있으면 좋겠어요.",
                "아이들과 수영장에서 놀고 싶어요.",
                "수영장이 딸린 곳이었으면 합니다.",
            ),
            "no": ("아이가 위험할까 봐 수영장은 없는 곳이 좋아요.", "수영장이 없는 곳을 원해요."),
        },
        "스파 유무": {
            "yes": ("스파도 이용하고 싶어요.", "스파가 있는 곳이면 좋겠어요.", "스파 시설이 있었으면 합니다.")
        },
        "헬스장 유무": {
            "yes": ("헬스장이 있는 곳으로 찾아 주세요.", "운동을 해야 해서 헬스장이 필요해요."),
            "no": ("헬스장은 필요 없으니 없는 곳으로 찾아 주세요.", "헬스장은 없는 곳으로 부탁드려요."),
        },
    },
    "식당": {
        "주차 가능": _PARKING,
        "도보 가능": _WALKING,
        "인터넷 가능": _INTERNET,
        "흡연 가능": _SMOKING,
        "주류 판매": {
            "yes": (
                "술도 마실 수 있는 곳이면 좋겠어요.",
                "맥주를 파는 곳으로 부탁드려요.",
                "술을 파는 곳이어야 합니다.",
            ),
            "no": ("아이와 함께라 술을 팔지 않는 곳이 좋아요.", "술은 안 파는 곳으로 찾아 주세요."),
        },
        "야외석 유무": {
            "yes": ("야외석이 있으면 좋겠어요.", "야외석에 앉고 싶어요.", "밖에서 먹을 수 있게 야외석이 있어야 해요."),
            "no": ("시끄러운 건 싫어서 야외석은 없는 곳이 좋아요.", "야외석이 없는 곳으로 부탁드려요."),
            "dontcare": ("야외석은 있든 없든 괜찮아요.", "야외석은 상관없어요."),
        },
    },
    "관광": {
        "주차 가능": _PARKING,
        "도보 가능": _WALKING,
        "경치 좋은": {
            "yes": ("경치가 좋은 곳이면 좋겠어요.", "사진을 찍을 거라 경치가 좋아야 해요.", "경치 좋은 곳을 원합니다.")
        },
        "교육적": {
            "yes": ("아이에게 교육적인 곳이면 좋겠어요.", "아이가 뭔가 배울 수 있는 교육적인 곳을 원해요."),
            "no": ("교육적인 곳은 아니었으면 해요.", "교육적인 곳은 빼 주세요."),
        },
        "문화 예술": {"yes": ("문화 예술을 즐길 수 있는 곳이 좋아요.", "문화 예술과 관련된 곳이면 좋겠어요.")},
        "역사적": {
            "yes": (
                "역사적인 곳을 보고 싶어요.",
                "역사적인 의미가 있는 곳이면 좋겠어요.",
                "역사적인 장소였으면 합니다.",
            ),
            "dontcare": ("역사적인 곳이든 아니든 괜찮아요.", "역사적인 곳인지는 상관없어요."),
        },
    },
}

# --- what is said: searching ------------------------------------------------------------------------------

# the first two wordings for train, the others for dev: nothing else here tells the splits apart
_OPENINGS: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {
    "숙소": {
        ("지역", "종류"): (
            "{area}에 있는 {kind:을/를} 찾고 있어요.",
            "{area}에서 묵을 {kind:을/를} 알아보고 있어요.",
            "{area}에 괜찮은 {kind:이/가} 있을까요?",
            "{area}에서 지낼 만한 {kind:을/를} 소개해 주세요.",
        ),
        ("지역", "가격대"): (
            "{area}에 있는 {price} 숙소를 찾아 주세요.",
            "{area}에서 {price} 숙소를 구하고 있어요.",
            "{area}에 {price} 숙소가 있는지 궁금해요.",
            "이번 여행은 {area}인데 {price} 숙소로 추천해 주시겠어요?",
        ),
        ("종류", "가격대"): (
            "서울에서 {price} {kind:을/를} 추천해 주세요.",
            "서울 여행 중에 묵을 {price} {kind:을/를} 찾아요.",
            "{price} {kind:을/를} 예약하려고 하는데 도와주세요.",
            "출장 때문에 {price} {kind:을/를} 구해야 해요.",
        ),
    },
    "식당": {
        ("지역", "종류"): (
            "{area}에 있는 {kind:을/를} 알려 주세요.",
            "{area}에서 갈 만한 {kind:을/를} 찾고 있어요.",
            "{area}에 맛있는 {kind:이/가} 있을까요?",
            "모임 때문에 {area}에 있는 {kind:을/를} 알아보는 중이에요.",
        ),
        ("지역", "가격대"): (
            "{area}에 있는 {price} 식당을 찾아 주세요.",
            "{area}에서 {price} 식당에 가고 싶어요.",
            "저녁을 먹으려고 하는데 {area}에 {price} 식당이 있나요?",
            "{area}에서 {price} 식당을 소개해 주실 수 있나요?",
        ),
        ("종류", "가격대"): (
            "{price} {kind:을/를} 추천해 주세요.",
            "친구들과 갈 {price} {kind:을/를} 찾고 있어요.",
            "{price} {kind:을/를} 예약하고 싶어요.",
            "동료들과 갈 {price} {kind:이/가} 있을까요?",
        ),
    },
    "관광": {
        ("지역",): (
            "{area}에서 구경할 만한 곳을 추천해 주세요.",
            "{area}에 가 볼 만한 관광지가 있나요?",
            "{area}에서 둘러볼 곳을 찾고 있어요.",
            "내일 {area}에 가는데 볼거리가 있을까요?",
        ),
        ("종류",): (
            "서울에서 가 볼 만한 {kind:을/를} 찾고 있어요.",
            "주말에 갈 {kind:을/를} 추천해 주세요.",
            "서울 여행 중인데 {kind:이/가} 어디 있을까요?",
            "아이들과 갈 만한 {kind:이/가} 있으면 소개해 주세요.",
        ),
    },
}
_ASKS = {
    "지역": ("원하시는 지역이 있으신가요?", "서울 어느 쪽을 찾으세요?", "지역은 어디가 좋으세요?"),
    "종류": ("원하시는 종류가 있으신가요?", "어떤 종류로 찾아 드릴까요?", "종류는 무엇이 좋으세요?"),
    "가격대": ("가격대는 어느 정도가 좋으세요?", "원하시는 가격대가 있으신가요?", "가격은 어떻게 할까요?"),
}
_REPLIES = {
    "지역": ("{area:이/가} 좋겠어요.", "{area:으로/로} 부탁드려요.", "{area}에서 찾아 주세요."),
    "종류": ("{kind:이/가} 좋겠어요.", "{kind:으로/로} 찾아 주세요.", "이왕이면 {kind:으로/로} 할게요."),
    "가격대": ("{price} 곳이 좋겠어요.", "되도록 {price} 데로 부탁드려요.", "{price} 곳으로 해 주세요."),
}
_ANY = {
    "지역": ("지역은 상관없어요.", "서울이면 어디든 괜찮아요.", "지역은 아무 데나 좋습니다."),
    "종류": ("종류는 상관없어요.", "어떤 종류든 괜찮아요.", "종류는 아무거나 좋습니다."),
    "가격대": ("가격은 상관없어요.", "가격대는 아무래도 괜찮아요.", "가격은 얼마든 좋습니다."),
}
_OFFERS = (
    "조건에 맞는 곳으로 {name:이/가} 있습니다. 이곳은 어떠세요?",
    "{name:을/를} 추천해 드립니다. 깨끗하고 찾아가기 쉬운 곳이에요.",
    "{name:은/는} 어떠신가요? 다녀온 분들의 평이 좋습니다.",
)
_ACCEPTANCES = (
    "좋아요. 거기로 할게요.",
    "네, 마음에 드네요. 그곳으로 할게요.",
    "괜찮네요. {name:으로/로} 부탁드려요.",
    "거기가 좋겠네요.",
)
_LINKS = ("그리고 ", "고맙습니다. 그리고 ", "네, 감사해요. 이번에는 ", "하나 더 부탁드릴게요. ")
_SAME_AREA = ("지역은 {place:과/와} 같은 곳이면 돼요.", "{place:이랑/랑} 같은 지역으로 찾아 주세요.")

# --- what is said: booking, changing, travelling ----------------------------------------------------------

_BOOKINGS = {
    "숙소": (
        "{day}부터 {nights}일 동안 {people}명으로 예약해 주세요.",
        "{people}명이 {day}부터 {nights}일 동안 묵을 거예요.",
        "{day}에 들어가서 {nights}일 지낼 거고 인원은 {people}명입니다.",
    ),
    "식당": (
        "{day} {time}에 {people}명 예약해 주세요.",
        "{people}명이고 {day} {time:으로/로} 예약 부탁드려요.",
        "{day} {time}에 갈게요. 모두 {people}명이에요.",
    ),
}
_BY_NAME = {
    "숙소": ("{name:을/를} 예약하고 싶어요.", "{name}에서 묵고 싶은데요.", "{name} 예약 부탁드립니다."),
    "식당": ("{name:을/를} 예약하고 싶어요.", "{name}에서 밥을 먹으려고 해요.", "{name} 예약 부탁드립니다."),
    "관광": ("{name}에 가 보고 싶어요.", "{name:을/를} 구경하려고 해요.", "{name}에 가려고 합니다."),
}
_QUESTIONS = (  # about a sight, with the answer
    ("몇 시까지 문을 여나요?", "밤 {hour}시까지 문을 엽니다."),
    ("전화번호를 알려 주세요.", "전화번호는 02-{office}-{line}번입니다."),
    ("평점이 어떻게 되나요?", "평점은 4.{digit}점입니다."),
    ("역에서 얼마나 걸리나요?", "가까운 역에서 걸어서 {minutes}분 걸립니다."),
)
_CONFIRMATIONS = (
    "예약되었습니다. 예약 번호는 {code}입니다. 더 필요하신 것이 있으신가요?",
    "예약이 완료되었습니다. 예약 번호는 {code:이에요/예요}.",
    "네, 예약해 드렸습니다. 예약 번호 {code}번을 기억해 주세요.",
)
_CHANGES = {
    "예약 요일": (
        (
            "죄송하지만 {old}에는 예약이 모두 찼습니다. 다른 요일은 어떠세요?",
            "{old}에는 예약이 안 된다고 합니다. 다른 요일로 알아볼까요?",
        ),
        ("그럼 {new:으로/로} 바꿔 주세요.", "아쉽네요. {new:은/는} 괜찮아요.", "그러면 {new:으로/로} 해 주세요."),
    ),
    "예약 명수": (
        ("{old}명은 예약이 어렵다고 합니다. 인원을 바꾸시겠어요?", "예약을 진행하겠습니다. 바꾸실 내용은 없으신가요?"),
        (
            "그럼 {new}명으로 다시 알아봐 주세요.",
            "인원을 {new}명으로 바꿔 주세요.",
            "아, 인원이 달라졌어요. {new}명으로 해 주세요.",
        ),
    ),
    "예약 기간": (
        ("{old}일 동안은 빈방이 없습니다. 기간을 바꾸시겠어요?", "예약 전에 기간을 다시 확인해 주시겠어요?"),
        ("그러면 {new}일만 묵을게요.", "기간을 {new}일로 바꿔 주세요.", "{new}일로 다시 부탁드려요."),
    ),
    "예약 시간": (
        ("{old}에는 자리가 없습니다. 다른 시간도 괜찮으세요?", "죄송하지만 {old} 예약은 마감되었습니다."),
        ("그럼 {new:으로/로} 바꿔 주세요.", "{new}에는 될까요? 그때로 할게요.", "시간을 {new:으로/로} 옮길게요."),
    ),
}
_TAXI_CALLS = {
    "출발 시간": (
        "{start}에서 {goal:으로/로} 가는 택시를 불러 주세요. {time}에 출발하려고요.",
        "{time}에 {start}에서 {goal:으로/로} 가는 택시가 필요해요.",
        "택시를 타고 {start}에서 {goal:으로/로} 갈 건데 {time}에 출발할게요.",
    ),
    "도착 시간": (
        "{start}에서 {goal:으로/로} 가는 택시를 불러 주세요. {time}까지 도착해야 해요.",
        "{start}에서 택시를 타서 {goal}에 {time}까지 도착하고 싶어요.",
        "{goal}에 {time}까지 가야 해요. {start}에서 택시를 탈게요.",
    ),
}
_TAXI_ASKS = ("택시 종류는 무엇으로 할까요?", "어떤 택시를 원하세요?", "원하시는 택시 종류가 있으신가요?")
_TAXI_KINDS = ("{taxi} 택시로 부탁드려요.", "{taxi} 택시가 좋겠어요.", "{taxi} 택시로 불러 주세요.")
_TAXI_ANY = ("택시 종류는 상관없어요.", "아무 택시나 괜찮아요.", "종류는 아무거나 좋아요.")
_TAXI_DONE = (
    "{car} 차량이 배정되었습니다.",
    "택시를 불렀습니다. 차량은 {car}입니다.",
    "{car} 차량이 시간에 맞춰 갑니다.",
)
_CARS = ("하얀색", "검은색", "은색", "파란색")
_SUBWAY_CALLS = (
    "{start}에서 {goal}까지 지하철로 가려고 해요.",
    "지하철로 {start}에서 {goal}까지 가는 길을 알려 주세요.",
    "{start}에서 {goal:으로/로} 가는 지하철을 타고 싶어요.",
)
_SUBWAY_ASKS = ("몇 시에 출발하실 예정인가요?", "출발 시간을 알려 주세요.", "언제 출발하세요?")
_SUBWAY_TIMES = ("{time}에 출발할 거예요.", "{time}쯤 탈 것 같아요.", "출발은 {time}입니다.")
_SUBWAY_ANY = ("출발 시간은 상관없어요.", "시간은 언제든 괜찮아요.", "출발은 아무 때나 좋아요.")
_SUBWAY_DONE = (
    "{minutes}분 걸리고 한 번 갈아타시면 됩니다.",
    "갈아타지 않고 {minutes}분이면 도착합니다.",
    "약 {minutes}분 걸립니다.",
)
_FAREWELLS = (
    ("감사합니다. 이제 됐어요.", "네, 잘 알겠습니다. 고맙습니다.", "도와주셔서 감사해요.", "다 됐습니다. 수고하세요."),
    (
        "네, 즐거운 여행 되세요.",
        "이용해 주셔서 감사합니다.",
        "감사합니다. 좋은 하루 보내세요.",
        "네, 조심히 다녀오세요.",
    ),
)
_PLANS = (
    ("숙소",), ("택시",), ("식당",), ("관광",), ("지하철",), ("식당", "택시"), ("관광",), ("택시",), ("숙소",),
    ("지하철",), ("관광", "식당"), ("식당",), ("택시",), ("숙소", "관광"), ("지하철",), ("관광", "지하철"), ("식당",),
    ("숙소", "식당", "택시"), ("관광",), ("숙소", "택시"),
)  # fmt: skip

# --- dialogues --------------------------------------------------------------------------------------------


@dataclass
class _Talk:
    """A dialogue in the making: its turns so far and the state they add up to."""

    split: str
    rng: random.Random
    decks: dict[str, list[tuple[str, str]]]  # by domain: yes/no wishes still to be uttered, shared by all dialogues
    may_change: bool
    state: dict[str, str] = field(default_factory=dict)
    turns: list[dict[str, Any]] = field(default_factory=list)

    def user(self, text: str, found: Mapping[str, str]) -> None:
        """Add a user turn that fills these slots."""
        self.state.update(found)
        state = [f"{slot}-{value}" for slot, value in self.state.items()]
        self.turns.append({"role": "user", "text": text, "state": state})

    def sys(self, text: str) -> None:
        """Add a system turn."""
        self.turns.append({"role": "sys", "text": text})

    def say(self, wordings: Sequence[str], **words: str) -> str:
        """One of the wordings this split may use, filled."""
        return fill(self.rng.choice(self.usable(wordings)), words)

    def usable(self, options: Sequence[_T]) -> Sequence[_T]:
        """The options of this split: all but the last in train, all but the first in dev."""
        return options[:-1] if self.split == "train" else options[1:]

    def one_of(self, values: tuple[str, str], taken: Sequence[str] = ()) -> str:
        """A value that is not taken yet; dev has values of its own beside those of train."""
        train, dev = values
        options = train.split(",") + (dev.split(",") if self.split == "dev" else [])
        return self.rng.choice([option for option in options if option not in taken])

    def lead(self) -> str:
        """How the user begins: with a greeting at first, later with a link to the next wish."""
        return self.say(_LINKS) if self.turns else self.rng.choice(("", "", "안녕하세요. "))


def _spoken(time: str, rng: random.Random) -> str:
    """A time as people say it: 18:30, 18시 30분 or 오후 6시 30분."""
    hour, minute = (int(part) for part in time.split(":"))
    minutes = f" {minute}분" if minute else ""
    half = "오전" if hour < 12 else "오후"
    return rng.choice((time, time, f"{hour}시{minutes}", f"{half} {(hour - 1) % 12 + 1}시{minutes}"))


def _wish(talk: _Talk, domain: str) -> tuple[str, dict[str, str]]:
    """A yes/no wish not uttered before, with the slot it fills."""
    deck = talk.decks.setdefault(domain, [])
    if all(f"{domain}-{slot}" in talk.state for slot, _ in deck):
        wishes = [(slot, value) for slot, values in _WISHES[domain].items() for value in values]
        deck[:] = talk.rng.sample(wishes, len(wishes))
    slot, value = next(wish for wish in deck if f"{domain}-{wish[0]}" not in talk.state)
    deck.remove((slot, value))
    return " " + talk.say(_WISHES[domain][slot][value]), {f"{domain}-{slot}": value}


def _request(talk: _Talk, domain: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the user looks for: slot values, and the words that say them."""
    kind, area, price = (talk.rng.choice(list(values)) for values in (_NAMES[domain], _AREAS, _PRICES))
    values = {"지역": area, "종류": kind, "가격대": price}
    return values, {"area": area, "kind": _SPOKEN_KINDS.get(kind, kind), "price": _PRICES[price]}


def _open(talk: _Talk, domain: str) -> tuple[str, tuple[str, ...], dict[str, str], dict[str, str]]:
    """The first words of a search: text, slots said, all wanted values and their words."""
    values, words = _request(talk, domain)
    said = talk.rng.choice(list(_OPENINGS[domain]))
    wordings = _OPENINGS[domain][said]
    text = fill(talk.rng.choice(wordings[:2] if talk.split == "train" else wordings[2:]), words)
    return talk.lead() + text, said, values, words


def _search(talk: _Talk, domain: str) -> None:
    """The user looks for a place, answers a question and takes what is offered."""
    text, said, values, words = _open(talk, domain)
    found = {f"{domain}-{slot}": values[slot] for slot in said}
    wish, wished = _wish(talk, domain) if talk.rng.random() < 0.5 else ("", {})
    talk.user(text + wish, found | wished)
    _answer(talk, domain, said, values, words)
    _offer(talk, domain, values["종류"])


def _answer(talk: _Talk, domain: str, said: tuple[str, ...], values: dict[str, str], words: Mapping[str, str]) -> None:
    """The system asks for a slot still open; the user names a value or does not mind."""
    open_slots = [slot for slot in ("지역", "종류", "가격대") if slot not in said]
    slot = next(slot for slot in open_slots if slot != "가격대" or domain != "관광")
    talk.sys(talk.say(_ASKS[slot]))
    minds = talk.rng.random() < 0.7
    wish, wished = _wish(talk, domain) if talk.rng.random() < 0.3 else ("", {})
    text = talk.say(_REPLIES[slot], **words) if minds else talk.say(_ANY[slot])
    talk.user(text + wish, {f"{domain}-{slot}": values[slot] if minds else "dontcare"} | wished)


def _search_briefly(talk: _Talk, domain: str) -> None:
    """The user says all wishes at once, perhaps the area of the place before, and takes what is offered."""
    text, said, values, _ = _open(talk, domain)
    found = {f"{domain}-{slot}": values[slot] for slot in said}
    earlier = [slot for slot in talk.state if slot.endswith("-지역") and talk.state[slot] != "dontcare"]
    if "지역" not in said and earlier:
        place = earlier[-1].removesuffix("-지역")
        text += " " + talk.say(_SAME_AREA, place=_SPOKEN_PLACES[place])
        found[f"{domain}-지역"] = talk.state[earlier[-1]]
    wish, wished = _wish(talk, domain)
    talk.user(text + wish, found | wished)
    _offer(talk, domain, values["종류"])


def _offer(talk: _Talk, domain: str, kind: str) -> None:
    """The system offers a place; the user takes it and books it or asks about it."""
    name = talk.one_of(_NAMES[domain][kind])
    talk.sys(talk.say(_OFFERS, name=name))
    text = talk.say(_ACCEPTANCES, name=name)
    _settle(talk, domain, name, text)


def _name(talk: _Talk, domain: str) -> None:
    """The user names the place at once."""
    name = talk.one_of(talk.rng.choice(list(_NAMES[domain].values())))
    _settle(talk, domain, name, talk.lead() + talk.say(_BY_NAME[domain], name=name))


def _settle(talk: _Talk, domain: str, name: str, text: str) -> None:
    """The end of a search: booking details for a bed or a table, a question about a sight."""
    found = {f"{domain}-이름": name}
    if domain == "관광":
        question, answer = talk.rng.choice(talk.usable(_QUESTIONS))
        talk.user(f"{text} {question}", found)
        talk.sys(fill(answer, _numbers(talk.rng)))
        return
    words, booked = _booking(talk, domain)
    talk.user(text + " " + talk.say(_BOOKINGS[domain], **words), found | booked)
    if talk.may_change and talk.rng.random() < _CHANGE_RATE:
        _change(talk, talk.rng.choice(list(booked)))
        talk.may_change = False  # once in a dialogue is enough
    talk.sys(talk.say(_CONFIRMATIONS, code=f"{talk.rng.randrange(1000, 10000)}"))


def _numbers(rng: random.Random) -> dict[str, str]:
    """Numbers for the system to answer with."""
    digits = {"hour": (8, 12), "office": (300, 999), "line": (1000, 9999), "digit": (1, 10), "minutes": (3, 20)}
    return {name: str(rng.randrange(*span)) for name, span in digits.items()}


def _booking(talk: _Talk, domain: str) -> tuple[dict[str, str], dict[str, str]]:
    """Booking details: the words that say them, and the slots they fill."""
    day, people, nights = talk.rng.choice(_DAYS), talk.rng.choice(_COUNTS[1:8]), talk.rng.choice(_COUNTS[1:7])
    time = talk.rng.choice(_TIMES[24:])  # from 11:00
    words = {"day": day, "people": people, "nights": nights, "time": _spoken(time, talk.rng)}
    own = {"예약 기간": nights} if domain == "숙소" else {"예약 시간": time}
    booked = {"예약 요일": day, **own, "예약 명수": people}
    return words, {f"{domain}-{slot}": value for slot, value in booked.items()}


def _change(talk: _Talk, slot: str) -> None:
    """A booking detail turns out impossible and the user changes it."""
    values = {"예약 요일": _DAYS, "예약 명수": _COUNTS, "예약 기간": _COUNTS[:7], "예약 시간": _TIMES[24:]}
    short = slot.split("-")[1]
    old = talk.state[slot]
    fewer = [value for value in _COUNTS if short in ("예약 명수", "예약 기간") and int(value) < int(old)]
    new = talk.rng.choice(fewer or [value for value in values[short] if value != old])
    said = {"old": old, "new": new}
    if short == "예약 시간":
        said = {key: _spoken(value, talk.rng) for key, value in said.items()}
    problem, reply = _CHANGES[short]
    talk.sys(fill(talk.rng.choice(problem), said))
    talk.user(talk.say(reply, **said), {slot: new})


def _ride(talk: _Talk, places: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Where a ride starts and ends: from one place found before to another, or between any two."""
    names = [value for slot, value in talk.state.items() if slot.endswith("-이름")]
    start = names[-2] if len(names) > 1 else talk.one_of(talk.rng.choice(places))
    goal = names[-1] if names else talk.one_of(talk.rng.choice(places), taken=[start])
    return start, goal


def _taxi(talk: _Talk) -> None:
    """The user calls a taxi."""
    start, goal = _ride(talk, (_STATIONS, _LANDMARKS))
    when, time = talk.rng.choice(list(_TAXI_CALLS)), talk.rng.choice(_TIMES)
    if goal == talk.state.get("식당-이름"):  # to be there when the table is ready
        when, time = "도착 시간", talk.state["식당-예약 시간"]
    text = talk.say(_TAXI_CALLS[when], start=start, goal=goal, time=_spoken(time, talk.rng))
    talk.user(talk.lead() + text, {"택시-출발지": start, "택시-도착지": goal, f"택시-{when}": time})
    talk.sys(talk.say(_TAXI_ASKS))
    taxi = talk.rng.choice((*_TAXIS, "dontcare"))
    said = talk.say(_TAXI_ANY) if taxi == "dontcare" else talk.say(_TAXI_KINDS, taxi=taxi)
    talk.user(said, {"택시-종류": taxi})
    talk.sys(talk.say(_TAXI_DONE, car=talk.rng.choice(_CARS)))


def _subway(talk: _Talk) -> None:
    """The user asks for a subway route."""
    start = talk.one_of(_STATIONS)
    goal = talk.one_of(_STATIONS, taken=[start])
    text = talk.lead() + talk.say(_SUBWAY_CALLS, start=start, goal=goal)
    talk.user(text, {"지하철-출발지": start, "지하철-도착지": goal})
    talk.sys(talk.say(_SUBWAY_ASKS))
    time = talk.rng.choice((*_TIMES, *["dontcare"] * 20))
    said = talk.say(_SUBWAY_ANY) if time == "dontcare" else talk.say(_SUBWAY_TIMES, time=_spoken(time, talk.rng))
    talk.user(said, {"지하철-출발 시간": time})
    talk.sys(talk.say(_SUBWAY_DONE, minutes=str(talk.rng.randrange(10, 50))))


def _visit(talk: _Talk, domain: str, plan: Sequence[str]) -> None:
    """The turns of one domain; the more domains a dialogue has, the fewer turns for each."""
    if domain == "택시":
        _taxi(talk)
    elif domain == "지하철":
        _subway(talk)
    elif len(plan) > 1 and talk.rng.random() < 0.3:
        _name(talk, domain)
    elif len(plan) > 2 or domain != plan[0]:
        _search_briefly(talk, domain)
    else:
        _search(talk, domain)


def _dialogue(guid: str, plan: Sequence[str], talk: _Talk) -> dict[str, Any]:
    """One dialogue over the domains of a plan."""
    for domain in plan:
        _visit(talk, domain, plan)
    farewell, answer = _FAREWELLS
    talk.user(talk.say(farewell), {})
    talk.sys(talk.say(answer))
    return {"guid": guid, "domains": list(plan), "dialogue": talk.turns}


DEMO = {"epochs": 2, "batch_size": 8, "limit": 640, "learning_rate": 1e-3}
"""How the demo trains the encoder in the box on it."""


def make(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """The dialogues of a split, the plans taking turns."""
    decks: dict[str, list[tuple[str, str]]] = {}
    dialogues: list[dict[str, Any]] = []
    openings: set[str] = set()
    while len(dialogues) < _SIZES[split]:
        number = len(dialogues)
        plan = _PLANS[number % len(_PLANS)]
        talk = _Talk(split, rng, decks, may_change=len(plan) < 3)
        dialogue = _dialogue(f"wos-sample_{split}_{number:05}", plan, talk)
        if talk.turns[0]["text"] not in openings:  # no two dialogues begin alike
            openings.add(talk.turns[0]["text"])
            dialogues.append(dialogue)
    return dialogues


# --- ontology ---------------------------------------------------------------------------------------------


def _both(values: tuple[str, str]) -> list[str]:
    """The values of train and dev together."""
    return ",".join(values).split(",")


def _closed_values(domain: str) -> dict[str, list[str]]:
    """The slots of a place with their values, apart from its yes/no slots and its bookings."""
    names = [name for values in _NAMES[domain].values() for name in _both(values)]
    return {"이름": names, "종류": list(_NAMES[domain]), "지역": list(_AREAS)}


def _slot_values() -> dict[str, list[str]]:
    """Every slot with its values."""
    booked = {"가격대": list(_PRICES), "예약 명수": list(_COUNTS), "예약 요일": list(_DAYS)}
    own = {"관광": {}, "숙소": {**booked, "예약 기간": list(_COUNTS)}, "식당": {**booked, "예약 시간": list(_TIMES)}}
    slots = {
        f"{domain}-{slot}": values
        for domain in own
        for slot, values in (
            _closed_values(domain) | own[domain] | {wish: ["yes", "no"] for wish in _WISHES[domain]}
        ).items()
    }
    names = [name for domain in own for name in slots[f"{domain}-이름"]]
    stops = {f"지하철-{slot}": _both(_STATIONS) for slot in ("출발지", "도착지")}
    rides = {f"택시-{slot}": [*_both(_STATIONS), *_both(_LANDMARKS), *names] for slot in ("출발지", "도착지")}
    times = {f"{slot} 시간": list(_TIMES) for slot in ("택시-출발", "택시-도착", "지하철-출발")}
    return slots | stops | rides | times | {"택시-종류": list(_TAXIS)}


def ontology() -> dict[str, list[str]]:
    """The 45 slots, sorted, with every value that a dialogue may use."""
    return {slot: ["none", "dontcare", *values] for slot, values in sorted(_slot_values().items())}


def companions(labels: Sequence[str]) -> dict[str, Any]:
    """The slots with their values."""
    return {"ontology.json": ontology()}
